#include "apps/cli/doctor_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/cli/doctor_rates.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "engine/calibration.h"
#include "engine/dry_run.h"
#include "formats/printable.h"
#include "model/sequence.h"
#include "model/workspace.h"

namespace coppice::cli {

namespace {

constexpr int64_t kLengths[] = {4096, 32768};  // tokens of the prompts that are expected
constexpr int64_t kDefaultTile = 768;          // EngineOptions::tile_rows

std::string ShortTime(double seconds) {
  return seconds < 10 ? fmt::format("{:.2g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

// What a dense run of `tokens` tokens takes besides the weights.
int64_t RunBytesOf(const ModelShape& shape, int64_t tokens) {
  return tokens * TokenBytes(shape, DType::kBF16) + shape.StateBytes() +
         Workspace::Bytes(shape, tokens, kDefaultTile);
}

// The longest prompt that fits, in steps of 1,024; 0: none does.
int64_t LongestThatFits(const ModelShape& shape, int64_t context, int64_t bytes) {
  int64_t longest = 0;
  for (int64_t step = int64_t{1} << 24; step >= 1024; step /= 2) {
    const int64_t tokens = longest + step;
    if (tokens <= context && RunBytesOf(shape, tokens) <= bytes) longest = tokens;
  }
  return longest;
}

Finding ModelFinding(const DoctorModel& m) {
  const ModelShape& shape = m.opened.config.shape;
  const TensorView main = MainWeight(*m.weights);
  const std::string type = main.empty() ? "none" : std::string(Info(main.dtype).name);
  const double millions = static_cast<double>(m.weights->parameters) / 1e6;
  return {
      .key = "model",
      .what = "model",
      .finding = fmt::format("{}{}, {:.2f} M parameters, mostly {}, {} of weights, context {}",
                             shape.architecture, shape.name.empty() ? "" : " (" + Printable(shape.name) + ")",
                             millions, type, BytesText(m.weights->bytes), m.opened.config.context),
      .facts = {{"file", m.path},
                {"format", m.opened.format},
                {"architecture", shape.architecture},
                {"parameters", m.weights->parameters},
                {"type", type},
                {"weight_bytes", m.weights->bytes},
                {"context", m.opened.config.context}}};
}

Finding FitFinding(const DoctorModel& m, int64_t usable) {
  const ModelShape& shape = m.opened.config.shape;
  const int64_t context = m.opened.config.context;
  const int64_t weights = m.weights->bytes;
  const int64_t run = RunBytesOf(shape, context);
  Finding f{.key = "fit",
            .what = "fits",
            .finding = "unknown: the system does not say how much memory is available",
            .facts = {{"weight_bytes", weights},
                      {"context_bytes", run},
                      {"usable_bytes", usable},
                      {"fits", nullptr},
                      {"longest_prompt", nullptr}}};
  if (usable == 0) return f;
  const bool fits = weights + run <= usable;
  f.facts["fits"] = fits;
  f.finding =
      fmt::format("{}: {} of weights and {} for a dense prompt of {} tokens, of {}", fits ? "yes" : "no",
                  BytesText(weights), BytesText(run), context, BytesText(usable));
  if (fits) return f;
  const int64_t longest = LongestThatFits(shape, context, usable - weights);
  f.facts["longest_prompt"] = longest;
  if (weights > usable)
    f.hints.push_back("every answer would read weights from the disk again: take a smaller type or model");
  else if (longest > 0)
    f.hints.push_back(fmt::format("prompts of up to {} tokens fit: -c {}", longest, longest));
  else
    f.hints.push_back("not even 1,024 tokens fit beside the weights: take a smaller type or model");
  return f;
}

struct AutoChoice {
  ResolvedPrune resolved;
  std::string error;  // why the calibration cannot be used
};
AutoChoice ChooseAuto(const DoctorModel& m, int64_t tokens) {
  try {
    Calibrations calibrations(*m.opened.store, m.opened.config);
    return {calibrations.Resolve("auto", tokens, PromptStates::kDiscarded), ""};
  } catch (const Error& error) {
    return {{"none", ""}, error.what()};
  }
}

Finding CalibrationFinding(const DoctorModel& m) {
  const AutoChoice choice = ChooseAuto(m, kLengths[0]);
  Finding f{.key = "calibration",
            .what = "calibration",
            .finding = choice.error.empty() ? choice.resolved.reason : choice.error,
            .facts = {{"prune", choice.resolved.spec}}};
  if (!choice.error.empty())
    f.hints.push_back("--prune auto fails until `coppice tune` writes the file anew, or it is gone");
  return f;
}

// What a prefill's parts cost.
struct PartRates {
  ProductRates products;
  double attention = 0;  // FLOPs a second; 0: no layer attends
};

nlohmann::ordered_json ExpectedRun(const DoctorModel& m, const std::string& prune, int64_t tokens,
                                   const PartRates& rates, Backend& backend) {
  const std::vector<int32_t> prompt(static_cast<size_t>(tokens), 0);
  const DryRun run = PlanRun(m.opened.config, prompt, prune, backend);
  const PrefillFlops parts = run.ledger.prefill_parts();
  const ModelShape& shape = m.opened.config.shape;
  const auto packed = static_cast<double>(m.weights->parameters - shape.vocab * shape.hidden);
  const double products = (parts.products + parts.single_rows) / rates.products.flops;
  const double attention = rates.attention > 0 ? parts.attention / rates.attention : 0;
  const double packing = std::max(packed, 0.0) / rates.products.packed_values;
  return {{"prune", run.active || prune == "none" ? run.spec : "none"},
          {"seconds", products + attention + packing},
          {"products_seconds", products},
          {"attention_seconds", attention},
          {"packing_seconds", packing}};
}

std::string ExpectedText(const nlohmann::ordered_json& run) {
  const auto of = [&](const char* key) { return ShortTime(run[key].get<double>()); };
  return fmt::format("{} (products {}, attention {}, packing {})", of("seconds"), of("products_seconds"),
                     of("attention_seconds"), of("packing_seconds"));
}

Finding TtftFinding(const DoctorModel& m, int64_t tokens, const PartRates& rates, Backend& backend) {
  const int64_t context = m.opened.config.context;
  Finding f{.key = fmt::format("expected_ttft_{}", tokens),
            .what = fmt::format("TTFT at {}", tokens),
            .finding = "",
            .facts = {{"tokens", tokens}, {"beyond_context", tokens > context}}};
  f.facts["dense"] = ExpectedRun(m, "none", tokens, rates, backend);
  f.finding = "dense " + ExpectedText(f.facts["dense"]);
  const AutoChoice choice = ChooseAuto(m, tokens);
  const std::string by = choice.resolved.spec != "none" ? "auto" : "coppice";
  f.facts["pruned_by"] = by;
  f.facts["pruned"] = nullptr;
  try {
    const std::string& spec = by == "auto" ? choice.resolved.spec : by;
    f.facts["pruned"] = ExpectedRun(m, spec, tokens, rates, backend);
    f.finding += fmt::format("; --prune {} {}", by, ExpectedText(f.facts["pruned"]));
  } catch (const Error& error) {
    f.finding += fmt::format("; --prune {} cannot run: {}", by, error.what());
  }
  if (tokens > context) f.finding += fmt::format("; beyond the model's context of {}", context);
  return f;
}

// A step reads each weight that its token meets, from memory or as fast as the kernels decode it.
Finding DecodeFinding(const DoctorModel& m, const ProductRates& rates, double read_rate) {
  const ModelShape& shape = m.opened.config.shape;
  const Weights& w = *m.weights;
  const auto all = static_cast<double>(w.parameters);
  const double table = m.opened.config.tied_head ? 0 : static_cast<double>(shape.vocab * shape.hidden);
  const double values = std::max(static_cast<double>(w.active_parameters) - table, 1.0);
  const double bytes = static_cast<double>(w.bytes) * values / std::max(all, 1.0);
  const double seconds = std::max(bytes / read_rate, values / rates.decoded_values);
  return {.key = "expected_decode",
          .what = "decoding",
          .finding = fmt::format("up to {:.3g} tokens/s after a short prompt: {} a token, {}", 1 / seconds,
                                 BytesText(static_cast<int64_t>(bytes)),
                                 bytes / read_rate > values / rates.decoded_values ? "limited by memory"
                                                                                   : "limited by arithmetic"),
          .facts = {{"tokens_per_second", 1 / seconds},
                    {"bytes_per_token", bytes},
                    {"memory_tokens_per_second", read_rate / bytes},
                    {"arithmetic_tokens_per_second", rates.decoded_values / values}}};
}

}  // namespace

DoctorModel::DoctorModel(const std::string& name) : path(name), opened(OpenModel(name)) {
  weights = Weights::Load(opened.store, opened.config);
}

std::vector<Finding> ModelFindings(const DoctorModel& model, int64_t usable_bytes) {
  return {ModelFinding(model), FitFinding(model, usable_bytes), CalibrationFinding(model)};
}

std::vector<Finding> ExpectedFindings(const DoctorModel& model, Backend& backend, double read_rate) {
  const TensorView main = MainWeight(*model.weights);
  if (main.empty()) return {};
  PartRates rates{MeasureProducts(backend, main, 0.6),
                  MeasureAttention(backend, model.opened.config, *model.weights, 0.3)};
  std::vector<Finding> findings = {
      {.key = "model_rates",
       .what = "its rates",
       .finding = fmt::format("products in {} {:.1f} GFLOP/s, attention {:.1f} GFLOP/s",
                              Info(main.dtype).name, rates.products.flops / 1e9, rates.attention / 1e9),
       .facts = {{"product_flops_per_second", rates.products.flops},
                 {"attention_flops_per_second", rates.attention}}}};
  for (const int64_t tokens : kLengths) findings.push_back(TtftFinding(model, tokens, rates, backend));
  findings.push_back(DecodeFinding(model, rates.products, read_rate));
  findings.push_back({.key = "estimate",
                      .what = "",
                      .finding =
                          "TTFT and decoding are estimates, expected from the measured rates; `coppice "
                          "bench -m MODEL` measures them",
                      .facts = {{"estimated", true}}});
  return findings;
}

}  // namespace coppice::cli
