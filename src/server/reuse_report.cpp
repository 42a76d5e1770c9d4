#include "server/reuse_report.h"

#include <fmt/format.h>

#include <cmath>

namespace coppice {

namespace {

using nlohmann::ordered_json;

const char* NameOf(NotKept why) {
  switch (why) {
    case NotKept::kReading:
      return "being_read";
    case NotKept::kCancelled:
      return "cancelled";
    case NotKept::kTooLarge:
      return "too_large";
    case NotKept::kMethod:
      return "method";
    case NotKept::kAnswer:
      return "answer";
    case NotKept::kKept:
    case NotKept::kFewNew:
      break;
  }
  return "few_new_tokens";
}

const char* NameOf(Gone why) {
  switch (why) {
    case Gone::kMemory:
      return "memory";
    case Gone::kDisk:
      return "disk";
    case Gone::kErased:
      return "erased";
    case Gone::kDamaged:
      break;
  }
  return "damaged";
}

ordered_json EntryJson(const ReuseCause& cause) {
  if (cause.gone) return {{"tokens", cause.gone->tokens}, {"gone", NameOf(cause.gone->why)}};
  if (cause.reason == ReuseReason::kEvicted) return {{"tokens", cause.earlier->kept}, {"gone", "unknown"}};
  if (cause.reason == ReuseReason::kNotKept) return {{"not_kept", NameOf(cause.why)}};
  if (!cause.entry) return nullptr;
  const DocumentCache::Held& held = *cause.entry;
  return {{"tokens", held.tokens},
          {"layers", LayersWithKeys(held.point)},
          {"complete", held.complete},
          {"in", held.in_memory ? "memory" : "file"}};
}

}  // namespace

ordered_json ReuseJson(const ReuseReport& report) {
  const ReuseCause& cause = report.cause;
  ordered_json json = {{"cached_tokens", report.cached_tokens},
                       {"shared_tokens", cause.shared},
                       {"reason", std::string(NameOf(cause.reason))}};
  if (cause.differs_at) {
    json["differs_at"] = *cause.differs_at;
    json["earlier"] = report.earlier;
    json["now"] = report.now;
  }
  if (cause.reason == ReuseReason::kOff) return json;
  if (cause.earlier) {
    json["request"] = {{"id", cause.earlier->request},
                       {"prompt_tokens", cause.earlier->prompt_tokens},
                       {"answer_tokens", cause.earlier->size() - cause.earlier->prompt_tokens},
                       {"seconds_ago", std::round(1000 * report.seconds_since) / 1000}};
  }
  if (ordered_json entry = EntryJson(cause); !entry.is_null()) json["entry"] = std::move(entry);
  return json;
}

std::string ReuseNote(const ReuseReport& report) {
  return fmt::format(" cache={}/{} reason={}", report.cached_tokens, report.cause.shared,
                     NameOf(report.cause.reason));
}

}  // namespace coppice
