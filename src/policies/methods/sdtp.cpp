// SDTP: saliency-driven dynamic token pruning. Trained predictors, prefill only; dropped tokens never return.
//
// Before layer l_s, s = 1 ... S, over the rows that are left, x the hidden states that enter the layer:
//   pi_i   = W2 gelu(W1 LayerNorm(x_i) + b1) + b2                      (1) one small network per stage
//   s_i    = pi_i,0 - pi_i,1                                           (2) log-odds of keeping the token
//   keep_s = round(r^s N)                                              (3) of what entered; half up
//   S      = the first 4, the last ceil(0.1 N), the best others by s   (4) ties: the earlier
// The first and last rows of (4) count inside keep_s; if they are more, they all stay. The method does not
// read attention, so it works with every kind of attention and every number of kv heads. Tokens keep their
// positions.
//
// The paper does not say whether it counts layers from 0 or 1: layers 4, 7, ..., 31 of 32, counted from 0,
// reproduce its FLOPs table; SDTP-low's are 4, 9, 14, 19, 24. A file trained for the first has no predictors
// for all of the second: each stage then uses the nearest layer that the file has, and the settings name it.
// The 10 % refer to the prompt tokens that entered the model. LayerNorm and h = d / 4 follow DynamicViT,
// on which the paper builds. The user supplies the file of predictors: file head of sdtp_predictor.cpp.
//
// Cost: 2 n (d h + 2 h) FLOPs per stage, 0.4 % of a prefill in all.
// Source: Saliency-driven dynamic token pruning for large language models, arXiv 2504.04514.
#include "policies/methods/sdtp.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/check.h"
#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

SdtpPolicy::SdtpPolicy(SdtpConfig config, std::shared_ptr<const SdtpFile> file)
    : config_(std::move(config)), file_(std::move(file)) {
  for (const int layer : config_.layers) COPPICE_CHECK(StageOf(file_->layers(), layer) >= 0);
}

SdtpStays StaysAt(const SdtpConfig& config, int stage, const Observation& seen) {
  const int64_t n = seen.entered_tokens();
  const int64_t local = seen.LastEntered(CeilShare(config.local, n));
  return {.keep = RoundShare(std::pow(config.r, stage + 1), n),  // (3)
          .first = RowsBelow(seen.positions, config.first),
          // The last row stays even where local is 0.
          .last = std::max<int64_t>(1, seen.rows() - RowsBelow(seen.positions, local))};
}

LayerPoint SdtpPolicy::FirstChoice() const {
  return config_.layers.empty() || config_.r >= 1 ? kNoPoint : LayerPoint{config_.layers.front(), false};
}

bool SdtpPolicy::ReadsHidden(int layer) const { return config_.r < 1 && StageOf(config_.layers, layer) >= 0; }

TokenSet SdtpPolicy::BeforeLayer(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  const int stage = StageOf(config_.layers, seen.layer);
  if (stage < 0 || config_.r >= 1) return TokenSet::All(rows);
  const SdtpStays stays = StaysAt(config_, stage, seen);
  if (stays.All(rows)) return TokenSet::All(rows);
  const auto predictor = static_cast<size_t>(StageOf(file_->layers(), seen.layer));
  std::vector<float> score(static_cast<size_t>(rows));
  file_->predictors()[predictor].Score(seen.hidden, be, score);     // (1), (2)
  return BestRows(score, stays.keep, stays.first, stays.last, be);  // (4)
}

