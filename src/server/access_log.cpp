#include "server/access_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <variant>

#include "base/error.h"

namespace coppice {

namespace {

std::string Shortened(const std::string& text) {
  constexpr size_t kLongest = 256;
  return text.size() > kLongest ? text.substr(0, kLongest) + "..." : text;
}

std::string Plain(const std::string& sent) {
  std::string text = Shortened(sent);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c <= ' ' || c >= 0x7f; }, '?');
  return text.empty() ? "-" : text;
}

std::string TimeText(std::chrono::system_clock::time_point now) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[32];
  const std::string time(stamp, std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc));
  return fmt::format("{}.{:03}Z", time, ms % 1000);
}

}  // namespace

std::string LogLine(const HttpLogEntry& entry, std::chrono::system_clock::time_point now) {
  return fmt::format("{} {} {} status={} ms={} sent={} whole={}{}\n", TimeText(now), Plain(entry.method),
                     Plain(entry.path), entry.status, entry.took.count(), entry.sent,
                     entry.whole ? "yes" : "no", entry.note.text);
}

std::string JsonLogLine(const HttpLogEntry& entry, std::chrono::system_clock::time_point now) {
  nlohmann::ordered_json line = {
      {"time", TimeText(now)},         {"request_id", entry.id},        {"method", Shortened(entry.method)},
      {"path", Shortened(entry.path)}, {"status", entry.status},        {"bytes", entry.sent},
      {"whole", entry.whole},          {"total_ms", entry.took.count()}};
  for (const auto& [name, value] : entry.note.fields) {
    std::visit([&line, key = name](const auto& held) { line[key] = held; }, value);
  }
  // Only ASCII: what is not, and every control character, is escaped, so an object is one line.
  return line.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

AccessLog::AccessLog(const std::string& path, LogFormat format)
    : format_(format),
      fd_(path == "-" ? dup(STDERR_FILENO)
                      : open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  if (fd_ < 0) throw Error("[access log] {}: cannot open: {}", path, std::strerror(errno));
}

AccessLog::~AccessLog() { close(fd_); }

void AccessLog::Write(const HttpLogEntry& entry) const {
  const auto now = std::chrono::system_clock::now();
  const std::string line = format_ == LogFormat::kJson ? JsonLogLine(entry, now) : LogLine(entry, now);
  (void)!write(fd_, line.data(), line.size());
}

}  // namespace coppice
