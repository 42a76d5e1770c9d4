// What several targets share.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/model_shape.h"

namespace coppice {

// Returns true if `read` accepts the input, false if it throws an Error of one line.
template <typename Read>
bool Accepts(Read read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (std::strchr(error.what(), '\n') != nullptr) abort();  // a message of several lines forges log lines
    return false;
  }
}

// A copy on the heap with the input's exact size, so that the sanitizer sees a read beyond the end.
inline std::vector<std::byte> ExactBytes(std::string_view input) {
  const auto* begin = reinterpret_cast<const std::byte*>(input.data());
  return {begin, begin + input.size()};
}

// A model for readers that check a file against one.
inline ModelShape SmallShape(int layers, int heads, int head_dim) {
  const int64_t hidden = int64_t{heads} * head_dim;
  return {
      .architecture = "llama",
      .name = "x",
      .hidden = hidden,
      .vocab = 50,
      .layers = std::vector<LayerShape>(static_cast<size_t>(layers), {.heads = heads,
                                                                      .kv_heads = heads >= 4 ? heads / 4 : 1,
                                                                      .head_dim = head_dim,
                                                                      .ffn = hidden * 3 / 2})};
}

// A folder in memory for readers that take a path, one for each process.
class FuzzFolder {
 public:
  FuzzFolder() {
    namespace fs = std::filesystem;
    const fs::path parent = fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    path_ = (parent / "coppice-fuzz-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) throw Error("cannot make {}", path_);
  }
  ~FuzzFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, std::string_view text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

}  // namespace coppice
