#include "formats/gguf.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "formats/gguf_parse.h"
#include "formats/printable.h"

namespace coppice {
namespace {

const GgufValue* FindValue(const GgufMetadata& metadata, std::string_view key) {
  const auto it = metadata.values().find(key);
  return it == metadata.values().end() ? nullptr : &it->second;
}

[[noreturn]] void FailType(const GgufMetadata& metadata, std::string_view key, std::string_view expected) {
  throw Error("[gguf] {}: key '{}' is not {}", metadata.path(), Printable(key), expected);
}

// The array as a vector of T; null if the value is anything else.
template <typename T>
const std::vector<T>* ArrayOf(const GgufValue& value) {
  const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value);
  return array == nullptr ? nullptr : std::get_if<std::vector<T>>(&(*array)->items);
}

}  // namespace

size_t GgufArray::size() const {
  return std::visit([](const auto& list) { return list.size(); }, items);
}

GgufMetadata::GgufMetadata(std::string path, std::map<std::string, GgufValue, std::less<>> values)
    : path_(std::move(path)), values_(std::move(values)) {}

std::optional<std::string> GgufMetadata::String(std::string_view key) const {
  const GgufValue* value = FindValue(*this, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(value)) return *text;
  FailType(*this, key, "a string");
}

std::optional<int64_t> GgufMetadata::Integer(std::string_view key) const {
  const GgufValue* value = FindValue(*this, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<int64_t>(value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(value)) {
    if (*number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return static_cast<int64_t>(*number);
    throw Error("[gguf] {}: key '{}' is {}, which is too large", path_, Printable(key), *number);
  }
  FailType(*this, key, "an integer");
}

std::optional<double> GgufMetadata::Number(std::string_view key) const {
  const GgufValue* value = FindValue(*this, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<int64_t>(value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(value)) return static_cast<double>(*number);
  FailType(*this, key, "a number");
}

std::optional<bool> GgufMetadata::Bool(std::string_view key) const {
  const GgufValue* value = FindValue(*this, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  FailType(*this, key, "a bool");
}

bool GgufMetadata::IsArray(std::string_view key) const {
  const GgufValue* value = FindValue(*this, key);
  return value != nullptr && std::holds_alternative<std::shared_ptr<const GgufArray>>(*value);
}

std::optional<std::vector<bool>> GgufMetadata::Bools(std::string_view key) const {
  const GgufValue* value = FindValue(*this, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* flags = ArrayOf<bool>(*value)) return *flags;
  FailType(*this, key, "an array of bools");
}

const std::vector<std::string>* GgufMetadata::Strings(std::string_view key) const {
  const GgufValue* value = FindValue(*this, key);
  if (value == nullptr) return nullptr;
  if (const auto* strings = ArrayOf<std::string>(*value)) return strings;
  FailType(*this, key, "an array of strings");
}

std::optional<std::vector<int64_t>> GgufMetadata::Integers(std::string_view key) const {
  const GgufValue* value = FindValue(*this, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* integers = ArrayOf<int64_t>(*value)) return *integers;
  const auto* large = ArrayOf<uint64_t>(*value);
  if (large == nullptr) FailType(*this, key, "an array of integers");
  std::vector<int64_t> integers;
  integers.reserve(large->size());
  for (const uint64_t number : *large) {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      throw Error("[gguf] {}: key '{}' holds {}, which is too large", path_, Printable(key), number);
    }
    integers.push_back(static_cast<int64_t>(number));
  }
  return integers;
}

std::optional<std::vector<double>> GgufMetadata::Floats(std::string_view key) const {
  const GgufValue* value = FindValue(*this, key);
  if (value == nullptr) return std::nullopt;
  if (const auto* floats = ArrayOf<double>(*value)) return *floats;
  FailType(*this, key, "an array of floats");
}

GgufFile::GgufFile(std::vector<MappedFile> files, uint32_t version, GgufMetadata metadata,
                   std::vector<StoredTensor> tensors)
    : files_(std::move(files)),
      version_(version),
      metadata_(std::move(metadata)),
      tensors_(std::move(tensors)) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.emplace(tensors_[i].name, i).second) {
      throw Error("[gguf] {}: tensor '{}' is in more than one split", path(), Printable(tensors_[i].name));
    }
  }
}

