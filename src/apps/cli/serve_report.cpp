#include "apps/cli/serve_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/cli/doctor_rates.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "engine/calibration.h"
#include "formats/printable.h"
#include "kv/cold_store.h"

namespace coppice::cli {

namespace {

std::string ModelText(const Engine& engine, const std::string& alias) {
  const ModelShape& shape = engine.model().config().shape;
  const Weights& weights = engine.model().weights();
  const TensorView main = MainWeight(weights);
  std::string text = fmt::format("{}: {}{}, {:.2f} M parameters", alias, shape.architecture,
                                 shape.name.empty() ? "" : " (" + Printable(shape.name) + ")",
                                 static_cast<double>(weights.parameters) / 1e6);
  if (weights.active_parameters < weights.parameters)
    text += fmt::format(", {:.2f} M for a token", static_cast<double>(weights.active_parameters) / 1e6);
  if (!main.empty()) text += fmt::format(", mostly {}", Info(main.dtype).name);
  return text + fmt::format(", {} of weights", BytesText(weights.bytes));
}

std::string ContextText(const Engine& engine, int64_t slots) {
  const int64_t trained = engine.model().config().context;
  std::string text = fmt::format("{} tokens", engine.context());
  if (trained > 0 && trained != engine.context()) text += fmt::format(" (trained for {})", trained);
  const int64_t bytes = TokenBytes(engine.model().config().shape, engine.backend().cache_dtype());
  return text + fmt::format(", {} sequence{} at once, {} a token in {}", slots, slots == 1 ? "" : "s",
                            BytesText(bytes), Info(engine.backend().cache_dtype()).name);
}

std::string ComputeText(const Engine& engine) {
  const Backend& backend = engine.backend();
  return fmt::format("{} thread{}, {} ({})", backend.threads(), backend.threads() == 1 ? "" : "s",
                     backend.isa(), backend.name());
}

std::string CacheText(Engine& engine, const ServeOptions& o) {
  DocumentCache* documents = engine.documents();
  if (documents == nullptr)
    return o.cache_mib > 0 ? "none: this model's keys depend on the prompt's length" : "none: --cache-ram 0";
  std::string text = "up to " + BytesText(documents->memory_limit());
  if (o.doc_cache.empty()) return text + " in memory";
  return text + fmt::format(" in memory, and {} of files in {}", BytesText(o.disk_mib << 20), o.doc_cache);
}

std::string PackedText(const Engine& engine, int64_t packed_bytes) {
  if (engine.backend().memory() != nullptr) return "none: the weights are on the device";
  return packed_bytes == 0 ? "none: every prompt packs them anew" : "up to " + BytesText(packed_bytes);
}

std::string ColdText(const Engine& engine, const ServeOptions& o) {
  if (engine.backend().memory() != nullptr) return "host memory, for methods that offload keys and values";
  return "files in " + ColdFolderOf(o.model.engine.cold) + ", for methods that offload keys and values";
}

// For another default: what requests that send auto would get.
std::string AutoText(Engine& engine, const ServeOptions& o) {
  if (AutoLoss(o.prune)) return "";
  const PromptStates states = engine.documents() != nullptr ? PromptStates::kKept : PromptStates::kDiscarded;
  try {
    const ResolvedPrune resolved = engine.ResolvePrune("auto", engine.context(), states);
    return fmt::format("; auto, at {} tokens: {} ({})", engine.context(), resolved.spec, resolved.reason);
  } catch (const Error& error) {
    return fmt::format("; auto: {}", error.what());
  }
}

}  // namespace

std::string ReadyText(Engine& engine, const ServeOptions& o, int64_t packed_bytes) {
  const std::pair<const char*, std::string> lines[] = {
      {"model", ModelText(engine, AliasOf(o))},
      {"context", ContextText(engine, o.server.scheduler.slots)},
      {"computes", ComputeText(engine)},
      {"prefix cache", CacheText(engine, o)},
      {"packed weights", PackedText(engine, packed_bytes)},
      {"cold tier", ColdText(engine, o)},
      {"prune", o.prune + AutoText(engine, o)}};
  std::string text;
  for (const auto& [name, what] : lines) text += fmt::format("  {:<15} {}\n", name, what);
  return text;
}

}  // namespace coppice::cli
