// The member `timings` of replies, under llama.cpp's names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "server/job.h"

namespace coppice {

// Of one answer, or the sum of a request's answers.
struct ReplyFigures {
  int64_t prompt = 0;    // prompt tokens
  int64_t cached = 0;    // those of them that the document cache had
  int64_t sampled = 0;   // tokens, the one that ended the answer among them
  int64_t thinking = 0;  // those of them that are thinking
  int64_t decoded = 0;   // without the first token of each answer, which the prefill gave
  int64_t proposed = 0;  // Answer::proposed
  int64_t accepted = 0;
  double prompt_ms = 0;
  double decode_ms = 0;

  // 0 if there were none.
  double decoded_per_second() const;
  ReplyFigures& operator+=(const ReplyFigures& other);
};

ReplyFigures FiguresOf(const JobResult& result, int64_t prompt_tokens, int64_t cached);

// `reuse`: of the answer, or of a request's first one; may be empty.
nlohmann::ordered_json TimingsJson(const ReplyFigures& figures, const std::optional<ReuseReport>& reuse);

}  // namespace coppice
