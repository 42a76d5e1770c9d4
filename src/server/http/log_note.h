// What routes add to the log's line of a request.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace coppice {

using LogValue = std::variant<std::string, int64_t, double, bool>;
// Names are literals.
using LogFields = std::vector<std::pair<const char*, LogValue>>;

// The same for both forms of the log: `text` joins " name=value" for lines, `fields` are members of a JSON
// object. Lines have fewer of them.
struct LogNote {
  std::string text;
  LogFields fields = {};

  // One fact, which both forms have under one name.
  static LogNote Of(const char* name, std::string value) {
    return {std::string(" ") + name + "=" + value, {{name, value}}};
  }
};

}  // namespace coppice
