#include "engine/dry_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/draft_reader.h"
#include "engine/filter_pass.h"
#include "engine/open_model.h"
#include "model/layer.h"
#include "model/record.h"
#include "policies/registry.h"

namespace coppice {

namespace {

// Deterministic on every machine, unlike the distributions of <random>.
class Variates {
 public:
  float Exponential() { return static_cast<float>(-std::log(Uniform())); }
  float Normal() {
    float sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(Uniform());
    return sum;
  }

 private:
  double Uniform() {  // (0, 1]
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>((state_ >> 11) + 1) * 0x1p-53;
  }
  uint64_t state_ = 1;
};

// What all layers of a plan use.
struct ScoreRandom {
  const ModelConfig& config;
  Variates variates = {};
  // By number of rows: computing a pattern takes seconds, and equal layers share one result.
  std::map<std::pair<int64_t, LayerShape>, double> densities = {};
  std::vector<float> hidden = std::vector<float>(static_cast<size_t>(config.shape.hidden));  // zeros
  bool patterns = true;  // false: patterns are not computed, and cost nothing
};

const LayerWeights kNoWeights;

// A layer without arithmetic. The stream, the caches and the questions to the policy are those of a real run.
// Scores are random. Hidden states, keys and values have one channel, which is never computed.
class PlannedLayer final : public Layer {
 public:
  PlannedLayer(int index, const ModelConfig& narrow, ScoreRandom& random)
      : Layer(index, narrow, kNoWeights, {}), random_(random) {}

 private:
  void Mix(Stream& x, const Pass& pass) const override;
  void Ffn(const TokenSet& rows, Stream& x, const Pass& pass) const override;
  void EndRows(Stream& /*x*/, const Pass& /*pass*/) const override {}
  void AddScores(const Needs& needs, Observation& seen) const;
  double Density(Stream& x, const Pass& pass) const;

  ScoreRandom& random_;
};

// Shows BeforeLayer and AfterAttention hidden states of the model's width. All rows are views of one row of
// zeros. A prefix that has not joined has none, as in a real run.
void ShowHidden(const ScoreRandom& random, Stream& x) {
  if (x.prefill() && x.in_front() == 0)
    x.seen().hidden = {random.hidden.data(), DType::kF32, x.rows(), random.config.shape.hidden, 0};
}

void PlannedLayer::Mix(Stream& x, const Pass& pass) const {
  if (!shape().attends()) {
    x.SetDepth(x.seen().layer + 1);
    x.seen().ClearScores();
    ShowHidden(random_, x);
    return RecordAttention(x, {.stored = x.rows(), .queries = LastRowOnly(x) ? 1 : x.rows()});
  }
  x.LoadColdKeys();
  LayerCache& cache = pass.sequence.layer(x.seen().layer).cache;
  cache.Add(x.positions());
  x.SetDepth(x.seen().layer + 1);
  x.seen().ClearScores();
  if (!x.prefill()) x.seen().positions = x.attends_all() ? cache.positions() : x.attended();
  ShowHidden(random_, x);
  const double density = x.prefill() && AsksPattern(x, pass) ? Density(x, pass) : 1;
  AddScores(NeedsOf(x, pass), x.seen());
  AttentionCounts counts{
      .stored = x.rows(), .queries = x.rows(), .keys = x.seen().rows(), .density = density};
  if (Probes(x, pass)) counts.stored = counts.queries = counts.keys = ChooseAttending(x, pass).size();
  if (LastRowOnly(x)) counts.queries = 1;
  RecordAttention(x, counts);
}

void PlannedLayer::Ffn(const TokenSet& rows, Stream& x, const Pass& /*pass*/) const {
  ShowHidden(random_, x);
  if (x.prefill()) {
    const int64_t count = LastRowOnly(x) ? 1 : rows.size();
    x.sequence().ledger.layer(x.seen().layer).experts_read =
        std::llround(ExpectedExperts(shape().mixture, count));
  }
}

void PlannedLayer::AddScores(const Needs& needs, Observation& seen) const {
  const auto fill = [&](const MutableTensorView& scores) {
    for (int64_t list = 0; list < scores.rows; ++list) {
      for (float& score : scores.Row<float>(list)) score = random_.variates.Exponential();
    }
  };
  for (const Needs::Mass& mass : needs.masses)
    fill(seen.AddMass(mass, mass.per_kv_head ? shape().kv_heads : 1));
  const int64_t keys = seen.phase == Phase::kPrefill ? seen.rows() : seen.prompt_tokens;
  for (const Needs::Units& units : needs.unit_scores)
    fill(seen.AddUnitScores(units, (keys + units.unit - 1) / units.unit));
}

// The density of the policy's pattern for random queries and keys.
double PlannedLayer::Density(Stream& x, const Pass& pass) const {
  if (!random_.patterns) return 0;
  const int64_t rows = x.rows();
  const LayerShape& s = random_.config.shape.layer(x.seen().layer);
  const std::pair key(rows, s);
  if (const auto known = random_.densities.find(key); known != random_.densities.end()) return known->second;
  const auto normal = [&](int64_t width) {
    Tensor t(DType::kF32, rows, width);
    for (int64_t i = 0; i < rows; ++i) {
      for (float& value : t.mutable_view().Row<float>(i)) value = random_.variates.Normal();
    }
    return t;
  };
  const bool alibi = random_.config.shape.alibi;
  const std::vector<float> slopes = alibi ? AlibiSlopes(s.heads) : std::vector<float>{};
  const Tensor queries = normal(s.query_width());
  const Tensor exact = normal(s.key_width());
  Tensor keys(pass.backend.cache_dtype(), exact.rows(), exact.cols());
  pass.backend.Convert(exact.view(), keys.mutable_view());
  const AttentionInput in = {{.heads = s.heads,
                              .kv_heads = s.kv_heads,
                              .head_dim = s.head_dim,
                              .scale = AttentionScale(random_.config, s),
                              .window = s.window,
                              .alibi_slopes = slopes},
                             queries.view(),
                             keys.view(),
                             keys.view(),
                             x.positions(),
                             x.positions()};
  const SparsePattern pattern = AskPattern(x, in, pass);
  return random_.densities[key] = pattern.empty() ? 1 : PatternDensity(pattern, rows, rows);
}

// Copies of all layers' sizes, with heads of one channel and no ropes.
ModelConfig Narrow(ModelConfig config) {
  config.shape.hidden = 1;
  for (LayerShape& layer : config.shape.layers) {
    if (layer.attends()) layer.head_dim = 1;
    layer.rope = kNoRope;
  }
  config.ropes.clear();
  return config;
}

// A cold tier that stores nothing, because the first decode step reads nothing back.
class Nowhere final : public RecordStore {
 public:
  explicit Nowhere(int64_t record_bytes) : record_bytes_(record_bytes) {}
  std::byte* Stage(int64_t count) override {
    staged_.resize(static_cast<size_t>(count * record_bytes_));
    return staged_.data();
  }
  void Write(std::span<const int64_t> /*slots*/) override {}
  void Prefetch(std::span<const int64_t> /*slots*/) override {}
  const std::byte* Read(std::span<const int64_t> /*slots*/) override {
    COPPICE_CHECK(false);
    return nullptr;
  }
  void Flush() override {}
  int64_t record_bytes() const override { return record_bytes_; }
  std::string_view kind() const override { return "none"; }

