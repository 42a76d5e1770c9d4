#pragma once

#include <chrono>
#include <nlohmann/json.hpp>

namespace coppice {

// How long the longest-lived `cache_control` of a request, message, part or tool, or of what it holds, keeps
// the prompt's entry (PrefixHint::lifetime): an hour with the ttl 1h, else 5 minutes; 0 where there is none.
std::chrono::seconds CacheLifetimeOf(const nlohmann::ordered_json& item);

}  // namespace coppice
