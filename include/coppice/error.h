// What every function of the library throws.
#pragma once

#include <stdexcept>
#include <string>

#include "coppice/export.h"

namespace coppice {

class COPPICE_API LlmError : public std::runtime_error {
 public:
  enum class Kind {
    kInvalid,    // an option, a field or a prompt that cannot be served; field() names it where there is one
    kTooLong,    // the prompt and the answer exceed the context
    kBusy,       // too many requests wait, or there is no memory for another one: try again later
    kCancelled,  // a callback of the request returned false
    kFailed,     // the file cannot be loaded, or the work failed
  };
  LlmError(Kind kind, const std::string& message, std::string field = {});
  ~LlmError() override;
  Kind kind() const { return kind_; }
  const std::string& field() const { return field_; }

 private:
  Kind kind_;
  std::string field_;
};

}  // namespace coppice
