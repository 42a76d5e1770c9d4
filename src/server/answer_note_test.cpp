#include "server/answer_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace coppice {
namespace {

std::map<std::string, LogValue> Members(const LogNote& note) {
  return {note.fields.begin(), note.fields.end()};
}

TEST(AnswerNote, SaysWhatWasDecidedAndWhereTheCacheParted) {
  JobResult result;
  result.queued_ms = 10;
  result.answer.ttft_ms = 200.00049;
  result.answer.prune_spec = "none";
  result.answer.prune_reason = "why";
  result.answer.auto_cause = AutoReason::kLength;
  result.answer.auto_reason = "the calibration covers others";
  const ReuseReport reuse{.cause = {.reason = ReuseReason::kDiffers, .shared = 40, .differs_at = 41},
                          .prompt_tokens = 100,
                          .cached_tokens = 30,
                          .earlier = "secret",
                          .now = "text"};
  const LogNote note = AnswerNote({.model = "m",
                                   .choices = 2,
                                   .prompt_tokens = 100,
                                   .cached_tokens = 30,
                                   .generated_tokens = 5,
                                   .decode_tokens_per_second = 12.5},
                                  reuse, ResultFields(result, "length"));
  EXPECT_EQ(note.text, " prompt=100 cached=30 generated=5 cache=30/40 reason=differs");
  const std::map<std::string, LogValue> expected = {{"model", "m"},
                                                    {"choices", int64_t{2}},
                                                    {"prompt_tokens", int64_t{100}},
                                                    {"cached_tokens", int64_t{30}},
                                                    {"processed_tokens", int64_t{70}},
                                                    {"generated_tokens", int64_t{5}},
                                                    {"decode_tokens_per_second", 12.5},
                                                    {"queue_ms", 10.0},
                                                    {"ttft_ms", 210.0},
                                                    {"finish_reason", "length"},
                                                    {"prune", "none"},
                                                    {"prune_active", false},
                                                    {"prune_reason", "why"},
                                                    {"auto_reason", "length"},
                                                    {"auto", "the calibration covers others"},
                                                    {"cache_reason", "differs"},
                                                    {"cache_shared_tokens", int64_t{40}},
                                                    {"cache_differs_at", int64_t{41}}};
  EXPECT_EQ(Members(note), expected) << "and no texts of prompts";
}

TEST(AnswerNote, AnAnswerThatFailedHasCountsAlone) {
  const LogNote note = AnswerNote({.model = "m", .prompt_tokens = 9}, {}, {});
  EXPECT_EQ(note.text, " prompt=9 cached=0 generated=0");
  EXPECT_EQ(Members(note).count("ttft_ms"), 0u);
  EXPECT_EQ(Members(note).count("decode_tokens_per_second"), 0u);
}

}  // namespace
}  // namespace coppice
