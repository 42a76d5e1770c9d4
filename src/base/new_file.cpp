#include "base/new_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace coppice {

namespace {

namespace fs = std::filesystem;

bool SameFile(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

// Matches NAME.PART-DIGITS.part.
bool IsUnfinished(std::string_view name, std::string_view part) {
  constexpr std::string_view kEnd = ".part";
  if (!name.ends_with(kEnd)) return false;
  name.remove_suffix(kEnd.size());
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  return digits > 0 && digits < name.size() && name.substr(0, digits).ends_with(fmt::format(".{}-", part));
}

// The lock can be taken only after the process that held it has ended. While this function holds it, no
// process can start a file with this name or finish one.
void RemoveIfAbandoned(const fs::path& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  bool abandoned = flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (!abandoned && errno != EWOULDBLOCK) {
    std::error_code gone;
    const fs::file_time_type touched = fs::last_write_time(path, gone);
    abandoned = !gone && fs::file_time_type::clock::now() - touched > std::chrono::hours(1);
  }
  if (abandoned && SameFile(fd, path)) unlink(path.c_str());
  close(fd);
}

}  // namespace

NewFile::NewFile(const std::string& path, std::string_view part, Mode mode)
    : path_(path), part_(part), temporary_(fmt::format("{}.{}-{}.part", path, part, getpid())) {
  // The rename in Commit would replace a device, a pipe or a link by a file.
  std::error_code ignored;
  const fs::file_status before = fs::symlink_status(path, ignored);
  if (fs::exists(before) && !fs::is_regular_file(before)) {
    throw Error("[{}] {}: exists and is not a regular file", part_, path);
  }
  Open(mode);
}

// Opens without O_TRUNC: until the lock is held, the file may belong to a process with the same id in another
// container.
void NewFile::Open(Mode mode) {
  const bool owner_only = mode == Mode::kOwnerOnly;
  for (;;) {
    // O_NOFOLLOW: a link under this name would lead the data elsewhere. O_NONBLOCK: a pipe would wait.
    constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    fd_ = open(temporary_.c_str(), kFlags, owner_only ? 0600 : 0666);
    if (fd_ < 0) throw Error("[{}] {}: cannot create: {}", part_, temporary_, std::strerror(errno));
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(std::exchange(fd_, -1));
      throw Error("[{}] {}: is being written already", part_, path_);
    }
    struct stat info {};
    if (fstat(fd_, &info) == 0 && info.st_nlink > 0) {
      // The file may have been there already, with another mode.
      const bool own = !owner_only || fchmod(fd_, 0600) == 0;
      if (own && S_ISREG(info.st_mode) && (info.st_size == 0 || ftruncate(fd_, 0) == 0)) return;
      const int reason = S_ISREG(info.st_mode) ? errno : EINVAL;
      close(std::exchange(fd_, -1));
      throw Error("[{}] {}: cannot create: {}", part_, temporary_, std::strerror(reason));
    }
    close(fd_);  // RemoveAbandoned() removed the file between open and flock
  }
}

NewFile::~NewFile() {
  if (!committed_) unlink(temporary_.c_str());
  if (fd_ >= 0) close(fd_);
}

void NewFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error("[{}] {}: cannot write: {}", part_, path_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void NewFile::Append(std::string_view text) { Append(std::as_bytes(std::span(text))); }

void NewFile::Sync() {
  while (fsync(fd_) != 0) {
    if (errno != EINTR) throw Error("[{}] {}: cannot write: {}", part_, path_, std::strerror(errno));
  }
}

void NewFile::Commit() {
  // This duplicate keeps the lock until the rename; otherwise RemoveAbandoned() could remove the file before
  // it.
  const int lock = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  // A full disk may show only here: network file systems write on close.
  const bool written = close(std::exchange(fd_, -1)) == 0;
  committed_ = written && std::rename(temporary_.c_str(), path_.c_str()) == 0;
  const int reason = errno;
  if (lock >= 0) close(lock);
  if (!written) throw Error("[{}] {}: cannot write: {}", part_, path_, std::strerror(reason));
  if (!committed_) {
    throw Error("[{}] {}: cannot rename {}: {}", part_, path_, temporary_, std::strerror(reason));
  }
}

void RemoveAbandoned(const std::string& folder, std::string_view part) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->symlink_status(ignored).type() == fs::file_type::regular &&
        IsUnfinished(it->path().filename().string(), part)) {
      RemoveIfAbandoned(it->path());
    }
  }
}

}  // namespace coppice
