// Files and errors in tests of every folder: where the shared data lies, folders that go away, messages of
// errors.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/error.h"

namespace coppice {

// Test data and models with known answers; tests skip where they are absent.
inline std::string SharedPath(const std::string& name) { return COPPICE_SOURCE_DIR "/../shared/" + name; }

#define COPPICE_NEEDS_SHARED(name)                                     \
  if (!std::filesystem::exists(::coppice::SharedPath(name))) {         \
    GTEST_SKIP() << "no test data at " << ::coppice::SharedPath(name); \
  }

// A folder that goes away with the test.
class TempFolder {
 public:
  explicit TempFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "coppice-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error("cannot make {}", name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  std::string Write(const std::string& name, std::string_view text) const {
    std::ofstream(Path(name), std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
    return Path(name);
  }
  void Copy(const std::string& from, const std::string& name) const {
    std::filesystem::copy_file(from, Path(name));
  }
  size_t CountFiles() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

// What `action` throws as an Error, which must be one line; or "no error".
template <typename Action>
std::string ErrorOf(Action action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  return "no error";
}

}  // namespace coppice
