// SDTP: saliency-driven dynamic token pruning. Trained predictors, prefill only; what left never returns.
//
// Before layer l_s, s = 1 ... S, over the rows that are there, x the hidden states that enter the layer:
//   pi_i   = W2 gelu(W1 LayerNorm(x_i) + b1) + b2                      (1) one small network per stage
//   s_i    = pi_i,0 - pi_i,1                                           (2) log-odds of keeping the token
//   keep_s = round(r^s N)                                              (3) of the original prompt; half up
//   S      = the first 4, the last ceil(0.1 N), the best others by s   (4) ties: the earlier
// The protected ones count inside keep_s; where they are more, they all stay. No attention is looked at, so
// the method goes with every kind of attention and every number of kv heads. Positions stay what they were.
//
// The paper's figures leave open where counting starts: layers 4, 7, ..., 31 of 32, counted from 0, reproduce
// its FLOPs table. 10 % is of the original prompt. LayerNorm and h = d / 4 follow DynamicViT, which the paper
// builds on. The file of predictors is the user's: file head of sdtp_predictor.cpp.
//
// Cost: 2 n (d h + 2 h) flops per stage, 0.4 % of a prefill in all.
// Source: Saliency-driven dynamic token pruning for large language models, arXiv 2504.04514.
#include "policies/sdtp.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "policies/presets.h"
#include "policies/stages.h"

namespace coppice {

SdtpPolicy::SdtpPolicy(SdtpConfig config, SdtpFile file)
    : config_(std::move(config)), file_(std::move(file)) {
  for (const int layer : config_.layers) COPPICE_CHECK(StageOf(file_.layers(), layer) >= 0);
}

SdtpStays StaysAt(const SdtpConfig& config, int stage, int64_t prompt_tokens,
                  std::span<const int32_t> positions) {
  const int64_t n = prompt_tokens;
  const auto rows = static_cast<int64_t>(positions.size());
  return {.keep = RoundShare(std::pow(config.r, stage + 1), n),  // (3)
          .first = RowsBelow(positions, config.first),
          // The last row stays even where local is 0.
          .last = std::max<int64_t>(1, rows - RowsBelow(positions, n - CeilShare(config.local, n)))};
}

LayerPoint SdtpPolicy::FirstChoice() const {
  return config_.layers.empty() || config_.r >= 1 ? kNoPoint : LayerPoint{config_.layers.front(), false};
}

TokenSet SdtpPolicy::BeforeLayer(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  const int stage = StageOf(config_.layers, seen.layer);
  if (stage < 0 || config_.r >= 1) return TokenSet::All(rows);
  const SdtpStays stays = StaysAt(config_, stage, seen.prompt_tokens, seen.positions);
  if (stays.All(rows)) return TokenSet::All(rows);
  const auto predictor = static_cast<size_t>(StageOf(file_.layers(), seen.layer));
  std::vector<float> score(static_cast<size_t>(rows));
  file_.predictors()[predictor].Score(seen.hidden, be, score);      // (1), (2)
  return BestRows(score, stays.keep, stays.first, stays.last, be);  // (4)
}

namespace {

std::vector<int> ReadStages(SpecReader& read, const MethodSpec& spec, const ModelShape& shape,
                            const SdtpFile& file) {
  const bool low = read.Choice("preset", {"file", "low"}) == "low";
  std::vector<int> layers = low ? SdtpLowLayers(shape) : file.layers();
  const auto written = spec.values.find("layers");
  const bool named = written != spec.values.end();
  const int count = static_cast<int>(named ? 0 : layers.size());
  const auto stages = static_cast<int>(read.Integer("stages", count, 1, shape.layers - 1));
  if (!named && !low && stages != count) layers = SdtpLayers(shape, stages);
  layers = read.Integers("layers", layers, 1, shape.layers - 1);
  if (spec.values.contains("stages") && static_cast<size_t>(stages) != layers.size()) {
    throw Error("--prune sdtp: stages={} but {} layers: {}", stages, layers.size(), fmt::join(layers, "/"));
  }
  for (size_t s = 0; s < layers.size(); ++s) {
    if (s > 0 && layers[s] <= layers[s - 1]) {
      throw Error("--prune sdtp: layers={} must ascend", fmt::join(layers, "/"));
    }
    if (StageOf(file.layers(), layers[s]) < 0) {
      throw Error("--prune sdtp: the file has no predictor for layer {}; it has {}", layers[s],
                  fmt::join(file.layers(), "/"));
    }
  }
  return layers;
}

MethodInstance MakeSdtp(const MethodSpec& spec, const MethodContext& context) {
  const ModelShape& shape = context.shape;
  SpecReader read(spec);
  const std::string path = read.File(
      "file",
      "SDTP needs predictors trained for this very model, in a safetensors file (docs/methods.md: format "
      "and training); none are published");
  SdtpFile file(path, shape);
  SdtpConfig config;
  config.layers = ReadStages(read, spec, shape, file);
  config.r = read.Number("r", file.r(), 1e-6, 1);
  config.first = read.Integer("first", file.first(), 0, kManyTokens);
  config.local = read.Number("local", file.local(), 0, 1);
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  made.settings = fmt::format("sdtp:file={},preset={},stages={},layers={},r={},first={},local={},min={}",
                              QuotedValue(path), read.Choice("preset", {"file", "low"}), config.layers.size(),
                              fmt::join(config.layers, "/"), config.r, config.first, config.local, minimum);
  made.reason = FirstReason({LengthReason(context, minimum), WindowReason(context)});
  if (made.reason.empty()) made.policy = std::make_unique<SdtpPolicy>(std::move(config), std::move(file));
  return made;
}

}  // namespace

MethodInfo SdtpMethod() {
  return {"sdtp",
          "drop tokens at many layers by small trained networks; they never return",
          "Saliency-driven dynamic token pruning for large language models, arXiv 2504.04514",
          kDropsRows,
          {{"file", "none: must be given", "a safetensors file", "predictors trained for this model", true},
           {"preset", "file", "file, low", "the file's stages, or the five of SDTP-low"},
           {"stages", "the file's", "1 to L - 1", "how many, evenly from layer L / 8 to the last"},
           {"layers", "the file's", "layers of the file", "tokens leave before these layers"},
           {"r", "the file's", "0 to 1", "each stage leaves this share of the one before"},
           {"first", "the file's", "0 up", "positions below this always stay"},
           {"local", "the file's", "0 to 1", "share of the prompt, at its end, that always stays"},
           {"min", "1024", "0 up", "shorter prompts run dense"}},
          &MakeSdtp};
}

}  // namespace coppice
