#include "base/check.h"

#include <fmt/core.h>

namespace coppice {

void FailCheck(const char* condition, const char* file, int line) {
  throw CheckFailure(fmt::format("{}:{}: check failed: {}", file, line, condition));
}

}  // namespace coppice
