#include "base/new_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace coppice {

NewFile::NewFile(const std::string& path, std::string_view part)
    : path_(path), part_(part), temporary_(fmt::format("{}.{}.part", path, getpid())) {
  // The rename in Commit would replace a device, a pipe or a link by a file.
  std::error_code ignored;
  const std::filesystem::file_status before = std::filesystem::symlink_status(path, ignored);
  if (std::filesystem::exists(before) && !std::filesystem::is_regular_file(before)) {
    throw Error("[{}] {}: exists and is not a regular file", part_, path);
  }
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) throw Error("[{}] {}: cannot create: {}", part_, temporary_, std::strerror(errno));
}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!committed_) unlink(temporary_.c_str());
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
  // A full disk may show only here: network file systems write on close.
  if (close(std::exchange(fd_, -1)) != 0)
    throw Error("[{}] {}: cannot write: {}", part_, path_, std::strerror(errno));
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw Error("[{}] {}: cannot rename {}: {}", part_, path_, temporary_, std::strerror(errno));
  }
  committed_ = true;
}

}  // namespace coppice