 private:
  int64_t record_bytes_;
  std::vector<std::byte> staged_;
};

// States of the sizes that a planned prefill takes over.
std::shared_ptr<const PrefixState> PlannedState(const ModelShape& narrow, const PlannedPrefix& prefix) {
  auto state = std::make_shared<PrefixState>();
  state->tokens.resize(static_cast<size_t>(prefix.rows));
  state->point = prefix.point;
  for (int l = 0; l < LayersWithKeys(prefix.point); ++l) {
    const int64_t width = narrow.layer(l).key_width();
    state->layers.push_back(
        {Tensor::Zeros(DType::kBF16, prefix.rows, width), Tensor::Zeros(DType::kBF16, prefix.rows, width)});
  }
  if (narrow.HasStates()) {  // which the planned layers do not read
    state->has_states = true;
    state->checkpoints.push_back(std::make_shared<const PrefixState::Checkpoint>(
        PrefixState::Checkpoint{prefix.rows, std::vector<RecurrentSnapshot>(state->layers.size())}));
  }
  if (prefix.point.layer < narrow.layer_count())
    state->hidden = Tensor::Zeros(DType::kF32, prefix.rows, narrow.hidden);
  return state;
}

// The positions of the rows that a planned prefill computes.
std::vector<int32_t> EnterPlanned(SequenceState& sequence, const TokenSet& input, bool compact) {
  std::vector<int32_t> positions = sequence.Enter(input, compact);
  const int64_t reused = sequence.prefix.rows;
  if (reused > 0) sequence.RestorePrefix();
  positions.erase(positions.begin(), positions.begin() + reused);
  return positions;
}

Ledger Plan(const ModelConfig& config, int64_t tokens, TokenPolicy& policy, Backend& be,
            const PlannedPrefix& prefix = {}, bool patterns = true) {
  const ModelShape& shape = config.shape;
  const ModelConfig narrow = Narrow(config);
  SequenceState sequence(narrow, {}, DType::kBF16, tokens, tokens + 1);
  const std::vector<int64_t> narrow_rows = LayerBytes(narrow.shape, DType::kBF16);
  const std::vector<int64_t> rows = LayerBytes(shape, be.cache_dtype());
  Ledger& ledger = sequence.ledger = Ledger(shape, tokens);

  Workspace workspace(narrow.shape, 1);
  const Pass pass{policy, sequence, workspace, be};
  ScoreRandom random{.config = config, .patterns = patterns};
  if (prefix.rows > 0) sequence.prefix = {PlannedState(narrow.shape, prefix), prefix.rows};
  std::vector<PlannedLayer> layers;
  for (int l = 0; l < shape.layer_count(); ++l) layers.emplace_back(l, narrow, random);
  const auto forward = [&](Phase phase, const std::vector<int32_t>& positions) {
    Stream x(phase, sequence, Tensor::Zeros(DType::kF32, std::ssize(positions), 1), positions, true);
    ShowHidden(random, x);
    for (const PlannedLayer& layer : layers) layer.Forward(x, pass);
    ledger.kv_bytes = shape.StateBytes();
    for (size_t l = 0; l < rows.size(); ++l) {
      if (narrow_rows[l] > 0) ledger.kv_bytes += sequence.layers[l].cache.bytes() / narrow_rows[l] * rows[l];
    }
    ledger.aux_bytes = sequence.aux.tokens() * ParkedBytes(shape, be.cache_dtype());
  };

  const PolicyFacts facts = policy.Facts();
  forward(Phase::kPrefill, EnterPlanned(sequence, policy.Input(tokens, be), facts.compact_positions));
  ledger.kv_bytes_dense = tokens * TokenBytes(shape, be.cache_dtype()) + shape.StateBytes();
  ledger.NoteHeld(ledger.kv_bytes, ledger.aux_bytes);
  if (facts.offload_block > 0) {
    const int64_t record = facts.offload_block * std::ranges::max(narrow_rows);
    sequence.cold = std::make_unique<ColdCache>(std::make_unique<Nowhere>(record), shape.layer_count(),
                                                facts.offload_block);
    const auto current = static_cast<int32_t>(sequence.depth.size());
    sequence.depth.push_back(shape.layer_count());
    forward(Phase::kDecode, {current});
    ledger.kv_bytes -= TokenBytes(shape, be.cache_dtype());  // the current token's
    for (int l = 0; l < shape.layer_count(); ++l)
      ledger.cold_bytes += std::ssize(sequence.cold->ColdPositions(l)) * rows[static_cast<size_t>(l)];
  }
  return std::move(ledger);
}

ModelShape ShapeOfFile(const std::string& file) {
  const OpenedModel model = OpenModel(file);
  ModelShape shape = model.config.shape;
  if (shape.vocab == 0 && model.tokenizer) shape.vocab = model.tokenizer->vocab_size();
  return shape;
}

}  // namespace

std::vector<float> PlannedScores(int64_t tokens) {
  Variates variates;
  std::vector<float> scores(static_cast<size_t>(tokens));
  for (float& score : scores) score = variates.Exponential();
  return scores;
}

std::vector<ReadWord> PlannedWords(std::span<const std::string> pieces) {
  constexpr int64_t kChunkWords = 400;  // about what a chunk of 512 tokens holds
  const std::vector<float> scores = PlannedScores(std::ssize(pieces));
  std::vector<ReadWord> words;
  size_t begin = 0;
  for (size_t i = 0; i < pieces.size(); begin += pieces[i++].size()) {
    if (pieces[i].empty()) continue;
    words.push_back({.parts = {{.begin = begin,
                                .end = begin + pieces[i].size(),
                                .keep = std::exp(-scores[i]),
                                .text = pieces[i]}},
                     .chunk = static_cast<int>(std::ssize(words) / kChunkWords)});
  }
  return words;
}

Ledger PlanPrefill(const ModelConfig& config, int64_t tokens, TokenPolicy& policy,
                   const PlannedPrefix& prefix, Backend& be) {
  return Plan(config, tokens, policy, be, prefix, false);
}

DryRun PlanRun(const ModelConfig& config, std::span<const int32_t> prompt, std::string_view prune,
               Backend& be) {
  MethodContext context{.shape = config.shape,
                        .tokens = static_cast<int64_t>(prompt.size()),
                        .prompt = prompt,
                        .parked_bytes = ParkedBytes(config.shape, be.cache_dtype()),
                        .layer_bytes = LayerBytes(config.shape, be.cache_dtype()),
                        .planned = true};
  double selection_flops = 0;
  context.open_draft = [&](const std::string& file) -> Draft {
    return {.read = [&, shape = ShapeOfFile(file)](int look_ahead, int /*pool*/) {
      selection_flops += LookAheadFlops(shape, context.tokens, look_ahead);
      return PlannedScores(context.tokens);
    }};
  };
  context.first_layers = [&](int layer) {
    selection_flops += FilterFlops(config.shape, context.tokens, layer);
    return PlannedScores(context.tokens);
  };
  PruneChoice choice = MakePolicy(prune, context, {});
  Ledger ledger = Plan(config, context.tokens, *choice.policy, be);
  ledger.selection_flops = selection_flops;
  return {std::move(ledger), std::move(choice.spec), choice.active, std::move(choice.reason)};
}

}  // namespace coppice
