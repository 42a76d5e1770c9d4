// SPTS: every deep layer chooses the rows that attend and the rows that run the FFN, by a look at what it
// would do itself. Skipped rows keep their residual and may be chosen again later. No training.
//
// In layer l >= `begin`, over the n candidates (the rows of the stream), with x their hidden states:
//   s_i  = mean_h softmax_j(q_h k_h,j / sqrt(c))_i     (1) PAP: keys of all rows, the query of the last row
//   A    = the M rows of largest s                     (2) the last row is always among them
//   x'_i = x_i + attention over A if i in A, else x_i  (3) the cache holds the keys and values of A alone
//   C_i  = ||f(x'_i)||                                 (4) LTP: f is a low-rank FFN (spts_proxy.cpp)
//   B    = the M rows of largest C_i s_i               (5) and the last
//   x''_i = x'_i + FFN(norm(x'_i)) if i in B, else x'_i
// Behind the last layer of a stage (MSDP), by the s of that layer:
//   the K candidates of smallest s leave the stream    (6)
// M and K are numbers of tokens, by stage; behind the last stage M stays.
//
// The paper says of (6) that a fixed number of candidates leaves. Here at least the next stage's M stay: on
// a prompt that M covers nothing is redundant. Layers are counted from 0, a stage includes its boundary,
// and its "9K" is 9,000: so the cache of 32k tokens shrinks from 16 to 6.63 GB, as published
// (ledger_test.cpp). While M covers all candidates the layer is dense, and nothing is probed. If
// proxy=none, C is 1 (the paper's ablation of LTP).
//
// Prefill only. Cost in FLOPs: (1) 2 d G c for each row that is not in A, and 2 n H c; (4) 2 r (2 d + 3 D) n
// for a proxy with D channels and rank r, 1 % of the FFN that it ranks in Llama-3.1-8B.
//
// Source: Probe and skip: self-predictive token skipping for efficient long-context LLM inference, arXiv
// 2601.13155. The authors published no code. M, K and stages are those of its Llama-3.1-8B and Qwen2.5-7B.
#include "policies/methods/spts.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

namespace {

const Needs::Mass kLastQueryMass{.queries = 1};

}  // namespace

SptsPolicy::SptsPolicy(SptsConfig config, std::shared_ptr<const SptsFile> proxies)
    : config_(std::move(config)), proxies_(std::move(proxies)) {
  int64_t rows = config_.tokens;
  for (size_t stage = 0; stage < config_.ends.size(); ++stage) {
    candidates_.push_back(rows);
    rows = Stays(stage, rows);
  }
  candidates_.push_back(rows);  // behind the last stage
}

size_t SptsPolicy::StageOfLayer(int layer) const {
  const std::vector<int>& ends = config_.ends;
  return static_cast<size_t>(std::lower_bound(ends.begin(), ends.end(), layer) - ends.begin());
}

int64_t SptsPolicy::Budget(size_t stage) const {
  return config_.keep[std::min(stage, config_.keep.size() - 1)];
}

int64_t SptsPolicy::Stays(size_t stage, int64_t rows) const {
  return std::min(rows, std::max(rows - config_.drop[stage], Budget(stage + 1)));
}

bool SptsPolicy::Skips(int layer) const {
  const size_t stage = StageOfLayer(layer);
  return layer >= config_.begin && candidates_[stage] > Budget(stage);
}

bool SptsPolicy::DropsBefore(int layer) const {
  const int stage = StageOf(config_.ends, layer - 1);
  return stage >= 0 && candidates_[static_cast<size_t>(stage) + 1] < candidates_[static_cast<size_t>(stage)];
}

LayerPoint SptsPolicy::FirstChoice() const {
  for (int layer = config_.begin; layer <= config_.ends.back() + 1; ++layer) {
    if (Skips(layer) || DropsBefore(layer)) return {layer, false};
  }
  return kNoPoint;
}

Needs SptsPolicy::NeedsAt(Phase phase, int layer) const {
  if (phase != Phase::kPrefill || !(Skips(layer) || DropsBefore(layer + 1))) return {};
  return {.masses = {kLastQueryMass}, .unit_scores = {}};  // (1)
}

TokenSet SptsPolicy::RunAttention(const Observation& seen, Backend& be) {
  const int64_t budget = Budget(StageOfLayer(seen.layer));
  if (!Skips(seen.layer) || seen.rows() <= budget) return TokenSet::All(seen.rows());
  return BestRows(seen.AttentionMass(kLastQueryMass).Row<float>(0), budget, 0, 1, be);  // (2)
}

