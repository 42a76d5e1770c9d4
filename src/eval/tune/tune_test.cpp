// Whole searches on the bundled model.
#include "eval/tune/tune.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "eval/journal.h"
#include "test_files.h"

namespace coppice::tune_test {
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
  options.eval.samples = 8;
  options.eval.distractors = 2;
  static const TempFolder folders;
  options.eval.folder = folders.Path(name);
  options.methods = {"static:layer=5"};
  options.budgets = {ParseBudget("1%")};
  options.least = 0.5;
  options.minutes = 0;
  options.most_steps = 1;
  std::filesystem::remove_all(options.eval.folder);
  return options;
}

TuneResult TuneWith(const TuneOptions& options) { return Tune(options, kModel, Bundled(), nullptr, nullptr); }

std::string FailureOf(const TuneOptions& options) {
  try {
    TuneWith(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Which of them is fastest is for quiet machines; what each kept is not.
TEST(Tune, FindsSettingsThatKeepTheAnswers) {
  const TuneOptions options = OptionsOf("finds");
  const TuneResult result = TuneWith(options);
  ASSERT_EQ(result.ranges.size(), 1u);
  const RangeResult& range = result.ranges[0];
  EXPECT_EQ(range.min_tokens, 461);
  EXPECT_EQ(range.max_tokens, 768);
  ASSERT_EQ(range.tasks.size(), 1u);
  EXPECT_TRUE(range.tasks[0].used) << "the bundled model finds needles in 512 tokens";
  EXPECT_EQ(range.tasks[0].samples, 4u);
  ASSERT_EQ(range.picks.size(), 1u);
  const Pick& pick = range.picks[0];
  ASSERT_TRUE(pick.chosen.has_value()) << pick.why;
  const Candidate& c = range.search.tried[*pick.chosen];
  EXPECT_EQ(c.quality.samples, 4u);
  EXPECT_GE(c.quality.score, c.quality.dense_score - 1e-9);
  EXPECT_GT(c.mean_kl(), 0);
  EXPECT_EQ(pick.held_out.quality.samples, 4u);
  ASSERT_TRUE(c.cost.has_value());
  EXPECT_LT(c.cost->flops, 0.9);
  const ordered_json rows = ordered_json::parse(std::ifstream(options.eval.folder + "/tune.json"));
  EXPECT_FALSE(rows.empty());
}

// The promise, asked of `coppice eval`: the same samples, of both halves, under the spec that came out.
TEST(Tune, WhatItFindsKeepsTheBudgetWhenEvaluated) {
  TuneOptions options = OptionsOf("promise");
  options.methods = {"static:layer=3", "random:layers=4/6/8"};
  options.budgets = {ParseBudget("1%"), ParseBudget("kl=0.001")};
  const RangeResult range = TuneWith(options).ranges[0];
  for (const Pick& pick : range.picks) {
    if (!pick.chosen) continue;
    const Candidate& c = range.search.tried[*pick.chosen];
    EvalOptions eval = options.eval;
    eval.folder += "/eval";
    eval.prune = {c.spec};
    std::filesystem::remove_all(eval.folder);
    const std::vector<ResultRow> rows = Evaluate(eval, kModel, Bundled(), nullptr, nullptr).rows;
    const double score = c.quality.score + pick.held_out.quality.score;
    const double dense = c.quality.dense_score + pick.held_out.quality.dense_score;
    EXPECT_NEAR(rows[0].score, 100 * dense / 8, 1e-9);
    EXPECT_NEAR(rows[1].score, 100 * score / 8, 1e-9) << c.spec;
    EXPECT_NEAR(rows[1].kl, (c.quality.kl + pick.held_out.quality.kl) / 8, 1e-9) << c.spec;
    EXPECT_LT(rows[1].flops_ratio, 1);
  }
}

// Trials take prefixes from a document cache without a change of any answer.
TEST(Tune, DocumentsChangeNothingButTime) {
  const std::unique_ptr<Engine> cached =
      Engine::Load(kModel, {.threads = 1, .documents = DocumentCacheOptions{.memory_bytes = 64 << 20}});
  const TuneOptions plain = OptionsOf("plain"), with = OptionsOf("with_documents");
  TuneWith(plain);
  Tune(with, kModel, *cached, nullptr, nullptr);
  EXPECT_GT(cached->documents()->stats().hits, 0);
  const auto records = [](const TuneOptions& o) {
    std::vector<std::string> all;
    for (SampleRecord& record : ReadRecordedRun(o.eval.folder + "/tune.jsonl").records) {
      record.arms[0].total_ms.reset();
      all.push_back(ToJson(record).dump());
    }
    return all;
  };
  EXPECT_EQ(records(plain), records(with));
}

TEST(Tune, LeavesOutWhatTheModelCannotDo) {
  TuneOptions options = OptionsOf("tasks");
  options.eval.tasks = {"niah", "ruler/niah_single_2"};
  const RangeResult range = TuneWith(options).ranges[0];
  ASSERT_EQ(range.tasks.size(), 2u);
  EXPECT_TRUE(range.tasks[0].used);
  EXPECT_FALSE(range.tasks[1].used);
  EXPECT_LT(range.tasks[1].samples, 4u) << "it ends where the score is out of reach";
  EXPECT_THAT(range.tasks[1].why, HasSubstr("50 is out of reach"));
  options.eval.tasks = {"ruler/niah_single_2"};
  options.eval.folder += "/none";
  const RangeResult none = TuneWith(options).ranges[0];
  EXPECT_TRUE(none.picks.empty());
  EXPECT_THAT(none.why, HasSubstr("below 50 % on every task"));
}

TEST(Tune, GoesOnWhereItWasAndServesOtherBudgets) {
  TuneOptions options = OptionsOf("resumes");
  options.most_steps = 0;
  const TuneResult first = TuneWith(options);
  const std::string journal = options.eval.folder + "/tune.jsonl";
  const size_t records = ReadRecordedRun(journal).records.size();
  EXPECT_GE(records, 10u);
  const TuneResult again = TuneWith(options);
  EXPECT_EQ(ReadRecordedRun(journal).records.size(), records) << "nothing is run again";
  ASSERT_EQ(again.ranges[0].search.tried.size(), first.ranges[0].search.tried.size());
  options.budgets = {ParseBudget("kl=0")};
  const TuneResult none = TuneWith(options);
  EXPECT_FALSE(none.ranges[0].picks[0].chosen.has_value());
  EXPECT_THAT(none.ranges[0].picks[0].why, HasSubstr("nothing within the budget: the nearest is static:"));
  options.eval.seed = 5;
  EXPECT_THAT(FailureOf(options), HasSubstr("was begun with seed = 1, not 5"));
}

// Ctrl-C at any point: a result that says how far it came, and a journal from which the same command goes on.
TEST(Tune, SaysHowFarItCameWhenInterrupted) {
  for (const int after : {1, 6, 14, 18}) {
    const TuneOptions options = OptionsOf("interrupted");
    std::atomic<bool> cancelled = false;
    int notes = 0;
    const TuneResult result = Tune(options, kModel, Bundled(), &cancelled,
                                   [&](const SearchProgress&) { cancelled = ++notes > after; });
    EXPECT_TRUE(result.interrupted) << after;
    ASSERT_EQ(result.ranges.size(), 1u);
    EXPECT_THAT(HowFar(result.ranges[0]), HasSubstr("interrupted: the same command goes on from here"));
    EXPECT_TRUE(std::filesystem::exists(options.eval.folder + "/tune.json"));
    const std::string journal = options.eval.folder + "/tune.jsonl";
    const size_t done = std::filesystem::exists(journal) ? ReadRecordedRun(journal).records.size() : 0;
    if (after > 6) {
      EXPECT_GE(done, 4u) << "nothing that was answered is lost";
    }
    const TuneResult whole = TuneWith(options);
    EXPECT_FALSE(whole.interrupted);
    EXPECT_TRUE(whole.ranges[0].picks[0].chosen.has_value());
  }
}

// A run with a limit of so many minutes, by a clock on which a dense answer takes `step` seconds, and every
// answer behind them three fifths of it.
struct Clocked {
  double now = 0, last_share = 0, most_left = 0;
  bool forward = true, early = false;
  std::vector<std::string> said;
  TuneResult result;
};

Clocked TuneBy(double step, double minutes, TuneOptions options) {
  Clocked run;
  options.minutes = minutes;
  double before = 0;  // of the answer that is being computed
  double pace = step;
  options.answering = [&](double share) {
    if (share < before) before = 0;
    run.now += pace * (share - before);
    before = share;
  };
  options.clock = [&run] { return run.now; };
  options.say = [&run](const std::string& line) { run.said.push_back(line); };
  std::vector<double> shares;
  run.result = Tune(options, kModel, Bundled(), nullptr, [&](const SearchProgress& progress) {
    shares.push_back(progress.share);
    pace = progress.label.find("dense, ") == std::string::npos ? 0.6 * step : step;
    run.most_left = std::max(run.most_left, progress.left);
  });
  run.forward = std::is_sorted(shares.begin(), shares.end());
  run.last_share = shares.back();
  shares.pop_back();
  run.early = std::any_of(shares.begin(), shares.end(), [](double share) { return share >= 1; });
  return run;
}

TuneOptions ManySettings(const std::string& name) {
  TuneOptions options = OptionsOf(name);
  options.eval.samples = 16;
  options.methods = {"static", "random"};
  options.budgets = {ParseBudget("1%"), ParseBudget("5%")};
  return options;
}

TEST(Tune, TheLimitHoldsAndLeavesTimeForTheHeldOutHalf) {
  for (const auto& [step, minutes] : {std::pair{1.0, 0.7}, {3.0, 3.0}, {3.0, 40.0}}) {
    const Clocked run = TuneBy(step, minutes, ManySettings(fmt::format("limit_{}_{}", step, minutes)));
    EXPECT_LE(run.now, 60 * minutes + 3 * step) << step << " in " << minutes;
    EXPECT_LE(run.most_left, 60 * minutes) << "no more is left than there is";
    EXPECT_TRUE(run.forward);
    EXPECT_FALSE(run.early) << "100 % is the end";
    EXPECT_EQ(run.last_share, 1);
    ASSERT_EQ(run.said.size(), 1u);
    EXPECT_THAT(run.said[0], HasSubstr("512 tokens: 1 task, "));
    EXPECT_THAT(run.said[0], HasSubstr(" s for a dense answer: "));
    const RangeResult& range = run.result.ranges[0];
    if (!range.search.out_of_time) continue;
    EXPECT_THAT(HowFar(range), HasSubstr("the time limit (--time-limit) ended it"));
  }
}

// What the search found in its time has been tested on the other half when the limit comes.
TEST(Tune, ALimitedRunHasATestedResult) {
  TuneOptions options = ManySettings("tested");
  options.methods = {"static", "random", "lazyllm", "ftp"};
  const Clocked run = TuneBy(2, 1.5, options);
  const RangeResult& range = run.result.ranges[0];
  EXPECT_TRUE(range.search.out_of_time);
  EXPECT_TRUE(std::any_of(range.picks.begin(), range.picks.end(), [](const Pick& pick) {
    return pick.chosen.has_value() || !pick.rejected.empty();
  })) << HowFar(range);
  EXPECT_THAT(HowFar(range), HasSubstr("that the search had not seen"));
}

TEST(Tune, ALimitThatDenseRunsAloneBreakIsSaid) {
  TuneOptions options = OptionsOf("no_time");
  const Clocked run = TuneBy(5, 0.1, options);
  const RangeResult& range = run.result.ranges[0];
  EXPECT_THAT(HowFar(range), HasSubstr("tested no setting; the time limit"));
  EXPECT_EQ(ReadRecordedRun(options.eval.folder + "/tune.jsonl").records.size(), 2u);
  EXPECT_EQ(run.said.size(), 1u) << "the estimate says what to expect";
}

// The same command goes on: every run of it adds to the journal until nothing is left to do.
TEST(Tune, TheSameCommandGoesOnFromHere) {
  const TuneOptions options = ManySettings("goes_on");
  size_t before = 0;
  bool ended = false;
  for (int run = 0; run < 40 && !ended; ++run) {
    ended = !TuneBy(2, 1, options).result.ranges[0].search.out_of_time;
    const size_t records = ReadRecordedRun(options.eval.folder + "/tune.jsonl").records.size();
    EXPECT_TRUE(ended || records > before) << "run " << run;
    before = records;
  }
  EXPECT_TRUE(ended);
}

TEST(Tune, QuickTriesTheLikelySettingsAlone) {
  TuneOptions options = OptionsOf("quick");
  options.eval.lengths = {1024};
  options.eval.samples = 16;
  options.methods = {};
  options.quick = true;
  const RangeResult range = TuneWith(options).ranges[0];
  EXPECT_THAT(range.search.tried, testing::SizeIs(testing::AllOf(testing::Ge(3u), testing::Le(12u))));
  EXPECT_EQ(range.search.samples, 4u);
  EXPECT_TRUE(range.search.tried[0].spec.starts_with("coppice")) << range.search.tried[0].spec;
}

TEST(Tune, BadOptionsAreErrorsThatNameThem) {
  TuneOptions options = OptionsOf("bad");
  options.methods = {"h2o"};
  EXPECT_THAT(FailureOf(options), HasSubstr("methods h2o"));
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
}  // namespace coppice::tune_test
