// A Hugging Face model folder: config.json and safetensors, in one file or in shards with an index.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/mmap.h"
#include "formats/tensor_store.h"
#include "tensor/tensor.h"

namespace coppice {

class HfFolder final : public TensorStore {
 public:
  // Opens `path`/config.json and `path`/model.safetensors or, if that is missing, the shards that
  // model.safetensors.index.json names. Loads F32, F16, BF16 and MXFP4 (formats/hf_mxfp4.h); tensors of other
  // types (masks, positions) are validated and skipped. Every view is aligned for its element type. Throws
  // Error, naming the file and the cause.
  static std::unique_ptr<HfFolder> Open(const std::string& path);

  const nlohmann::json& config() const { return config_; }

  const std::string& path() const override { return path_; }
  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const StoredTensor* Find(std::string_view name) const override;

 private:
  struct Contents;
  HfFolder(std::string path, nlohmann::json config, Contents contents);
  std::string path_;
  nlohmann::json config_;
  std::vector<MappedFile> files_;
  std::vector<Tensor> copies_;  // of tensors that are not aligned in their file, and of those in MXFP4
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace coppice
