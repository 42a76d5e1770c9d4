// An Error that knows which field it is about.
#pragma once

#include "base/error.h"

namespace coppice {

// About a field of options or of a request, whose name begins the message:
//   throw FieldError("context", " {}: at most {}", context, limit);
// The command line prints the field's flag in place of its name (apps/flags.h).
class FieldError : public Error {
 public:
  template <typename... Args>
  explicit FieldError(const char* field, fmt::format_string<Args...> format, Args&&... args)
      : Error("{}{}", field, fmt::format(format, std::forward<Args>(args)...)), field_(field) {}
  const char* field() const { return field_; }

 private:
  const char* field_;  // a literal
};

}  // namespace coppice
