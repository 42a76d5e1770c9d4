// Writes one line per request: method, path, status, duration. It contains nothing of the request's body or
// of the answer.
#pragma once

#include <chrono>
#include <string>

#include "server/http/http.h"

namespace coppice {

// "2026-01-31T12:00:00.123Z POST /v1/completions status=200 ms=1234 sent=512 whole=yes NOTE". A path
// comes from the client and must not begin a new line: all but plain characters become '?', and the path is
// cut to 256 characters.
std::string LogLine(const HttpLogEntry& entry, std::chrono::system_clock::time_point now);

// The same as a JSON object in one line, with more of what Exchange::Note() told; docs/server.md lists the
// members.
std::string JsonLogLine(const HttpLogEntry& entry, std::chrono::system_clock::time_point now);

enum class LogFormat { kText, kJson };

class AccessLog {
 public:
  // Appends to a file of mode 0600, or to stderr for "-". Throws Error if it cannot be opened.
  explicit AccessLog(const std::string& path, LogFormat format = LogFormat::kText);
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Thread-safe: a line is written by one call. A line that cannot be written is lost.
  void Write(const HttpLogEntry& entry) const;

 private:
  LogFormat format_;
  int fd_;
};

}  // namespace coppice
