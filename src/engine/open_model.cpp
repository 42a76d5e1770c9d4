#include "engine/open_model.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/hf_folder.h"

namespace coppice {

namespace {

std::shared_ptr<const HfFolder> OpenFolder(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) throw Error("{}: no such file or folder", path);
  if (!std::filesystem::is_directory(path, ignored)) {
    throw Error("{}: neither a GGUF file nor a Hugging Face folder", path);
  }
  return HfFolder::Open(path);
}

}  // namespace

void CheckModelFiles(const std::string& path) {
  if (LooksLikeGguf(path)) {
    ConfigFromGguf(GgufFile::Open(path)->metadata());
  } else {
    ConfigFromHf(OpenFolder(path)->config(), path);
  }
}

OpenedModel OpenModel(const std::string& path) {
  if (LooksLikeGguf(path)) {
    std::shared_ptr<const GgufFile> file = GgufFile::Open(path);
    std::string format = fmt::format("GGUF v{}", file->version());
    ModelConfig config = ConfigFromGguf(file->metadata());
    std::unique_ptr<Tokenizer> tokenizer = Tokenizer::FromGguf(file->metadata());
    return {std::move(file), std::move(format), std::move(config), std::move(tokenizer)};
  }
  std::shared_ptr<const HfFolder> folder = OpenFolder(path);
  ModelConfig config = ConfigFromHf(folder->config(), path);
  return {std::move(folder), "Hugging Face folder", std::move(config), Tokenizer::FromHfFolder(path)};
}

Transformer MakeTransformer(std::shared_ptr<const TensorStore> store, ModelConfig config, Backend* backend) {
  std::shared_ptr<const Weights> weights = Weights::Load(std::move(store), config);
  if (backend == nullptr) return {std::move(config), std::move(weights)};
  for (const LayerShape& layer : config.shape.layers) {
    backend->CheckNeeds(
        {.head_dim = layer.attends() ? layer.head_dim : config.shape.FirstAttending().head_dim,
         .activation = ActivationOf(config.ffn),
         .embedding_scale = static_cast<float>(config.embedding_scale),
         .query_temperature = config.query_temperature.beta > 0,
         .mixture = layer.mixture.experts > 0,
         .sinks = config.sinks,
         .output_gate = layer.output_gate,
         .recurrence = layer.has_state()});
  }
  weights = Weights::Place(std::move(weights), *backend);
  return {std::move(config), std::move(weights)};
}

}  // namespace coppice