namespace {

struct SdtpSettings {
  std::string file = {};
  bool low = false;
  int stages = 0;
  SdtpConfig config = {};
  int64_t minimum = 1024;
};

Keys SdtpKeys(SdtpSettings& s, const ModelShape& shape) {
  SdtpConfig& c = s.config;
  return {
      Keys::File("file", &s.file, "a safetensors file", "predictors trained for this model",
                 "SDTP needs predictors trained for this very model, in a safetensors file (docs/methods.md: "
                 "format and training); none are published"),
      {"preset", &s.low, "file low",
       "the file's stages, or the five of SDTP-low, at the nearest layers of the file"},
      {"stages", &s.stages, 1, shape.layer_count() - 1,
       "number of stages, evenly from layer L / 8 to the last, at the nearest layers of the file",
       "the file's", "1 to L - 1"},
      LayersKey(c.layers, shape, "tokens are dropped before these layers", "the file's",
                "layers of the file"),
      {"r", &c.r, kAboveZero, 1, "share of the tokens that each stage keeps", "the file's"},
      {"first", &c.first, 0, kManyTokens, "positions below this are always kept", "the file's"},
      {"local", &c.local, 0, 1, "share of the prompt, at its end, that is always kept", "the file's"},
      MinKey(s.minimum),
  };
}

// Assigns each of the `wanted` layers a different layer that the file `has`: the nearest one that leaves
// enough for the later wanted layers. Both lists ascend.
std::vector<int> NearestLayers(const std::vector<int>& wanted, const std::vector<int>& has) {
  if (wanted.size() > has.size()) {
    throw PruneError("sdtp: {} stages, at layers {}, need as many predictors; the file has those of {}",
                     wanted.size(), fmt::join(wanted, "/"), fmt::join(has, "/"));
  }
  std::vector<int> nearest;
  auto from = has.begin();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto end = has.end() - static_cast<std::ptrdiff_t>(wanted.size() - i - 1);
    const auto best = std::min_element(
        from, end, [&](int a, int b) { return std::abs(a - wanted[i]) < std::abs(b - wanted[i]); });
    nearest.push_back(*best);
    from = best + 1;
  }
  return nearest;
}

void SetStages(const Keys& keys, const ModelShape& shape, const SdtpFile& file, SdtpSettings& s) {
  std::vector<int>& layers = s.config.layers;
  if (!keys.Given("layers")) {
    const bool as_file = !keys.Given("stages") || static_cast<size_t>(s.stages) == file.layers().size();
    layers = s.low ? SdtpLowLayers(shape) : as_file ? file.layers() : SdtpLayers(shape, s.stages);
    if (s.low || !as_file) layers = NearestLayers(layers, file.layers());
  }
  if (keys.Given("stages") && static_cast<size_t>(s.stages) != layers.size()) {
    throw PruneError("sdtp: stages={} but {} layers: {}", s.stages, layers.size(), fmt::join(layers, "/"));
  }
  s.stages = static_cast<int>(layers.size());
  for (const int layer : layers) {
    if (StageOf(file.layers(), layer) < 0) {
      throw PruneError("sdtp: the file has no predictor for layer {}; it has {}", layer,
                       fmt::join(file.layers(), "/"));
    }
  }
}

MethodInstance MakeSdtp(const MethodSpec& asked, const MethodContext& context) {
  SdtpSettings s;
  Keys keys = SdtpKeys(s, context.shape);
  MethodSpec spec = asked;
  // How many tokens stay follows from the settings, whatever the predictors say.
  if (context.planned) spec.values.emplace("file", kRandomPredictors);
  keys.Read(spec);
  const bool no_file = context.planned && s.file == kRandomPredictors;
  std::shared_ptr<const SdtpFile> file =
      no_file ? SdtpFile::OfNoFile(context.shape) : OpenSdtpFile(s.file, context.shape);
  SetStages(keys, context.shape, *file, s);
  if (!keys.Given("r")) s.config.r = file->r();
  if (!keys.Given("first")) s.config.first = file->first();
  if (!keys.Given("local")) s.config.local = file->local();
  const SdtpConfig& c = s.config;
  const double left = std::pow(c.r, static_cast<double>(c.layers.size()));
  const int64_t stays = std::max(RoundShare(left, context.tokens),
                                 c.first + std::max<int64_t>(1, CeilShare(c.local, context.tokens)));
  return MakeInstance<SdtpPolicy>(
      keys, {LengthReason(context, s.minimum), NothingToDrop(context, stays), WindowReason(context)}, c,
      std::move(file));
}

}  // namespace

MethodInfo SdtpMethod() {
  return {"sdtp",
          "drop tokens at many layers by small trained networks; they never return",
          "Saliency-driven dynamic token pruning for large language models, arXiv 2504.04514",
          kDropsRows,
          HelpOf(&SdtpKeys),
          &MakeSdtp};
}

}  // namespace coppice
