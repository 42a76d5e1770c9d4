// Calibrations from whole runs, and what tuning again does to them.
#include "eval/tune/calibration_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/calibration.h"
#include "test_files.h"

namespace coppice::calibration_writer_test {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

const std::string kModel = std::string(COPPICE_SOURCE_DIR) + "/models/coppice-mini-f16.gguf";

ordered_json Setting(const std::string& method, double ratio) {
  return {{"method", method},
          {"prune", ratio < 1 ? method + ":min=0" : "none"},
          {"ttft_ratio", ratio},
          {"held_out", {{"n", 20}, {"score", 95}, {"dense", 95}}}};
}

// The best of the methods stands in the entry.
ordered_json EntryOf(double loss, int64_t length, const std::vector<ordered_json>& methods, int seed = 1) {
  ordered_json entry = {
      {"loss", loss}, {"length", length}, {"min_tokens", length / 2}, {"max_tokens", length * 2}};
  entry.update(methods.front());
  entry["methods"] = methods;
  entry["made"] = {{"date", "2026-01-01"}, {"chat", true}, {"seed", seed}, {"tasks", ordered_json::array()}};
  return entry;
}

ordered_json FileOf(const std::vector<ordered_json>& entries, const std::string& fingerprint = "f") {
  return {{"format", kCalibrationFormat},
          {"version", kCalibrationVersion},
          {"model", {{"fingerprint", fingerprint}}},
          {"entries", entries}};
}

TEST(MergeCalibrations, KeepsOtherLossesAndLengths) {
  const ordered_json before =
      FileOf({EntryOf(0.05, 4096, {Setting("ftp", 0.8)}), EntryOf(0.01, 8192, {Setting("ftp", 0.7)}),
              EntryOf(0.01, 4096, {Setting("ftp", 0.9)}, 2)});
  const ordered_json made =
      MergeCalibrations(before, FileOf({EntryOf(0.01, 4096, {Setting("static", 0.5)})}));
  ASSERT_EQ(made["entries"].size(), 3u);
  EXPECT_EQ(made["entries"][0]["prune"], "static:min=0")
      << "by length, then by loss; other samples are replaced";
  EXPECT_EQ(made["entries"][0]["methods"].size(), 1u);
  EXPECT_EQ(made["entries"][1]["loss"], 0.05);
  EXPECT_EQ(made["entries"][2]["length"], 8192);
}

TEST(MergeCalibrations, MethodsThatWereNotTunedAgainStay) {
  const ordered_json before = FileOf({EntryOf(0.01, 4096, {Setting("ftp", 0.6), Setting("static", 0.7)})});
  ordered_json made = MergeCalibrations(before, FileOf({EntryOf(0.01, 4096, {Setting("static", 0.8)})}));
  ordered_json entry = made["entries"][0];
  EXPECT_EQ(entry["prune"], "ftp:min=0") << "the faster one, though it is older";
  EXPECT_EQ(entry["ttft_ratio"], 0.6);
  ASSERT_EQ(entry["methods"].size(), 2u);
  EXPECT_EQ(entry["methods"][0]["ttft_ratio"], 0.8);
  made = MergeCalibrations(before, FileOf({EntryOf(0.01, 4096, {Setting("lazyllm", 0.5)})}));
  EXPECT_EQ(made["entries"][0]["prune"], "lazyllm:min=0");
  EXPECT_EQ(made["entries"][0]["methods"].size(), 3u);
}

// A search that was ended too soon must not undo another.
TEST(MergeCalibrations, AnUnfinishedEntryReplacesNoneButItsLike) {
  ordered_json unfinished = EntryOf(0.01, 4096, {Setting("ftp", 1)}, 2);
  unfinished["unfinished"] = true;
  unfinished["why"] = "no setting was found so far";
  const ordered_json found = EntryOf(0.01, 4096, {Setting("static", 0.5)});
  const auto merged = [](const ordered_json& old, const ordered_json& made) {
    return MergeCalibrations(FileOf({old}), FileOf({made}))["entries"][0];
  };
  EXPECT_EQ(merged(found, unfinished), found);
  EXPECT_EQ(merged(unfinished, found)["prune"], "static:min=0");
  EXPECT_FALSE(merged(unfinished, found).contains("unfinished"));
  ordered_json later = unfinished;
  later["made"]["seed"] = 3;
  EXPECT_EQ(merged(unfinished, later)["made"]["seed"], 3);
}

// Attention that is sparse from layer 0 on leaves a second question nothing.
TEST(MergeCalibrations, TheFastestServesOneQuestionIfItLeavesNoStates) {
  ordered_json sparse = Setting("static+minference", 0.3);
  sparse["reused_layers"] = 0;
  ordered_json late = Setting("static", 0.5);
  late["reused_layers"] = 8;
  const auto merged = [](const ordered_json& old, const ordered_json& made) {
    return MergeCalibrations(FileOf({EntryOf(0.01, 4096, {old})}),
                             FileOf({EntryOf(0.01, 4096, {made})}))["entries"][0];
  };
  for (const ordered_json& entry : {merged(sparse, late), merged(late, sparse)}) {
    EXPECT_EQ(entry["prune"], "static:min=0");
    EXPECT_EQ(entry["one_question"]["prune"], "static+minference:min=0");
    EXPECT_EQ(entry["methods"].size(), 2u);
  }
  const ordered_json alone = merged(sparse, Setting("static", 1.2));
  EXPECT_EQ(alone["prune"], "static+minference:min=0") << "still faster than dense for the first question";
  EXPECT_FALSE(alone.contains("one_question"));
}

TEST(MergeCalibrations, OtherWeightsStartAnew) {
  const ordered_json before = FileOf({EntryOf(0.05, 4096, {Setting("ftp", 0.8)})}, "other");
  EXPECT_EQ(
      MergeCalibrations(before, FileOf({EntryOf(0.01, 4096, {Setting("static", 0.5)})}))["entries"].size(),
      1u);
}

TEST(WriteCalibration, ReplacesWholeFilesAndNothingElse) {
  const TempFolder dir;
  const std::string path = dir.Path("m.gguf.coppice.json");
  WriteCalibration(path, FileOf({EntryOf(0.01, 4096, {Setting("static", 0.5)})}));
  WriteCalibration(path, FileOf({EntryOf(0.05, 4096, {Setting("static", 0.4)})}));
  EXPECT_EQ(ordered_json::parse(std::ifstream(path))["entries"].size(), 2u);
  EXPECT_EQ(dir.CountFiles(), 1u);
  dir.Write("notes.json", "{\"mine\": true}");
  EXPECT_THAT(ErrorOf([&] {
                WriteCalibration(dir.Path("notes.json"),
                                 FileOf({EntryOf(0.01, 4096, {Setting("static", 0.5)})}));
              }),
              HasSubstr("notes.json: format is missing"));
  EXPECT_EQ(ordered_json::parse(std::ifstream(dir.Path("notes.json")))["mine"], true);
}

TEST(ReadableJson, IsTheSameJson) {
  const ordered_json json = FileOf({EntryOf(0.01, 4096, {Setting("static", 0.5), Setting("ftp", 1.2)})});
  const std::string text = ReadableJson(json);
  EXPECT_EQ(ordered_json::parse(text), json);
  EXPECT_THAT(text, HasSubstr("\n     \"held_out\": {\"n\": 20, \"score\": 95, \"dense\": 95}"));
  for (const char* odd : {"{}", "[]", "5", "\"a\\\"b\"", "[[], {}, [1, [2]]]"})
    EXPECT_EQ(ordered_json::parse(ReadableJson(ordered_json::parse(odd))), ordered_json::parse(odd));
}

// From a search to a prompt that asks for auto.
TEST(Calibration, OfARunServesThePrompts) {
  const TempFolder dir;
  dir.Copy(kModel, "m.gguf");
  const std::string model = dir.Path("m.gguf");
  TuneOptions options;
  options.eval.tasks = {"niah"};
  options.eval.lengths = {512};
  options.eval.samples = 8;
  options.eval.distractors = 2;
  options.eval.folder = dir.Path("work");
  options.methods = {"static:layer=5", "ftp:eta=0.5"};
  options.budgets = {ParseBudget("1%"), ParseBudget("kl=0.001")};
  options.least = 0.5;
  options.minutes = 0;
  options.most_steps = 0;
  options.chosen_tasks = true;
  const std::unique_ptr<Engine> engine = Engine::Load(model, {.threads = 1});
  const TuneResult result = Tune(options, model, *engine, nullptr, nullptr);
  const ordered_json made = CalibrationJson(result, options, {model, "0.1.0", "2026-01-02"}, *engine);
  ASSERT_EQ(made["entries"].size(), 1u) << "a divergence has no loss that auto could ask for";
  const ordered_json& entry = made["entries"][0];
  EXPECT_EQ(entry["methods"].size(), 2u);
  EXPECT_EQ(entry["made"]["tasks"][0]["task"], "niah");
  EXPECT_EQ(entry["made"]["date"], "2026-01-02");
  EXPECT_EQ(entry["kinds"], ordered_json({"competing_facts"}));
  EXPECT_EQ(entry["chosen_tasks"], true);
  WriteCalibration(CalibrationPathOf(model), made);
  const ResolvedPrune resolved = engine->ResolvePrune("auto", 512, PromptStates::kKept);
  EXPECT_EQ(resolved.spec, entry["prune"]);
  EXPECT_THAT(resolved.reason, HasSubstr("calibration m.gguf.coppice.json: 1 % loss, 461 to 768 tokens"));
}

}  // namespace
}  // namespace coppice::calibration_writer_test
