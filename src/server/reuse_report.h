// What a reply says about the tokens that its prompt reused: the member `cache` of `timings`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/documents/reuse_reason.h"

namespace coppice {

struct ReuseReport {
  ReuseCause cause;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  std::string earlier = {};  // the earlier prompt's text around cause.differs_at
  std::string now = {};      // this prompt's
  double seconds_since = 0;  // the earlier prompt was read

  int64_t computed_tokens() const { return prompt_tokens - cached_tokens; }
};

// {"cached_tokens", "shared_tokens", "reason", ...}: docs/server.md lists the members. It shows texts of the
// client's own prompts; no other client may see it.
nlohmann::ordered_json ReuseJson(const ReuseReport& report);

// " cache=CACHED/SHARED reason=REASON" for the access log, without texts.
std::string ReuseNote(const ReuseReport& report);

}  // namespace coppice
