// The words of HTTP's answers.
#pragma once

#include <string>

namespace coppice {

const char* StatusText(int status);
// The present, as the Date header gives it (RFC 9110, 5.6.7).
std::string DateText();

}  // namespace coppice
