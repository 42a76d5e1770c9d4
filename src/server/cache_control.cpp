#include "server/cache_control.h"

#include <algorithm>

#include "server/request_json.h"

namespace coppice {

std::chrono::seconds CacheLifetimeOf(const nlohmann::ordered_json& item) {
  std::chrono::seconds longest{0};
  if (item.is_array()) {
    for (const auto& one : item) longest = std::max(longest, CacheLifetimeOf(one));
  } else if (item.is_object()) {
    const nlohmann::ordered_json control = Member(item, "cache_control");
    if (TextMember(control, "type") == "ephemeral") {
      const bool is_long = TextMember(control, "ttl") == "1h";
      longest = is_long ? std::chrono::seconds(std::chrono::hours(1)) : std::chrono::minutes(5);
    }
    for (const char* holds : {"system", "tools", "messages", "content"}) {
      if (const auto held = item.find(holds); held != item.end())
        longest = std::max(longest, CacheLifetimeOf(*held));
    }
  }
  return longest;
}

}  // namespace coppice
