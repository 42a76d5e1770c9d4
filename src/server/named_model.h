// Which model a request names, for a server that has several.
#pragma once

#include <string>
#include <string_view>

#include "server/http/http.h"

namespace coppice {

// The text of the member "model" of a JSON object, or "". It reads no further than that member.
std::string ModelMember(std::string_view body);
// The value of `name` in a query (a=b&c=d), percent-decoded, or "".
std::string QueryValue(std::string_view query, std::string_view name);
// The query's "model", otherwise the body's; "" where neither names one.
std::string NamedModel(const HttpRequest& request);

}  // namespace coppice
