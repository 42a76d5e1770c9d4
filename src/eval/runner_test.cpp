// Whole runs on the bundled model: records, resuming, settings, interruption.
#include "eval/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "eval/journal.h"
#include "eval/setup.h"
#include "eval/summary.h"
#include "formats/json.h"
#include "test_files.h"

namespace coppice::runner_test {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;

const std::string kModel = std::string(COPPICE_SOURCE_DIR) + "/models/coppice-mini-f16.gguf";

Engine& Bundled() {
  static const std::unique_ptr<Engine> engine = Engine::Load(kModel, {.time_operations = true});
  return *engine;
}

// A fresh folder for each test.
EvalOptions OptionsOf(const std::string& name) {
  EvalOptions options;
  options.tasks = {"niah"};
  options.prune = {"random:layers=4/6/8,keep=0.25/0.5/0.5,min=0"};
  options.lengths = {512};
  options.samples = 2;
  static const TempFolder folders;
  options.folder = folders.Path(name);
  std::filesystem::remove_all(options.folder);
  return options;
}

ordered_json JsonOf(const std::vector<ResultRow>& rows) {
  ordered_json list = ordered_json::array();
  for (const ResultRow& row : rows) list.push_back(ToJson(row));
  return list;
}

ordered_json RowsOf(const EvalOptions& options) {
  return JsonOf(Evaluate(options, kModel, Bundled(), nullptr, nullptr).rows);
}

std::string FailureOf(const EvalOptions& options) {
  try {
    RowsOf(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::string> LinesOf(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Runner, RowsHoldWhatAReportNeeds) {
  EvalOptions options = OptionsOf("rows");
  double last = 0;
  const auto result = Evaluate(options, kModel, Bundled(), nullptr, [&](const EvalProgress& progress) {
    EXPECT_GE(progress.share, last - 1e-9);
    EXPECT_LE(progress.share, 1 + 1e-9);
    last = progress.share;
    EXPECT_THAT(progress.label, HasSubstr("niah 512"));
  });
  const ordered_json rows = JsonOf(result.rows);
  EXPECT_GT(last, 0.9);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows.dump(), ordered_json::parse(std::ifstream(options.folder + "/results.json")).dump());
  const ordered_json& dense = rows[0];
  const ordered_json& pruned = rows[1];
  EXPECT_EQ(dense["prune"], "none");
  EXPECT_GE(dense["score"].get<double>(), 50) << "the bundled model finds needles in 512 tokens";
  EXPECT_EQ(dense["flops_ratio"], 1.0);
  EXPECT_EQ(dense["speed_up"], 1.0);
  EXPECT_EQ(dense["kl"], 0.0);
  EXPECT_EQ(pruned["prune"], options.prune[0]);
  EXPECT_EQ(pruned["active"], 2);
  EXPECT_LT(pruned["flops_ratio"].get<double>(), 0.9);
  EXPECT_GT(pruned["kl"].get<double>(), 0);
  EXPECT_EQ(pruned["n"], 2);
  const size_t layers = static_cast<size_t>(Bundled().model().config().shape.layer_count());
  ASSERT_EQ(pruned["kept_per_layer"].size(), layers);
  EXPECT_EQ(pruned["kept_per_layer"][0], 1.0);
  EXPECT_NEAR(pruned["kept_per_layer"][layers - 1].get<double>(), 0.0625, 0.01);
  EXPECT_GT(pruned["parts_ms"]["product"].get<double>(), 0);
  EXPECT_GT(pruned["ttft_ms"].get<double>(), 0);
  EXPECT_GT(pruned["peak_memory_bytes"].get<double>(), 1e6);
  EXPECT_EQ(pruned["by_depth"].size(), 2u);
  const std::vector<std::string> lines = LinesOf(options.folder + "/samples.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  for (size_t i = 1; i < lines.size(); ++i)
    EXPECT_EQ(ToJson(RecordFromJson(ordered_json::parse(lines[i]))).dump(), lines[i])
        << "reads what it wrote";
  EXPECT_EQ(JsonOf(RowsFromJson(rows)).dump(), rows.dump());
  EXPECT_THAT(pruned["spec"].get<std::string>(), HasSubstr("random:keep=0.25/0.5/0.5"));
  // What only a trace knows: nothing is dropped before layer 4, and it is dropped everywhere but at the last
  // token.
  ASSERT_EQ(pruned["dropped_by_place"].size(), layers);
  EXPECT_EQ(pruned["dropped_by_place"][3][0], 0.0);
  EXPECT_NEAR(pruned["dropped_by_place"][layers - 1][5].get<double>(), 0.9375, 0.05);
  EXPECT_FALSE(dense.contains("dropped_by_place"));
  EXPECT_EQ(dense["used_by_step"]["all"], ordered_json::array({1.0}));
  EXPECT_NEAR(pruned["used_by_step"]["last"][0].get<double>(), 0.0625, 0.01);
  EXPECT_FALSE(pruned.contains("attention_mass"));
  ASSERT_EQ(dense["attention_mass"].size(), layers - 1);
  EXPECT_EQ(dense["attention_mass"][0].size(), 20u);
  EXPECT_EQ(dense["attention_mass"][0][19], 1.0);
  EXPECT_GT(dense["attention_mass"][3][0].get<double>(), 0.05) << "attention is not even";
  const std::vector<std::string> page = LinesOf(options.folder + "/report.html");
  ASSERT_FALSE(page.empty());
  EXPECT_EQ(page.front(), "<!DOCTYPE html>");
}

TEST(Runner, GoesOnWhereItWas) {
  EvalOptions options = OptionsOf("resume");
  const ordered_json whole = RowsOf(options);
  const std::string journal = options.folder + "/samples.jsonl";
  std::vector<std::string> lines = LinesOf(journal);
  // One sample done, the second torn by a crash in the middle of its line. A mark shows that the first is not
  // run again.
  ordered_json first = ordered_json::parse(lines[1]);
  first["arms"][0]["ttft_ms"] = 123456.0;
  std::ofstream(journal) << lines[0] << "\n" << first.dump() << "\n" << lines[2].substr(0, 100);
  const ordered_json resumed = RowsOf(options);
  EXPECT_EQ(resumed[0]["n"], 2);
  EXPECT_EQ(resumed[0]["score"], whole[0]["score"]);
  EXPECT_GT(resumed[0]["ttft_ms"].get<double>(), 60000);
  const std::vector<std::string> after = LinesOf(journal);
  ASSERT_EQ(after.size(), 3u);
  const ordered_json second = ordered_json::parse(after[2]);
  EXPECT_EQ(second["prompt"], ordered_json::parse(lines[2])["prompt"]);
  EXPECT_EQ(second["arms"][1]["text"], ordered_json::parse(lines[2])["arms"][1]["text"]);
}

// A judge's verdicts are in results.json alone. They stay while the samples do.
TEST(Runner, KeepsVerdictsWithTheirSamples) {
  EvalOptions options = OptionsOf("verdicts");
  options.samples = 1;
  std::vector<ResultRow> rows = Evaluate(options, kModel, Bundled(), nullptr, nullptr).rows;
  ASSERT_EQ(rows.size(), 2u);
  rows[1].win_rate = 75;
  rows[1].verdicts = {1, 1, 0, 0};
  WriteRows(rows, options.folder + "/results.json");
  const ordered_json again = RowsOf(options);
  EXPECT_EQ(again[1]["verdicts"], ordered_json({1, 1, 0, 0}));
  EXPECT_EQ(ReadJsonFile(options.folder + "/results.json")[1]["win_rate"], 75.0);
  EXPECT_FALSE(again[0].contains("verdicts"));
  std::filesystem::remove(options.folder + "/samples.jsonl");
  EXPECT_FALSE(RowsOf(options)[1].contains("verdicts")) << "of samples that are no longer there";
}

TEST(Runner, MissingDataShowsBeforeAnythingIsRun) {
  EvalOptions options = OptionsOf("missing");
  options.tasks = {"niah", "kv_retrieval/75"};
  options.data = {testing::TempDir()};
  EXPECT_THAT(FailureOf(options), HasSubstr("kv_retrieval/75"));
  EXPECT_LE(LinesOf(options.folder + "/samples.jsonl").size(), 1u) << "nothing but the settings";
}

TEST(Runner, RefusesToMixSettings) {
  EvalOptions options = OptionsOf("settings");
  options.samples = 1;
  RowsOf(options);
  EvalOptions other = options;
  other.seed = 7;
  EXPECT_THAT(FailureOf(other), HasSubstr("samples.jsonl: was begun with seed = 1, not 7"));
  other = options;
  other.prune.clear();
  EXPECT_THAT(FailureOf(other), HasSubstr("was begun with prune"));
  // Settings alike, but the text of a sample is another: a haystack's file has changed, say.
  const std::string journal = options.folder + "/samples.jsonl";
  std::vector<std::string> lines = LinesOf(journal);
  ordered_json record = ordered_json::parse(lines[1]);
  record["prompt"] = "0123456789abcdef";
  std::ofstream(journal) << lines[0] << "\n" << record.dump() << "\n";
  EXPECT_THAT(FailureOf(options), HasSubstr("was another text"));
}

TEST(Runner, KeepsWhatWasDoneWhenInterrupted) {
  EvalOptions options = OptionsOf("interrupt");
  std::atomic<bool> cancelled = false;
  EXPECT_THROW(Evaluate(options, kModel, Bundled(), &cancelled,
                        [&](const EvalProgress& progress) {
                          if (progress.label.find("sample 2/2") != std::string::npos) cancelled = true;
                        }),
               Cancelled);
  const json rows = ReadJsonFile(options.folder + "/results.json");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["n"], 1);
  EXPECT_EQ(RowsOf(options)[0]["n"], 2);
}

TEST(Runner, BadOptionsAreErrorsThatNameThem) {
  EvalOptions options = OptionsOf("bad");
  options.lengths = {1 << 22};
  EXPECT_THAT(FailureOf(options), HasSubstr("lengths 4194304: the context is"));
  options.lengths = {20};
  EXPECT_THAT(FailureOf(options), HasSubstr("niah: the shortest prompt and its answer take"));
  options = OptionsOf("bad");
  options.prune = {"ftp", "ftp"};
  EXPECT_THAT(FailureOf(options), HasSubstr("prune ftp: named twice"));
  options.prune = {"none"};
  EXPECT_THAT(FailureOf(options), HasSubstr("prune none: named twice"));
  options.prune = {"no_such_method"};
  EXPECT_THAT(FailureOf(options), HasSubstr("no_such_method"));
  options = OptionsOf("bad");
  options.haystack = "/no/such/file";
  EXPECT_THAT(FailureOf(options), HasSubstr("/no/such/file"));
  options.haystack = "";
  options.tasks = {"nothing"};
  EXPECT_THAT(FailureOf(options), HasSubstr("'nothing' is no task"));
  options.tasks = {};
  EXPECT_THAT(FailureOf(options), HasSubstr("name a task"));
  options = OptionsOf("bad");
  options.chat = true;
  EXPECT_THAT(FailureOf(options), HasSubstr("chat: the model has no chat template"));
  options = OptionsOf("bad");
  std::ofstream(options.folder).put('x');  // a file where the folder should be
  EXPECT_THAT(FailureOf(options), HasSubstr(options.folder));
}

// A journal goes on only where its samples' hashes are those of now.
TEST(HashOf, KeepsItsValues) {
  Sample sample;
  sample.prompt = "the prompt";
  sample.metric = "qa_f1";
  sample.references = {"阅", "b"};
  sample.choices = {{.context = "one", .continuation = "two"}};
  EXPECT_EQ(HashOf(sample), "8ac7b486c30b81e8");
}

TEST(Summary, MediansMeansAndPerplexity) {
  const auto run = [](const char* prune, double score, double ttft) {
    return ordered_json{{"prune", prune},    {"score", score},
                        {"ttft_ms", ttft},   {"flops", prune[0] == 'n' ? 10 : 4},
                        {"flops_dense", 10}, {"kept_per_layer", {1.0, score}},
                        {"kl", 0.5}};
  };
  std::vector<SampleRecord> records;
  for (int i = 0; i < 3; ++i) {
    records.push_back(RecordFromJson({{"task", "t"},
                                      {"length", 8},
                                      {"id", std::to_string(i)},
                                      {"metric", "qa_f1"},
                                      {"depth", 0.5},
                                      {"arms", {run("none", 1, 10 + i), run("m", i == 0 ? 1 : 0, 5)}}}));
  }
  const std::vector<ResultRow> rows = Summarize(records);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].score, 100.0);
  EXPECT_NEAR(rows[1].score, 100.0 / 3, 1e-9);
  EXPECT_NEAR(rows[1].score_error, 100.0 / 3, 1e-9);  // deviation 57.7 over the root of 3
  // Wilson's interval of 3 of 3 and of 1 of 3, as published tables have it.
  EXPECT_NEAR(rows[0].score_interval.low, 43.85, 0.01);
  EXPECT_NEAR(rows[0].score_interval.high, 100, 1e-9);
  EXPECT_NEAR(rows[1].score_interval.low, 6.15, 0.01);
  EXPECT_NEAR(rows[1].score_interval.high, 79.23, 0.01);
  EXPECT_EQ(rows[0].ttft_ms, 11.0);
  EXPECT_EQ(rows[1].speed_up, 11.0 / 5);
  EXPECT_EQ(rows[1].flops_ratio, 0.4);
  EXPECT_NEAR(rows[1].kept_per_layer[1], 1.0 / 3, 1e-9);
  EXPECT_EQ(rows[1].by_depth[0].n, 3);
  EXPECT_TRUE(std::isnan(rows[1].score_norm));

  // Perplexity is of all tokens, not the mean of the samples'.
  const ordered_json one = {{"prune", "none"}, {"nll", 2.0}, {"scored_tokens", 1}, {"score", std::exp(2.0)}};
  const ordered_json two = {{"prune", "none"}, {"nll", 1.0}, {"scored_tokens", 2}, {"score", std::exp(0.5)}};
  const auto record = [](const char* id, const ordered_json& arm) {
    return RecordFromJson(
        {{"task", "p"}, {"length", 8}, {"id", id}, {"metric", "perplexity"}, {"arms", {arm}}});
  };
  const std::vector<ResultRow> perplexity = Summarize({record("0", one), record("1", two)});
  EXPECT_NEAR(perplexity[0].score, std::exp(1.0), 1e-9);
  // Logarithms 2 and 0.5: their deviation over the root of 2 is 0.75.
  EXPECT_NEAR(perplexity[0].score_interval.high, std::exp(1.0 + 1.959964 * 0.75), 1e-4);
}

TEST(Arm, LikelihoodsAreThoseOfTheModel) {
  Engine& engine = Bundled();
  TaskMetrics metrics;
  ArmContext context{engine, metrics};
  DenseLogits dense;
  const Choice choice{
      "The secret code of the misty harbor is 48213. Question: What is the secret code? Answer:",
      " 48213. Yes"};
  const EncodedChoice encoded = EncodeChoice(choice, *engine.tokenizer());
  ASSERT_GT(encoded.continuation.size(), 5u);
  Sample sample{.id = "0", .kind = SampleKind::kContinue, .choices = {choice}};
  const SampleResult run = RunSample(sample, "none", context, dense);
  EXPECT_EQ(run.scored_tokens, static_cast<int64_t>(encoded.continuation.size()));
  EXPECT_EQ(dense.positions.size(), encoded.continuation.size());

  // Against the model's own account of the whole text.
  std::vector<int32_t> whole = encoded.context;
  whole.insert(whole.end(), encoded.continuation.begin(), encoded.continuation.end());
  Workspace workspace = engine.model().NewWorkspace(512);
  const std::unique_ptr<Backend> backend = MakeBackend("reference", {});
  const TextScore score = engine.model().Score(whole, workspace, *backend);
  double expected = 0;
  for (size_t i = encoded.context.size(); i < whole.size(); ++i) expected -= score.log_probabilities[i];
  EXPECT_NEAR(run.nll.value(), expected, 0.03 * expected + 0.05);

  // The choice that the text goes on with wins; dense against itself does not diverge.
  sample = {.id = "0",
            .kind = SampleKind::kChoose,
            .choices = {{choice.context, " 55555."}, {choice.context, " 48213."}},
            .gold = 1};
  EXPECT_EQ(RunSample(sample, "none", context, dense).score.value(), 1);
  sample.gold = 0;
  EXPECT_EQ(RunSample(sample, "none", context, dense).score.value(), 0);
  EXPECT_NEAR(RunSample(sample, "random:layers=4,keep=1,min=0", context, dense).kl.value(), 0, 1e-9);
  EXPECT_GT(RunSample(sample, "random:layers=1,keep=0.2,min=0", context, dense).kl.value(), 1e-4);
  // Normalised, the long continuation that is half as likely per character wins over a short one.
  sample.choices[0].norm_length = 1000;
  EXPECT_EQ(RunSample(sample, "none", context, dense).score_norm.value(), 1);
}

TEST(Arm, SpacesBelongToTheContinuation) {
  const Tokenizer& tokenizer = *Bundled().tokenizer();
  const EncodedChoice with = EncodeChoice({"The answer is ", "seven"}, tokenizer);
  const EncodedChoice without = EncodeChoice({"The answer is", " seven"}, tokenizer);
  EXPECT_EQ(with.context, without.context);
  EXPECT_EQ(with.continuation, without.continuation);
  EXPECT_FALSE(with.continuation.empty());
}

TEST(Arm, DivergenceOfKnownDistributions) {
  const std::vector<float> even = {0, 0}, tilted = {std::log(3.0f), 0};
  EXPECT_NEAR(Divergence(even, tilted), 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25), 1e-6);
  EXPECT_NEAR(Divergence(tilted, even), 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-6);
  EXPECT_EQ(Divergence(even, even), 0);
  EXPECT_NEAR(LogProbability(tilted, 1), std::log(0.25), 1e-6);
}

TEST(Arm, TheFirstLineEndsAnAnswer) {
  Engine& engine = Bundled();
  TaskMetrics metrics;
  ArmContext context{engine, metrics};
  DenseLogits dense;
  Sample sample{.id = "0",
                .prompt =
                    "The secret code of the misty harbor is 48213.\nQuestion: What is the secret code of the "
                    "misty harbor?\nAnswer:",
                .answer_prefix = " The secret code of the misty harbor is",
                .metric = "number_match",
                .references = {"48213"},
                .max_tokens = 40};
  const SampleResult whole = RunSample(sample, "none", context, dense);
  EXPECT_EQ(whole.score.value(), 1);
  sample.first_line = true;
  const SampleResult line = RunSample(sample, "none", context, dense);
  EXPECT_LE(line.generated_tokens.value(), whole.generated_tokens.value());
  const std::string text = line.text.value();
  const size_t end = text.find('\n', text.find_first_not_of('\n'));
  EXPECT_TRUE(end == std::string::npos || end == text.size() - 1) << text;
}

}  // namespace
}  // namespace coppice::runner_test
