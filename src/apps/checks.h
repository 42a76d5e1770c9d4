// Checks of option values, for both programs. CLI11's own messages print the limits of a double with 309
// digits.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace coppice::cli {

inline CLI::Validator NumberCheck(bool zero, const char* what) {
  return {[zero, what](std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && (value > 0 || (zero && value == 0))) return {};
            return text + " is not " + what;
          },
          zero ? "NONNEGATIVE" : "POSITIVE"};
}
inline CLI::Validator AboveZero() { return NumberCheck(false, "a number above 0"); }
inline CLI::Validator ZeroOrMore() { return NumberCheck(true, "0 or a number above it"); }

}  // namespace coppice::cli
