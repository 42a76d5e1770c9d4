#include "apps/cli/several_models.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <set>
#include <utility>

#include "base/available_memory.h"
#include "base/error.h"
#include "comm/comm.h"
#include "engine/open_model.h"
#include "model/sequence.h"

namespace coppice::cli {

namespace {

namespace fs = std::filesystem;

struct NamedPath {
  std::string name;
  std::string path;
};

// A model of several files is opened through its first.
bool IsLaterSplit(const std::string& file) {
  static const std::regex split("-([0-9]{5})-of-[0-9]{5}[.]gguf$");
  std::smatch match;
  return std::regex_search(file, match, split) && match[1] != "00001";
}

std::vector<NamedPath> ModelsIn(const std::string& folder) {
  std::error_code error;
  std::vector<NamedPath> models;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    const bool is_gguf =
        entry.path().extension() == ".gguf" && !IsLaterSplit(file) && !file.starts_with("mmproj");
    if (is_gguf || fs::exists(entry.path() / "config.json", error))
      models.push_back({is_gguf ? entry.path().stem().string() : file, entry.path().string()});
  }
  if (error) throw Error("--models-dir {}: {}", folder, error.message());
  if (models.empty())
    throw Error("--models-dir {}: has no GGUF file, and no folder with a config.json", folder);
  std::ranges::sort(models, {}, &NamedPath::name);
  return models;
}

std::vector<NamedPath> AllModels(const SeveralModels& several) {
  std::vector<NamedPath> models;
  if (several.aliases.size() > several.paths.size())
    throw Error("--alias {}: there is no --model for it", several.aliases.back());
  for (size_t i = 0; i < several.paths.size(); ++i) {
    const std::string& path = several.paths[i];
    models.push_back(
        {i < several.aliases.size() ? several.aliases[i] : fs::path(path).stem().string(), path});
  }
  if (!several.folder.empty()) std::ranges::move(ModelsIn(several.folder), std::back_inserter(models));
  std::set<std::string> names;
  for (const NamedPath& model : models) {
    if (!names.insert(model.name).second)
      throw Error("two models have the name {}: name each --model with an --alias, in their order",
                  model.name);
  }
  return models;
}

// Weights, the model's share of the caches, and the keys and values of one sequence of the whole context.
int64_t NeededBytes(const std::string& path, const ServeOptions& o) {
  const OpenedModel opened = OpenModel(path);
  const ModelShape& shape = opened.config.shape;
  const EngineOptions& engine = o.model.engine;
  const int64_t context = engine.context > 0 ? engine.context : opened.config.context;
  int64_t weights = 0;
  for (const StoredTensor& tensor : opened.store->tensors())
    weights += tensor.view.rows * BytesOf(tensor.view.dtype, tensor.view.cols);
  return weights + context * TokenBytes(shape, engine.cache_type.value_or(DType::kBF16)) +
         shape.StateBytes() + ((o.cache_mib + o.packed_mib.value_or(0)) << 20);
}

// A model's own options: its share of the caches, and its part of the folder for them.
ServeOptions OptionsOf(const NamedPath& model, int64_t models, const ServeOptions& o) {
  ServeOptions own = o;
  own.model.model = model.path;
  own.alias = model.name;
  own.disk_mib = std::max<int64_t>(1, o.disk_mib / models);
  if (o.doc_cache.empty()) return own;
  std::string folder = model.name;
  std::ranges::replace(folder, '/', '_');
  own.doc_cache = (fs::path(o.doc_cache) / folder).string();
  fs::create_directories(own.doc_cache);
  return own;
}

}  // namespace

bool AreSeveral(const SeveralModels& several, ServeOptions& o) {
  if (several.paths.empty() && several.folder.empty()) throw Error("--model or --models-dir is required");
  if (several.paths.size() > 1 || !several.folder.empty()) return true;
  if (several.aliases.size() > 1) throw Error("--alias {}: there is one --model", several.aliases.back());
  o.model.model = several.paths.front();
  if (!several.aliases.empty()) o.alias = several.aliases.front();
  return false;
}

std::vector<ShelvedModel> ShelvedModels(const SeveralModels& several, const ServeOptions& options,
                                        const ServerOptions& server) {
  if (!options.events.endpoint.empty())
    throw Error("--kv-events {}: goes with one --model", options.events.endpoint);
  if (World().size() > 1) throw Error("--models-dir, and --model more than once, go with one process");
  const std::vector<NamedPath> all = AllModels(several);
  ServeOptions shared = options;
  shared.cache_mib = options.cache_mib / several.most;
  shared.packed_mib = (PackedBytes(options) >> 20) / several.most;
  std::vector<ShelvedModel> models;
  for (const NamedPath& model : all) {
    const ServeOptions own = OptionsOf(model, std::ssize(all), shared);
    ServerOptions own_server = server;
    own_server.alias = model.name;
    own_server.access_log.clear();  // the address has it,
    own_server.documents = false;   // and reads files
    models.push_back({.name = model.name,
                      .bytes = [own] { return NeededBytes(own.model.model, own); },
                      .load = [own, own_server]() -> std::unique_ptr<ModelService> {
                        auto service = std::make_unique<Server>(own_server);
                        service->Serve(LoadEngine(own.model.model, MakeEngineOptions(own, nullptr)));
                        return service;
                      }});
  }
  return models;
}

ShelfLimits LimitsOf(const SeveralModels& several) {
  const int64_t available = AvailableMemoryBytes();
  return {.models = several.most,
          .bytes = several.memory_mib ? *several.memory_mib << 20 : available / 4 * 3,
          .idle = std::chrono::milliseconds(static_cast<int64_t>(several.idle_seconds * 1000))};
}

}  // namespace coppice::cli
