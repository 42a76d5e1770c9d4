// Output files that appear complete or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace coppice {

// Writes to a temporary file beside `path` and renames it to `path` in Commit(). Without Commit() the
// destructor removes it, so an existing file is replaced only by a complete one. Throws Error, naming the
// part of the program and the file, if the file cannot be created or written, if `path` is a device, a pipe,
// a folder or a link, or if another process is writing it. The temporary file is called PATH.PART-PID.part
// and is locked, so that RemoveAbandoned() can recognise the leftovers of a killed process. It is never
// opened through a link.
class NewFile {
 public:
  // kOwnerOnly: mode 0600 whatever the umask, for what others must not read.
  enum class Mode { kByUmask, kOwnerOnly };
  NewFile(const std::string& path, std::string_view part, Mode mode = Mode::kByUmask);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void Append(std::span<const std::byte> bytes);
  void Append(std::string_view text);
  // Waits until all appended data is on the device, so that after a crash the name never refers to an
  // incomplete file.
  void Sync();
  void Commit();

 private:
  void Open(Mode mode);

  std::string path_;
  std::string part_;
  std::string temporary_;
  int fd_ = -1;
  bool committed_ = false;
};

// Removes from `folder` the unfinished files of one part of the program whose process was killed. On a file
// system without locks, it keeps files modified within the last hour.
void RemoveAbandoned(const std::string& folder, std::string_view part);

}  // namespace coppice
