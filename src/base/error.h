// The exception type for every error that a user, a file, a request or a device can cause.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>

namespace coppice {

// The message is one line that names the file, tensor, field or option, and the values:
//   throw Error("[gguf] {}: tensor '{}' is {}, config says {}", path, name, shape, expected);
// Control characters in it become '?', because a value that a file or a request holds could otherwise forge
// lines of a log or command a terminal.
class Error : public std::runtime_error {
 public:
  template <typename... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(OneLine(fmt::format(format, std::forward<Args>(args)...))) {}

 private:
  static std::string OneLine(std::string message) {
    for (char& c : message) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
    }
    return message;
  }
};

// Thrown when the caller asked to stop (a disconnected client, Ctrl-C); never used for invalid input.
class Cancelled : public std::runtime_error {
 public:
  Cancelled() : std::runtime_error("cancelled") {}
};

// For work without a RunControl (model/run_control.h): throws Cancelled if the flag, which may be null, is
// set.
inline void ThrowIfCancelled(const std::atomic<bool>* cancelled) {
  if (cancelled != nullptr && cancelled->load(std::memory_order_relaxed)) throw Cancelled();
}

}  // namespace coppice
