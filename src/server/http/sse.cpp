#include "server/http/sse.h"

#include "server/errors.h"

namespace coppice {

std::string SseEvent(const nlohmann::ordered_json& data) { return SseEventOf(DumpJson(data)); }

std::string SseEventOf(const std::string& json) { return "data: " + json + "\n\n"; }

}  // namespace coppice
