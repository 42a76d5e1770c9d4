#include "formats/hf_folder.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "formats/hf_mxfp4.h"
#include "formats/json.h"
#include "formats/printable.h"
#include "formats/safetensors.h"

namespace coppice {
namespace {

using nlohmann::json;

// Shards must be in the folder of their index: a name with a path could read any of the user's files.
bool IsPlainName(const std::string& name) {
  constexpr std::string_view kForbidden("/\\\0", 3);
  return !name.empty() && name != "." && name != ".." && name.find_first_of(kForbidden) == std::string::npos;
}

// Maps tensor names to shard names.
std::map<std::string, std::string> ReadIndex(const std::string& path) {
  const json index = ReadJsonFile(path);
  const auto found = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || found == index.end() || !found->is_object() || found->empty()) {
    throw Error("[safetensors] {}: no weight_map", path);
  }
  std::map<std::string, std::string> shards;
  for (const auto& [name, value] : found->items()) {
    if (!value.is_string()) {
      throw Error("[safetensors] {}: tensor '{}': its file is not a string", path, Printable(name));
    }
    const auto& file = value.get_ref<const std::string&>();
    if (!IsPlainName(file)) {
      throw Error("[safetensors] {}: tensor '{}': '{}' is not a plain file name", path, Printable(name),
                  Printable(file));
    }
    shards.emplace(name, file);
  }
  return shards;
}

}  // namespace

// The contents of a folder, collected file by file.
struct HfFolder::Contents {
  std::vector<MappedFile> files;
  std::vector<StoredTensor> tensors;
  std::vector<Tensor> copies;
  std::vector<ByteTensor> bytes;
  std::map<std::string, std::string> home;  // file of each tensor, including skipped ones

  void Read(const std::string& path) {
    files.emplace_back(path);
    ParsedSafetensors parsed = ParseSafetensors(files.back().bytes(), path);
    for (const std::string& name : parsed.skipped) Enter(name, path);
    for (StoredTensor& tensor : parsed.tensors) {
      Enter(tensor.name, path);
      tensors.push_back(std::move(tensor));
    }
    std::ranges::move(parsed.copies, std::back_inserter(copies));
    std::ranges::move(parsed.bytes, std::back_inserter(bytes));
  }

  void JoinBytes(const std::string& path) {
    for (StoredTensor& tensor : JoinMxfp4(bytes, path, copies)) {
      Enter(tensor.name, path);
      tensors.push_back(std::move(tensor));
    }
  }

  void Enter(const std::string& name, const std::string& path) {
    if (const auto [it, fresh] = home.emplace(name, path); !fresh) {
      throw Error("[safetensors] {}: tensor '{}' is in {} too", path, Printable(name), it->second);
    }
  }
};

HfFolder::HfFolder(std::string path, json config, Contents contents)
    : path_(std::move(path)),
      config_(std::move(config)),
      files_(std::move(contents.files)),
      copies_(std::move(contents.copies)),
      tensors_(std::move(contents.tensors)) {
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const StoredTensor* HfFolder::Find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

std::unique_ptr<HfFolder> HfFolder::Open(const std::string& path) {
  const std::filesystem::path folder(path);
  const std::string config_path = (folder / "config.json").string();
  json config = ReadPythonJsonFile(config_path);
  if (!config.is_object()) throw Error("[config] {}: not an object", config_path);

  Contents contents;
  const std::string whole = (folder / "model.safetensors").string();
  const std::string index_path = (folder / "model.safetensors.index.json").string();
  std::error_code ignored;  // opening an inaccessible file fails again, with the cause
  if (std::filesystem::exists(whole, ignored) || !std::filesystem::exists(index_path, ignored)) {
    contents.Read(whole);
  } else {
    const auto shard_of = ReadIndex(index_path);
    std::set<std::string> shards;
    for (const auto& [name, shard] : shard_of) shards.insert(shard);
    if (shards.size() > static_cast<size_t>(limits::kMaxShards)) {
      throw Error("[safetensors] {}: {} files, the limit is {}", index_path, shards.size(),
                  limits::kMaxShards);
    }
    for (const std::string& shard : shards) contents.Read((folder / shard).string());
    for (const auto& [name, shard] : shard_of) {
      const auto it = contents.home.find(name);
      const std::string expected = (folder / shard).string();
      if (it == contents.home.end() || it->second != expected) {
        throw Error("[safetensors] {}: tensor '{}' is not in {}", index_path, Printable(name), expected);
      }
    }
  }
  contents.JoinBytes(path);
  return std::unique_ptr<HfFolder>(new HfFolder(path, std::move(config), std::move(contents)));
}

}  // namespace coppice
