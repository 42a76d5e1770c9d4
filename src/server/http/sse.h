// Server-sent events (WHATWG HTML, 9.2) as OpenAI's streams use them: one JSON object to an event.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace coppice {

inline constexpr const char* kSseDone = "data: [DONE]\n\n";
// A comment, which clients ignore: Request::on_held.
inline constexpr const char* kSseHeld = ": fallback: the answer is held back until it can be judged\n\n";

// JSON in one line never holds a line break, so an event is one "data" line.
std::string SseEvent(const nlohmann::ordered_json& data);
// Of JSON that is text already.
std::string SseEventOf(const std::string& json);

}  // namespace coppice
