// What a calibration was made of, and which prompts it serves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/calibration.h"
#include "engine/engine.h"
#include "engine/fingerprint.h"
#include "engine/open_model.h"
#include "engine/question_kinds.h"
#include "engine/request_form.h"
#include "test_files.h"

namespace coppice {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kKindsModel = std::string(COPPICE_SOURCE_DIR) + "/models/coppice-mini-f16.gguf";
const std::vector<std::string> kBroad = {"one_fact", "competing_facts", "several_keys", "several_values",
                                         "several_queries"};

json EntryWith(const json& more, const std::string& prune = "static:keep=0.5,layer=5,min=0") {
  json entry = {{"loss", 0.01},
                {"length", 400},
                {"min_tokens", 300},
                {"max_tokens", 500},
                {"prune", prune},
                {"why", "no setting kept the answers"},
                {"held_out", {{"score", 98.0}, {"dense", 98.5}, {"n", 50}}}};
  entry.update(more);
  return entry;
}

json FileWith(const std::vector<json>& entries, const std::string& fingerprint = "0123") {
  return {{"format", "coppice calibration"},
          {"version", 1},
          {"model", {{"fingerprint", fingerprint}}},
          {"entries", entries}};
}

Calibration ReadKinds(const std::vector<json>& entries) {
  return ParseCalibration(FileWith(entries).dump(), "m.gguf.coppice.json");
}

json MadeOf(const std::vector<std::pair<std::string, bool>>& tasks) {
  json list = json::array();
  for (const auto& [task, used] : tasks) list.push_back({{"task", task}, {"used", used}, {"n", 8}});
  return {{"made", {{"tasks", list}}}};
}

ResolvedPrune AskKinds(const json& more, PromptForm form = PromptForm::kQuestion,
                       PromptStates states = PromptStates::kDiscarded) {
  return ChooseSetting({ReadKinds({EntryWith(more)})}, 0.01, 400, states, form);
}

TEST(QuestionKinds, HaveNamesAndWords) {
  EXPECT_EQ(KindOfTask("niah", false), QuestionKind::kCompetingFacts);
  EXPECT_EQ(KindOfTask("niah", true), QuestionKind::kOneFact);
  EXPECT_EQ(KindOfTask("ruler/niah_single_3", false), QuestionKind::kOneFact);
  EXPECT_EQ(KindOfTask("ruler/niah_multikey_2", false), QuestionKind::kSeveralKeys);
  EXPECT_EQ(KindOfTask("my/task", false), QuestionKind::kOther);
  for (const std::string& name : kBroad) EXPECT_EQ(NameOf(*KindNamed(name)), name);
  EXPECT_FALSE(KindNamed("poems").has_value());
  const std::vector<QuestionKind> two = {QuestionKind::kSeveralKeys, QuestionKind::kOneFact,
                                         QuestionKind::kOneFact};
  EXPECT_EQ(WordsOf(two), "one fact among noise and several keys");
  EXPECT_TRUE(IsNarrow(two));
}

// The fault: a calibration of single facts chose for several questions at once, and its line reassured.
TEST(CalibrationKinds, FilesOfSingleFactsAreNotBelieved) {
  const json old =
      MadeOf({{"ruler/niah_single_1", true}, {"ruler/niah_single_2", true}, {"ruler/niah_single_3", false}});
  const CalibrationEntry entry = ReadKinds({EntryWith(old)}).entries[0];
  EXPECT_TRUE(entry.narrow);
  EXPECT_THAT(entry.kinds, ElementsAre(QuestionKind::kOneFact));
  const ResolvedPrune resolved = AskKinds(old);
  EXPECT_EQ(resolved.spec, "none");
  EXPECT_THAT(resolved.reason, HasSubstr("dense, it was measured on one fact among noise only"));
  EXPECT_THAT(resolved.reason, HasSubstr("coppice tune"));
}

TEST(CalibrationKinds, WhoeverChoseTheTasksIsServedAndTold) {
  json chosen = {{"kinds", {"one_fact"}}, {"chosen_tasks", true}};
  chosen["one_question"] = {{"prune", "static:keep=0.2,layer=3,min=0"},
                            {"held_out", {{"score", 97.0}, {"dense", 98.5}, {"n", 40}}}};
  const ResolvedPrune resolved = AskKinds(chosen);
  EXPECT_EQ(resolved.spec, "static:keep=0.5,layer=5,min=0") << "of few kinds the milder setting";
  EXPECT_THAT(resolved.reason, HasSubstr("n=50, measured on one fact among noise only"));
  chosen["chosen_tasks"] = false;
  EXPECT_EQ(AskKinds(chosen).spec, "none");
}

TEST(CalibrationKinds, ManyKindsAreBelieved) {
  const ResolvedPrune resolved = AskKinds({{"kinds", kBroad}});
  EXPECT_EQ(resolved.spec, "static:keep=0.5,layer=5,min=0");
  EXPECT_THAT(resolved.reason,
              testing::EndsWith("measured on one fact among noise, facts that compete, several keys, several "
                                "values of one key and several questions at once"));
  // What dense cannot answer, pruning cannot lose.
  const std::vector<std::string> able(kBroad.begin(), kBroad.end() - 2),
      unable(kBroad.end() - 2, kBroad.end());
  EXPECT_NE(AskKinds({{"kinds", able}, {"unable", unable}}).spec, "none");
  EXPECT_EQ(AskKinds({{"kinds", able}}).spec, "none");
  // A file of an earlier version, made from its default tasks.
  EXPECT_NE(AskKinds(MadeOf({{"niah", true},
                             {"ruler/niah_single_1", true},
                             {"ruler/niah_multikey_1", true},
                             {"ruler/niah_multivalue", false},
                             {"ruler/niah_multiquery", true}}))
                .spec,
            "none");
}

TEST(CalibrationKinds, ABelievedEntryComesBeforeANarrowOne) {
  const Calibration beside = ReadKinds({EntryWith({{"kinds", {"one_fact"}}})});
  const Calibration shipped = ReadKinds({EntryWith({{"kinds", kBroad}}, "ftp")});
  EXPECT_EQ(ChooseSetting({beside, shipped}, 0.01, 400, PromptStates::kKept).spec, "ftp");
  EXPECT_EQ(AskKinds(json::object()).spec, "static:keep=0.5,layer=5,min=0")
      << "a file that does not say what it was made of";
}

TEST(CalibrationKinds, OtherFormsOfPromptRunDensely) {
  const json broad = {{"kinds", kBroad}};
  const ResolvedPrune summary = AskKinds(broad, PromptForm::kSummary);
  EXPECT_EQ(summary.spec, "none");
  EXPECT_THAT(summary.reason,
              HasSubstr("dense, the prompt asks for work on the whole text, and the setting"));
  const ResolvedPrune text = AskKinds(broad, PromptForm::kText);
  EXPECT_EQ(text.spec, "none");
  EXPECT_THAT(text.reason, HasSubstr("dense, the prompt asks no question"));
  json with = broad;
  with["kinds"].push_back("summary");
  EXPECT_NE(AskKinds(with, PromptForm::kSummary).spec, "none") << "it was measured on summaries";
  EXPECT_EQ(AskKinds(with, PromptForm::kText).spec, "none");
}

TEST(CalibrationKinds, AreChecked) {
  const auto failure = [](const json& more) { return ErrorOf([&] { ReadKinds({EntryWith(more)}); }); };
  EXPECT_THAT(failure({{"kinds", 5}}), HasSubstr("entries[0].kinds is no list of up to 32"));
  EXPECT_THAT(failure({{"kinds", {5}}}), HasSubstr("entries[0].kinds[0] is no text"));
  EXPECT_THAT(failure({{"unable", std::vector<std::string>(33, "one_fact")}}),
              HasSubstr("entries[0].unable"));
  EXPECT_THAT(failure({{"chosen_tasks", 1}}), HasSubstr("entries[0].chosen_tasks is neither true nor false"));
  EXPECT_THAT(ReadKinds({EntryWith({{"kinds", {"poems"}}})}).entries[0].kinds,
              ElementsAre(QuestionKind::kOther));
  // The part that earlier versions did not read may hold anything.
  for (const json& made : {json(5), json({{"tasks", 5}}), json({{"tasks", {5, {{"task", 5}}, nullptr}}})})
    EXPECT_THAT(ReadKinds({EntryWith({{"made", made}})}).entries[0].kinds, testing::IsEmpty());
}

TEST(FormOfRequest, ReadsTheQuestionOrTheEnd) {
  const std::unique_ptr<Engine> engine = Engine::Load(kKindsModel, {.threads = 1});
  const auto form = [&](const std::string& text, bool marked = false) {
    Request request;
    request.tokens = engine->tokenizer()->Encode(text, {.add_special = true, .parse_special = false});
    if (marked) request.question = {{0, std::ssize(request.tokens)}};
    return FormOfRequest(request, engine->tokenizer());
  };
  std::string story;
  for (int i = 0; i < 200; ++i) story += "The ship went on to the harbor. ";
  EXPECT_EQ(form(story), PromptForm::kText);
  EXPECT_EQ(form(story, true), PromptForm::kText) << "a message that is a text alone";
  EXPECT_EQ(form(story + "\nWhere did it go?"), PromptForm::kQuestion);
  EXPECT_EQ(form(story + "\nSummarize the text.", true), PromptForm::kSummary);
  EXPECT_EQ(form("Name the ship.", true), PromptForm::kQuestion);
  Request ahead;
  ahead.tokens = engine->tokenizer()->Encode(story, {.add_special = true, .parse_special = false});
  ahead.max_tokens = 0;
  EXPECT_EQ(FormOfRequest(ahead, engine->tokenizer()), PromptForm::kQuestion) << "its question is to come";
  EXPECT_EQ(FormOfRequest({}, engine->tokenizer()), PromptForm::kQuestion);
  Request outside;
  outside.tokens = {1, 2, 3};
  outside.question = {{-5, 900}};
  FormOfRequest(outside, engine->tokenizer());
}

TEST(CalibrationKinds, TheEngineReadsThePrompt) {
  const TempFolder dir;
  dir.Copy(kKindsModel, "m.gguf");
  const OpenedModel model = OpenModel(kKindsModel);
  dir.Write(
      "m.gguf.coppice.json",
      FileWith({EntryWith({{"kinds", kBroad}})}, WeightsFingerprintOf(*model.store, model.config)).dump());
  const std::unique_ptr<Engine> engine = Engine::Load(dir.Path("m.gguf"), {.threads = 1});
  const auto answer = [&](const std::string& end) {
    std::string text;
    Request request;
    while (request.tokens.size() < 330) {
      text += "The ship went on. ";
      request.tokens = engine->tokenizer()->Encode(text + end, {.add_special = true, .parse_special = false});
    }
    request.max_tokens = 1;
    request.prune = "auto";
    return engine->Generate(request);
  };
  EXPECT_THAT(answer("\nQuestion: Where did it go?\nAnswer:").prune_spec, HasSubstr("static:"));
  const Answer text = answer("The ship");
  EXPECT_EQ(text.prune_spec, "none");
  EXPECT_THAT(text.auto_reason, HasSubstr("the prompt asks no question"));
  EXPECT_EQ(text.auto_cause, AutoReason::kOtherPrompt);
}

}  // namespace
}  // namespace coppice
