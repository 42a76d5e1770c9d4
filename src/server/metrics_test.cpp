#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace coppice {
namespace {

using testing::HasSubstr;
using testing::Not;

JobResult Answered(const std::string& spec, bool active, AutoReason cause = AutoReason::kNotAsked) {
  JobResult result;
  result.answer.prune_spec = spec;
  result.answer.prune_active = active;
  result.answer.auto_cause = cause;
  result.answer.ttft_ms = 200;
  result.answer.total_ms = 700;
  result.answer.ledger = Ledger(ModelShape{.layers = {LayerShape()}}, 10);
  return result;
}

TEST(Metrics, CountsEachMethodOfASetting) {
  Metrics metrics({}, {"a", "ftp"});
  metrics.CountAnswer(0, Answered("none", false), 10);
  metrics.CountAnswer(0, Answered("a:keep=0.5,layer=3+ftp:dense=4", false), 10);
  metrics.CountAnswer(0, Answered("a:file=\"x+ftp+none\"", false), 10);
  metrics.CountAnswer(0, Answered("unheard+of", false), 10);
  JobResult doubted = Answered("none", false);
  doubted.answer.fell_back = true;
  metrics.CountAnswer(0, doubted, 10);
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("coppice_answers_total{method=\"none\",outcome=\"dense\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("coppice_answers_total{method=\"none\",outcome=\"fell_back\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("coppice_answers_total{method=\"a\",outcome=\"dense\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("coppice_answers_total{method=\"ftp\",outcome=\"dense\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("coppice_answers_total{method=\"a\",outcome=\"pruned\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("unheard")));
}

TEST(Metrics, CountsWhatAutoDecided) {
  Metrics metrics;
  metrics.CountAnswer(0, Answered("none", false, AutoReason::kLength), 10);
  metrics.CountAnswer(0, Answered("none", false), 10);
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("coppice_auto_total{reason=\"length\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("coppice_auto_total{reason=\"not_asked\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("coppice_auto_total{reason=\"other_weights\"} 0\n"));
}

TEST(Metrics, HasHistogramsOfTimes) {
  Metrics metrics;
  JobResult result = Answered("none", false);
  result.token_gaps.Add(0.02);
  result.token_gaps.Add(0.3);
  result.queued_ms = 500;
  metrics.CountAnswer(0, result, 10);
  const std::string text = metrics.Text({});
  EXPECT_THAT(text, HasSubstr("coppice_time_between_tokens_seconds_bucket{le=\"0.025\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("coppice_time_between_tokens_seconds_bucket{le=\"0.3\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("coppice_time_between_tokens_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("coppice_time_to_first_token_seconds_sum 0.7\n"));
  EXPECT_THAT(text, HasSubstr("coppice_request_seconds_sum 1.2\n"));
  EXPECT_THAT(text, HasSubstr("coppice_request_seconds_bucket{le=\"1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("coppice_request_seconds_bucket{le=\"2.5\"} 1\n"));
}

// One that is unknown sees no counts, and above all not those of others.
TEST(Metrics, AClientSeesItsOwnCounts) {
  Metrics metrics({7, 8}, {"a"});
  metrics.CountAnswer(7, Answered("a", false), 10);
  const std::string counted = "coppice_answers_total{method=\"a\",outcome=\"dense\"} 1\n";
  EXPECT_THAT(metrics.TextOf(7, {}), HasSubstr(counted));
  EXPECT_THAT(metrics.TextOf(8, {}), Not(HasSubstr(counted)));
  EXPECT_THAT(metrics.TextOf(9, {}), Not(HasSubstr(counted)));
  EXPECT_THAT(metrics.TextOf(9, {}), HasSubstr("coppice_answers_total{method=\"a\",outcome=\"dense\"} 0\n"));
}

}  // namespace
}  // namespace coppice
