// Files that are there whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace coppice {

// A file beside `path` that takes its name in Commit(), and is removed if that is never reached: what was there before
// is lost only to a whole successor. Throws Error, naming the part of the program and the file, where it cannot be
// made or written, where `path` is a device, a pipe, a folder or a link, and where it is being written already.
// Until then it is called PATH.PART-PID.part and locked, so that RemoveAbandoned() can tell it from what is left of a
// process that was killed.
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
  void Open();

  std::string path_;
  std::string part_;
  std::string temporary_;
  int fd_ = -1;
  bool committed_ = false;
};

// Removes the unfinished files of one part of the program that nobody writes any more from a folder: their process was
// killed. Where the file system has no locks, those that were touched within the last hour stay.
void RemoveAbandoned(const std::string& folder, std::string_view part);

}  // namespace coppice
