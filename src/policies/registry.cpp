#include "policies/registry.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "policies/ftp.h"
#include "policies/presets.h"
#include "policies/sliminfer.h"

namespace coppice {

namespace {

constexpr int64_t kManyTokens = int64_t{1} << 24;

// Why a method that scores with the last queries cannot act here, or "". In a sliding-window layer those
// queries give nothing to tokens outside the window, so their scores say nothing about what the rest of the
// prompt needs.
std::string WindowReason(const ModelShape& shape, int64_t tokens) {
  if (shape.window == 0 || tokens <= shape.window) return "";
  return fmt::format("its scores end at the sliding window of {} tokens", shape.window);
}

std::string LengthReason(int64_t tokens, int64_t minimum) {
  if (tokens >= minimum) return "";
  return fmt::format("{} prompt tokens are below its break-even of {}", tokens, minimum);
}

MethodInstance MakeFtp(const MethodSpec& spec, const ModelShape& shape, int64_t tokens) {
  SpecReader read(spec);
  FtpConfig config;
  config.eta = read.Number("eta", FtpEta(shape), 1e-6, 1);
  config.dense = static_cast<int>(read.Integer("dense", FtpDenseLayers(shape), 0, shape.layers));
  config.first = static_cast<int>(read.Integer("first", config.first, 0, kManyTokens));
  config.num_queries = static_cast<int>(read.Integer("last", config.num_queries, 1, 4096));
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  made.settings = fmt::format("ftp:eta={},dense={},first={},last={},min={}", config.eta, config.dense,
                              config.first, config.num_queries, minimum);
  made.reason = LengthReason(tokens, minimum);
  if (made.reason.empty()) made.reason = WindowReason(shape, tokens);
  if (made.reason.empty()) made.policy = std::make_unique<FtpPolicy>(config);
  return made;
}

// The budget of stage s. A value above 1 counts tokens; values up to 1 are shares of the prompt, or, where
// one value stands for all stages, of what the stage before left (the paper's needle test: "prune 50 % at 10,
// 20, 30").
std::vector<int64_t> Budgets(const std::vector<double>& keep, size_t stages, int64_t tokens) {
  if (keep.size() != 1 && keep.size() != stages) {
    throw Error("--prune sliminfer: keep has {} values for {} layers", keep.size(), stages);
  }
  std::vector<int64_t> budgets;
  double share = 1;
  double before = std::numeric_limits<double>::infinity();
  for (size_t s = 0; s < stages; ++s) {
    const double value = keep[keep.size() == 1 ? 0 : s];
    share = keep.size() == 1 ? share * value : value;
    const double count = value > 1 ? value : share * static_cast<double>(tokens);
    if (count > before) {
      throw Error(
          "--prune sliminfer: keep={} grows to {:g} of {} tokens; later stages choose among what is left",
          fmt::join(keep, "/"), count, tokens);
    }
    before = count;
    budgets.push_back(static_cast<int64_t>(std::ceil(count)));
  }
  return budgets;
}

MethodInstance MakeSlimInfer(const MethodSpec& spec, const ModelShape& shape, int64_t tokens) {
  SpecReader read(spec);
  SlimInferConfig config;
  config.layers = read.Integers("layers", StageLayers(shape), 1, shape.layers - 1);
  for (size_t s = 1; s < config.layers.size(); ++s) {
    if (config.layers[s] <= config.layers[s - 1]) {
      throw Error("--prune sliminfer: layers={} must ascend", fmt::join(config.layers, "/"));
    }
  }
  config.block = static_cast<int>(read.Integer("block", config.block, 1, 4096));
  config.unit = static_cast<int>(read.Integer("unit", std::min(config.unit, config.block), 1, 4096));
  if (config.block % config.unit != 0) {
    throw Error("--prune sliminfer: unit={} does not divide block={}", config.unit, config.block);
  }
  config.window = static_cast<int>(read.Integer("window", config.window, 1, 4096));
  const std::vector<double> keep = read.Numbers("keep", {}, 1e-6, static_cast<double>(kManyTokens));
  config.keep = keep.empty() ? SlimInferBudgets(shape, tokens) : Budgets(keep, config.layers.size(), tokens);
  if (keep.empty() && config.keep.size() != config.layers.size()) {
    throw Error("--prune sliminfer: layers={} needs keep, one value per layer",
                fmt::join(config.layers, "/"));
  }
  const std::string revive = read.Choice("revive", {"none"});
  const int64_t minimum = read.Integer("min", 4096, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  made.settings = fmt::format("sliminfer:layers={},keep={},block={},unit={},window={},revive={},min={}",
                              fmt::join(config.layers, "/"), fmt::join(config.keep, "/"), config.block,
                              config.unit, config.window, revive, minimum);
  if (config.layers.empty()) made.reason = fmt::format("{} layers leave no stage to prune at", shape.layers);
  if (made.reason.empty()) made.reason = LengthReason(tokens, minimum);
  if (made.reason.empty() && tokens <= config.keep.front()) {
    made.reason = fmt::format("{} prompt tokens fit its first budget of {}", tokens, config.keep.front());
  }
  if (made.reason.empty()) made.reason = WindowReason(shape, tokens);
  if (made.reason.empty()) made.policy = std::make_unique<SlimInferPolicy>(std::move(config));
  return made;
}

const std::vector<MethodInfo>& MethodList() {
  static const std::vector<MethodInfo> methods = {
      {"ftp",
       "skip the FFN for tokens that the prompt's end does not look at; the cache stays whole",
       "FTP: efficient prefilling for long-context LLM inference via FFN token pruning, openreview "
       "fL8Zp8o6RL",
       {{"eta", "by model: 0.90 to 0.95", "0 to 1",
         "share of the middle's attention mass that runs the FFN; 1 is dense"},
        {"dense", "10 where L >= 28, else round(10 L / 32)", "0 to L", "layers below this one stay dense"},
        {"first", "100", "0 up", "positions below this always run"},
        {"last", "50", "1 to 4096", "last tokens: they score the others and always run"},
        {"min", "1024", "0 up", "shorter prompts run dense"}},
       &MakeFtp},
      {"sliminfer",
       "drop blocks of hidden states at a few layers; later layers never see them",
       "SlimInfer: accelerating long-context LLM inference via dynamic token pruning, arXiv 2508.06447",
       {{"layers", "round(L {10,20,30} / 32)", "1 to L - 1", "from these layers on fewer tokens remain"},
        {"keep", "by model, else 1/4, 1/8, 1/16 of the prompt, at least 2048", "tokens, or shares up to 1",
         "tokens that remain at each; one share: of what is left"},
        {"block", "64", "1 to 4096", "tokens per block"},
        {"unit", "8", "1 to 4096, divides block", "tokens whose mean key scores together"},
        {"window", "4", "1 to 4096", "last queries, averaged, that score"},
        {"revive", "none", "none", "whether dropped blocks can come back while generating: not yet"},
        {"min", "4096", "0 up", "shorter prompts run dense"}},
       &MakeSlimInfer},
  };
  return methods;
}

const MethodInfo& FindMethod(const std::string& name) {
  std::string names;
  for (const MethodInfo& method : MethodList()) {
    if (method.name == name) return method;
    names += fmt::format(", {}", method.name);
  }
  throw Error("--prune: no method '{}'; there are none{}", name, names);
}

}  // namespace

std::span<const MethodInfo> Methods() { return MethodList(); }

PruneChoice MakePolicy(std::string_view spec, const ModelShape& shape, int64_t tokens,
                       const Protection& protection) {
  PruneChoice choice;
  std::vector<std::unique_ptr<TokenPolicy>> policies;
  for (const MethodSpec& method : ParseSpec(spec)) {
    MethodInstance made = FindMethod(method.name).make(method, shape, tokens);
    choice.spec += (choice.spec.empty() ? "" : "+") + made.settings;
    if (made.policy) {
      policies.push_back(std::move(made.policy));
    } else {
      choice.reason += fmt::format("{}{}: {}", choice.reason.empty() ? "" : "; ", method.name, made.reason);
    }
  }
  if (choice.spec.empty()) choice.spec = "none";
  choice.active = !policies.empty();
  choice.policy = Compose(std::move(policies), protection);
  return choice;
}

}  // namespace coppice
