#include "server/http/sse.h"

#include "server/errors.h"

namespace coppice {

std::string SseEvent(const nlohmann::ordered_json& data) { return "data: " + DumpJson(data) + "\n\n"; }

}  // namespace coppice
