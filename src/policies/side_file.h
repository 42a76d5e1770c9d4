// What the readers of a method's side file share: one safetensors file with strings as metadata, of which
// every field and every tensor is checked before use (SideFileReader), and which is read once for all
// requests (OpenOnce).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/mmap.h"
#include "formats/model_shape.h"
#include "formats/safetensors.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace coppice {

// The mapped file and its directory. Views of tensors point into it.
struct SideFile {
  // Throws Error, naming the file, if it cannot be read or is no safetensors file.
  explicit SideFile(const std::string& path) : file(path), parsed(ParseSafetensors(file.bytes(), path)) {}
  MappedFile file;
  ParsedSafetensors parsed;
};

// Everything in the file is hostile until it has passed here. All functions throw Error, naming the file and
// the field or tensor. Matrices and vectors are F32, F16 or BF16, and every value is finite.
class SideFileReader {
 public:
  // `part` begins the messages, as in "[sdtp] file: ...". Both references must outlive the reader.
  SideFileReader(std::string_view part, const std::string& path, const SideFile& file);

  const std::string& Field(const char* name) const;
  int64_t Whole(const char* name, int64_t low, int64_t high) const {
    return Whole(name, Field(name), low, high);
  }
  // Of a piece of the field.
  int64_t Whole(const char* name, std::string_view text, int64_t low, int64_t high) const;
  double Number(const char* name, double low, double high) const;
  // The index in `names` of the field's text.
  size_t Choice(const char* name, const std::vector<std::string_view>& names) const;

  Tensor Vector(const std::string& name, int64_t size);  // [1, size] fp32
  // In the file. `rows` below 0: any number up to the limit of a hidden size.
  TensorView Matrix(const std::string& name, int64_t rows, int64_t cols) { return Find(name, {rows, cols}); }
  // Refuses tensors that were not read; they "belong to none of `owners`".
  void RefuseOthers(std::string_view owners) const;

 private:
  TensorView Find(const std::string& name, const std::vector<int64_t>& expected);
  void CheckFinite(const std::string& name, const TensorView& stored);

  std::string_view part_;
  const std::string& path_;
  const ParsedSafetensors& parsed_;
  std::map<std::string, const StoredTensor*, std::less<>> tensors_;  // not yet read
  std::vector<float> row_;
};

// A File(path, shape), read and validated by the first call of the process and shared by the next ones, until
// the file's size or its time of change differs. Throws what the constructor throws.
template <typename File>
std::shared_ptr<const File> OpenOnce(const std::string& path, const ModelShape& shape) {
  using FileTime = std::filesystem::file_time_type;
  struct Opened {
    std::string path;
    ModelShape shape;
    std::uintmax_t size;
    FileTime changed;
    std::shared_ptr<const File> file;
  };
  constexpr size_t kMostFiles = 4;
  static std::mutex mutex;
  static std::vector<Opened> files;  // the latest last
  std::error_code no_size;
  std::error_code no_time;
  const std::uintmax_t size = std::filesystem::file_size(path, no_size);
  const FileTime changed = std::filesystem::last_write_time(path, no_time);
  // A file that changes twice within the resolution of its time may keep size and time.
  const bool may_change_unseen = FileTime::clock::now() - changed < std::chrono::seconds(2);
  if (no_size || no_time || may_change_unseen) return std::make_shared<const File>(path, shape);
  const std::lock_guard lock(mutex);
  for (const Opened& f : files) {
    if (f.path == path && f.shape.hidden == shape.hidden && f.shape.layers == shape.layers &&
        f.shape.gated_ffn == shape.gated_ffn && f.size == size && f.changed == changed) {
      return f.file;
    }
  }
  auto file = std::make_shared<const File>(path, shape);
  std::erase_if(files, [&](const Opened& f) { return f.path == path; });
  if (files.size() == kMostFiles) files.erase(files.begin());
  files.push_back({path, shape, size, changed, file});
  return file;
}

}  // namespace coppice
