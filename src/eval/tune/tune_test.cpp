// Whole searches on the bundled model.
#include "eval/tune/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "eval/journal.h"
#include "test_files.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

const std::string kModel = std::string(COPPICE_SOURCE_DIR) + "/models/coppice-mini-f16.gguf";

Engine& Bundled() {
  static const std::unique_ptr<Engine> engine = Engine::Load(kModel, {.threads = 1});
  return *engine;
}

TuneOptions OptionsOf(const std::string& name) {
  TuneOptions options;
  options.eval.tasks = {"niah"};
  options.eval.lengths = {512};
  options.eval.samples = 3;
  options.eval.distractors = 2;
  static const TempFolder folders;
  options.eval.folder = folders.Path(name);
  options.methods = {"static:layer=5"};
  options.search = {.budget = ParseBudget("1%"), .most_steps = 1, .finalists = 1};
  std::filesystem::remove_all(options.eval.folder);
  return options;
}

SearchResult TuneWith(const TuneOptions& options) {
  return Tune(options, kModel, Bundled(), nullptr, nullptr);
}

std::string FailureOf(const TuneOptions& options) {
  try {
    TuneWith(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Which of them is fastest is for quiet machines; what each kept is not.
TEST(Tune, FindsSchedulesThatKeepTheAnswers) {
  const TuneOptions options = OptionsOf("finds");
  const SearchResult result = TuneWith(options);
  EXPECT_GE(result.dense_score, 0.6) << "the bundled model finds needles in 512 tokens";
  ASSERT_FALSE(result.tried.empty());
  const Candidate& first = result.tried.front();
  EXPECT_EQ(first.verdict, Verdict::kMeets);
  EXPECT_EQ(first.quality.samples, 3u);
  EXPECT_GE(first.quality.score, first.quality.dense_score - 1e-9);
  EXPECT_GT(first.mean_kl(), 0);
  EXPECT_LT(first.flops, 0.9);
  EXPECT_TRUE(first.retimed.has_value());
  EXPECT_EQ(result.best.has_value(), first.ttft_ratio() < 1);
  const ordered_json rows = ordered_json::parse(std::ifstream(options.eval.folder + "/tune.json"));
  EXPECT_EQ(rows[0]["prune"], first.spec);
  EXPECT_EQ(rows[0]["verdict"], "meets the budget");
}

// The promise, asked of `coppice eval`: the same samples under the spec that came out.
TEST(Tune, WhatItFindsKeepsTheBudgetWhenEvaluated) {
  for (const char* budget : {"1%", "kl=0.001"}) {
    TuneOptions options = OptionsOf("promise");
    options.eval.samples = 4;
    options.methods = {"static:layer=3", "random:layers=4/6/8"};
    options.search.budget = ParseBudget(budget);
    const SearchResult result = TuneWith(options);
    ASSERT_FALSE(result.tried.empty());
    const Candidate& found = result.tried.front();
    ASSERT_EQ(found.verdict, Verdict::kMeets) << budget;
    const auto is_over = [](const Candidate& c) { return c.verdict == Verdict::kOver; };
    EXPECT_TRUE(std::any_of(result.tried.begin(), result.tried.end(), is_over)) << "the budget is no bound";
    EvalOptions eval = options.eval;
    eval.folder += "/eval";
    eval.prune = {found.spec};
    const ordered_json rows = Evaluate(eval, kModel, Bundled(), nullptr, nullptr).rows;
    EXPECT_NEAR(rows[1]["kl"].get<double>(), found.mean_kl(), 1e-9) << budget;
    if (options.search.budget.score_loss) {
      EXPECT_GE(rows[1]["score"].get<double>(), 0.99 * rows[0]["score"].get<double>());
    }
    if (options.search.budget.kl) {
      EXPECT_LE(rows[1]["kl"].get<double>(), 0.001);
    }
    EXPECT_LT(rows[1]["flops_ratio"].get<double>(), 1);
  }
}

TEST(Tune, GoesOnWhereItWasAndServesOtherBudgets) {
  TuneOptions options = OptionsOf("resumes");
  options.search.most_steps = 0;
  const SearchResult first = TuneWith(options);
  const std::string journal = options.eval.folder + "/tune.jsonl";
  const size_t records = ReadRecordedRun(journal).records.size();
  EXPECT_GE(records, 6u);
  const SearchResult again = TuneWith(options);
  EXPECT_EQ(ReadRecordedRun(journal).records.size(), records) << "nothing is run again";
  ASSERT_EQ(again.tried.size(), first.tried.size());
  options.search.budget = ParseBudget("kl=0");
  const SearchResult none = TuneWith(options);
  EXPECT_EQ(ReadRecordedRun(journal).records.size(), records) << "dense and the first samples are known";
  EXPECT_FALSE(none.best.has_value());
  EXPECT_TRUE(none.nearest.has_value());
  options.eval.seed = 5;
  EXPECT_THAT(FailureOf(options), HasSubstr("was begun with seed = 1, not 5"));
}

TEST(Tune, KeepsWhatWasDoneWhenInterrupted) {
  const TuneOptions options = OptionsOf("interrupted");
  std::atomic<bool> cancelled = false;
  int notes = 0;
  EXPECT_THROW(
      Tune(options, kModel, Bundled(), &cancelled, [&](const SearchProgress&) { cancelled = ++notes > 6; }),
      Cancelled);
  EXPECT_GE(ReadRecordedRun(options.eval.folder + "/tune.jsonl").records.size(), 3u);
}

TEST(Tune, BadOptionsAreErrorsThatNameThem) {
  TuneOptions options = OptionsOf("bad");
  options.methods = {"h2o"};
  EXPECT_THAT(FailureOf(options), HasSubstr("--methods h2o"));
  options.methods = {"ftp:what=1"};
  EXPECT_THAT(FailureOf(options), HasSubstr("what"));
  options.methods = {"static:min=100000"};
  EXPECT_THAT(FailureOf(options), HasSubstr("no candidate computes less than dense"));
  options = OptionsOf("bad");
  options.eval.tasks = {"perplexity"};
  options.eval.lengths = {256};
  EXPECT_THAT(FailureOf(options), HasSubstr("kl=BOUND"));
}

}  // namespace
}  // namespace coppice
