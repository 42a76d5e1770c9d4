// What the access log says of an answer: counts, times and reasons, and no text of the prompt or the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/http/log_note.h"
#include "server/job.h"

namespace coppice {

struct AnswerCounts {
  std::string model;          // its name in replies
  int64_t choices = 1;        // answers to the request
  int64_t prompt_tokens = 0;  // each prompt counted once
  int64_t cached_tokens = 0;  // of these, taken over
  int64_t generated_tokens = 0;
  double decode_tokens_per_second = 0;  // 0: no token followed the first one
};

// Of a request's first answer.
LogFields ResultFields(const JobResult& result, const std::string& finish_reason);

// `result`: ResultFields(), if the answer came to its end.
LogNote AnswerNote(const AnswerCounts& counts, const std::optional<ReuseReport>& reuse, LogFields result);

}  // namespace coppice
