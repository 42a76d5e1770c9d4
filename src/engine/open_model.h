// Opens a model's files, for Engine::Load and `coppice inspect`.
#pragma once

#include <memory>
#include <string>

#include "formats/tensor_store.h"
#include "model/config.h"
#include "model/transformer.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

struct OpenedModel {
  std::shared_ptr<const TensorStore> store;
  std::string format;  // "GGUF v3", "Hugging Face folder"
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;  // null if the files have none
};

// `path` is a GGUF file (the first of its splits) or a Hugging Face folder. Throws Error, naming the file and
// the cause.
OpenedModel OpenModel(const std::string& path);

// Throws Error as OpenModel() does for what is no model: nothing there, another format, a damaged head, an
// unknown architecture. Reads heads and configurations, neither weights nor vocabularies.
void CheckModelFiles(const std::string& path);

// Loads the weights. The model's files stay open as long as the result needs them.
// With a backend, the weights are where it reads them fastest, and it must outlive the result.
Transformer MakeTransformer(std::shared_ptr<const TensorStore> store, ModelConfig config,
                            Backend* backend = nullptr);

}  // namespace coppice