TokenSet SptsPolicy::RunFfn(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  const int64_t budget = Budget(StageOfLayer(seen.layer));
  if (!Skips(seen.layer) || rows <= budget) return TokenSet::All(rows);
  const std::span<const float> s = seen.AttentionMass(kLastQueryMass).Row<float>(0);
  std::vector<float> score(s.begin(), s.end());
  if (proxies_ != nullptr) {
    std::vector<float> c(score.size());
    proxies_->proxy(seen.layer).Score(seen.hidden, be, c, seen.pause);  // (4)
    for (size_t i = 0; i < score.size(); ++i) score[i] *= c[i];
  }
  return BestRows(score, budget, 0, 1, be);  // (5)
}

TokenSet SptsPolicy::BeforeLayer(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  if (!DropsBefore(seen.layer)) return TokenSet::All(rows);
  const int64_t stays = Stays(static_cast<size_t>(StageOf(config_.ends, seen.layer - 1)), rows);
  if (stays == rows) return TokenSet::All(rows);
  return BestRows(seen.AttentionMass(kLastQueryMass).Row<float>(0), stays, 0, 1, be);  // (6)
}

namespace {

struct SptsSettings {
  SptsConfig config = {};
  std::string proxy = {};
  std::vector<double> keep = {};  // tokens, or shares of the prompt
  std::vector<double> drop = {};
};

// The values of a key, one per stage, as tokens.
std::vector<int64_t> TokensOf(std::vector<double>& values, std::string_view key, size_t stages,
                              int64_t tokens) {
  FillStages(values, stages, "spts", key);
  std::vector<int64_t> of;
  for (const double value : values) of.push_back(value <= 1 ? CeilShare(value, tokens) : std::llround(value));
  return of;
}

Keys SptsKeys(SptsSettings& s, const ModelShape& shape) {
  SptsConfig& c = s.config;
  const SptsPreset preset = SptsFor(shape);
  c.begin = preset.begin;
  c.ends = preset.ends;
  s.keep.assign(preset.keep.begin(), preset.keep.end());
  s.drop = {static_cast<double>(preset.drop)};
  return {
      Keys::OptionalFile(
          "proxy", &s.proxy, "a safetensors file",
          "low-rank FFNs of this model, made by coppice tune: they predict how much its FFN changes a "
          "token; none: the attention alone chooses"),
      {"begin", &c.begin, 0, std::max(shape.layer_count() - 1, 0), "layers below this one are dense",
       "by model: 10 L / 32", "0 to L - 1"},
      LayersKey(c.ends, shape, "a stage ends with each of these layers", "by model: (13, 18, 23, 28) L / 32",
                "1 to L - 1"),
      {"keep", &s.keep, kAboveZero, kManyTokens,
       "tokens that attend, and tokens that run the FFN, in each layer of a stage",
       "by model: 9000/7000/4000/2000", "tokens, or shares up to 1"},
      {"drop", &s.drop, 0, kManyTokens,
       "tokens that leave behind each stage; at least the next stage's keep stay", "by model: 1000",
       "tokens, or shares up to 1"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeSpts(const MethodSpec& spec, const MethodContext& context) {
  SptsSettings s;
  Keys keys = SptsKeys(s, context.shape);
  keys.Read(spec);
  SptsConfig& c = s.config;
  c.keep = TokensOf(s.keep, "keep", c.ends.size(), context.tokens);
  c.drop = TokensOf(s.drop, "drop", c.ends.size(), context.tokens);
  if (!c.ends.empty() && c.ends.front() < c.begin)
    throw PruneError("spts: the first stage ends with layer {}, before begin={}", c.ends.front(), c.begin);
  c.tokens = context.tokens;
  if (!s.proxy.empty() && context.shape.post_norms)
    throw PruneError("spts: proxy={}: this model normalises what its FFN adds, and a proxy predicts its size",
                     s.proxy);
  std::shared_ptr<const SptsFile> proxies;
  if (context.planned) {
    proxies = SptsFile::OfNoFile(context.shape);  // how many rows stay follows from the settings
  } else if (!s.proxy.empty()) {
    proxies = OpenSptsFile(s.proxy, context.shape);
    if (proxies->first_layer() > c.begin) {
      throw PruneError("spts: {} has proxies from layer {} on, and begin={}", s.proxy, proxies->first_layer(),
                       c.begin);
    }
  }
  const int64_t least = c.keep.empty() ? context.tokens : *std::min_element(c.keep.begin(), c.keep.end());
  return MakeInstance<SptsPolicy>(keys,
                                  {StageReason(c.ends, context.shape), LengthReason(context, c.minimum),
                                   NothingToDrop(context, least), WindowReason(context)},
                                  c, std::move(proxies));
}

}  // namespace

MethodInfo SptsMethod() {
  return {"spts",
          "in deep layers, a cheap probe chooses the tokens that attend and those that run the FFN",
          "Probe and skip: self-predictive token skipping for efficient long-context LLM inference, arXiv "
          "2601.13155",
          kDropsRows | kSkipsFfn | kSkipsAttention,
          HelpOf(&SptsKeys),
          &MakeSpts};
}

}  // namespace coppice