const StoredTensor* GgufFile::Find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

namespace {

std::string SplitSuffix(int64_t number, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

// The number of splits according to the first one; 1 for a file that is not split. Throws Error if `first` is
// a later split.
int64_t SplitCount(const GgufMetadata& first) {
  const int64_t count = first.Integer("split.count").value_or(1);
  if (count < 1 || count > limits::kMaxShards) {
    throw Error("[gguf] {}: split.count is {}, expected 1 to {}", first.path(), count, limits::kMaxShards);
  }
  const int64_t number = first.Integer("split.no").value_or(0);
  if (number != 0) {
    throw Error("[gguf] {}: this is split {} of {}, open the first one (...{})", first.path(), number + 1,
                count, SplitSuffix(1, count));
  }
  return count;
}

// Throws Error unless the metadata of `split` names it as number `number` (from 0) of the model that `first`
// starts.
void CheckSplit(const GgufMetadata& first, const GgufMetadata& split, int64_t number) {
  const auto expect = [&](std::string_view key, int64_t expected) {
    const auto found = split.Integer(key);
    if (found == expected) return;
    throw Error("[gguf] {}: {} is {}, expected {} for a split of {}", split.path(), key,
                found ? std::to_string(*found) : "absent", expected, first.path());
  };
  expect("split.no", number);
  expect("split.count", *first.Integer("split.count"));
  if (const auto total = first.Integer("split.tensors.count")) expect("split.tensors.count", *total);
  for (const char* key : {"general.architecture", "general.name"}) {
    const auto here = split.String(key), there = first.String(key);
    if (here && there && *here != *there) {
      throw Error("[gguf] {}: {} is '{}', in {} it is '{}': a split of another model", split.path(), key,
                  Printable(*here), first.path(), Printable(*there));
    }
  }
}

}  // namespace

std::unique_ptr<GgufFile> GgufFile::Open(const std::string& path) {
  std::vector<MappedFile> files;
  files.emplace_back(path);
  ParsedGguf parsed = ParseGguf(files.back().bytes(), path);
  const GgufMetadata first(path, std::move(parsed.metadata));
  std::vector<StoredTensor> tensors = std::move(parsed.tensors);
  // The path of each tensor's split, for messages about duplicates.
  std::map<std::string, std::string, std::less<>> home;
  for (const StoredTensor& tensor : tensors) home.emplace(tensor.name, path);

  const int64_t count = SplitCount(first);
  const std::string suffix = SplitSuffix(1, count);
  if (count > 1 && !path.ends_with(suffix)) {
    throw Error("[gguf] {}: first of {} splits, its name must end in '{}'", path, count, suffix);
  }
  const std::string stem = path.substr(0, path.size() - std::min(path.size(), suffix.size()));
  for (int64_t i = 1; i < count; ++i) {
    const std::string split_path = stem + SplitSuffix(i + 1, count);
    files.emplace_back(split_path);
    ParsedGguf split = ParseGguf(files.back().bytes(), split_path);
    CheckSplit(first, GgufMetadata(split_path, std::move(split.metadata)), i);
    for (StoredTensor& tensor : split.tensors) {
      if (const auto [it, fresh] = home.emplace(tensor.name, split_path); !fresh) {
        throw Error("[gguf] {}: tensor '{}' is in {} too", split_path, Printable(tensor.name), it->second);
      }
      tensors.push_back(std::move(tensor));
    }
  }
  const int64_t found = static_cast<int64_t>(tensors.size());
  if (const auto total = first.Integer("split.tensors.count"); count > 1 && total.value_or(found) != found) {
    throw Error("[gguf] {}: {} splits hold {} tensors, split.tensors.count is {}", path, count, found,
                *total);
  }
  return std::unique_ptr<GgufFile>(new GgufFile(std::move(files), parsed.version, first, std::move(tensors)));
}

bool LooksLikeGguf(const std::string& path) {
  std::error_code ignored;
  // Opening a pipe would wait for a writer.
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  if (!file.read(magic, sizeof(magic))) return false;
  return std::memcmp(magic, "GGUF", 4) == 0 || std::memcmp(magic, "FUGG", 4) == 0;
}

}  // namespace coppice
