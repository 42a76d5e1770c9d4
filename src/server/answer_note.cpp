#include "server/answer_note.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

namespace coppice {

namespace {

// Microseconds are enough.
double Rounded(double ms) { return std::round(1000 * ms) / 1000; }

void AddReuse(const ReuseReport& reuse, LogFields& fields) {
  const ReuseCause& cause = reuse.cause;
  fields.emplace_back("cache_reason", std::string(NameOf(cause.reason)));
  fields.emplace_back("cache_shared_tokens", cause.shared);
  if (cause.differs_at) fields.emplace_back("cache_differs_at", *cause.differs_at);
}

}  // namespace

LogFields ResultFields(const JobResult& result, const std::string& finish_reason) {
  const Answer& answer = result.answer;
  LogFields fields = {{"queue_ms", Rounded(result.queued_ms)},
                      {"ttft_ms", Rounded(result.queued_ms + answer.ttft_ms)},
                      {"finish_reason", finish_reason},
                      {"prune", answer.prune_spec},
                      {"prune_active", answer.prune_active}};
  if (!answer.prune_reason.empty()) fields.emplace_back("prune_reason", answer.prune_reason);
  if (answer.auto_cause != AutoReason::kNotAsked) {
    fields.emplace_back("auto_reason", std::string(NameOf(answer.auto_cause)));
    fields.emplace_back("auto", answer.auto_reason);
  }
  return fields;
}

LogNote AnswerNote(const AnswerCounts& counts, const std::optional<ReuseReport>& reuse, LogFields result) {
  LogNote note{.text = fmt::format(" prompt={} cached={} generated={}", counts.prompt_tokens,
                                   counts.cached_tokens, counts.generated_tokens),
               .fields = {{"model", counts.model},
                          {"choices", counts.choices},
                          {"prompt_tokens", counts.prompt_tokens},
                          {"cached_tokens", counts.cached_tokens},
                          {"processed_tokens", counts.prompt_tokens - counts.cached_tokens},
                          {"generated_tokens", counts.generated_tokens}}};
  if (counts.decode_tokens_per_second > 0)
    note.fields.emplace_back("decode_tokens_per_second", Rounded(counts.decode_tokens_per_second));
  std::ranges::move(result, std::back_inserter(note.fields));
  if (reuse) {
    note.text += ReuseNote(*reuse);
    AddReuse(*reuse, note.fields);
  }
  return note;
}

}  // namespace coppice
