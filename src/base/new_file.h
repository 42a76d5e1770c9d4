// Files that are there whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace coppice {

// A file beside `path` that takes its name in Commit(), and is removed if that is never reached: what was there before
// is lost only to a whole successor. Throws Error, naming the part of the program and the file, where it cannot be
// made or written, and where `path` is a device, a pipe, a folder or a link.
class NewFile {
 public:
  NewFile(const std::string& path, std::string_view part);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void Append(std::span<const std::byte> bytes);
  void Append(std::string_view text);
  // Waits until what was appended is on the device: after a crash the name then never stands for half a file.
  void Sync();
  void Commit();

 private:
  std::string path_;
  std::string part_;
  std::string temporary_;
  int fd_ = -1;
  bool committed_ = false;
};

}  // namespace coppice
