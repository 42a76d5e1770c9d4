#include "server/access_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/error.h"

namespace coppice {

namespace {

std::string Plain(std::string text) {
  constexpr size_t kLongest = 256;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c <= ' ' || c >= 0x7f; }, '?');
  return text.empty() ? "-" : text;
}

}  // namespace

std::string LogLine(const HttpLogEntry& entry, std::chrono::system_clock::time_point now) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[32];
  const std::string time(stamp, std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc));
  return fmt::format("{}.{:03}Z {} {} status={} ms={} sent={} whole={}{}\n", time, ms % 1000,
                     Plain(entry.method), Plain(entry.path), entry.status, entry.took.count(), entry.sent,
                     entry.whole ? "yes" : "no", entry.note);
}

AccessLog::AccessLog(const std::string& path)
    : fd_(path == "-" ? dup(STDERR_FILENO)
                      : open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  if (fd_ < 0) throw Error("[access log] {}: cannot open: {}", path, std::strerror(errno));
}

AccessLog::~AccessLog() { close(fd_); }

void AccessLog::Write(const HttpLogEntry& entry) const {
  const std::string line = LogLine(entry, std::chrono::system_clock::now());
  (void)!write(fd_, line.data(), line.size());
}

}  // namespace coppice
