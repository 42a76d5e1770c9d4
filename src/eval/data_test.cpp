// Tasks over files: prompts are those of the tasks' authors, truncated as they do. Bad files give one-line
// errors.
#include "eval/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "engine/open_model.h"
#include "eval/metrics/metric.h"
#include "formats/json.h"
#include "test_files.h"

namespace coppice::data_test {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kShared = std::string(COPPICE_SOURCE_DIR) + "/../shared/data";
const Filler kFiller;

const Tokenizer& BundledTokenizer() {
  static const OpenedModel model =
      OpenModel(std::string(COPPICE_SOURCE_DIR) + "/models/coppice-mini-f16.gguf");
  return *model.tokenizer;
}

class DataTasks : public testing::Test {
 protected:
  void SetUp() override {
    request_.length = 2048;
    request_.data = {folder_.path()};
    request_.filler = &kFiller;
    request_.tokenizer = &BundledTokenizer();
  }
  void Write(const std::string& name, const std::string& text) { folder_.Write(name, text); }
  std::vector<Sample> Samples(const std::string& task) { return FindTasks(task).at(0)->samples(request_); }
  std::string Failure(const std::string& task) {
    try {
      Samples(task);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "one line";
      return error.what();
    }
    return "no error";
  }

  const TempFolder folder_;
  TaskRequest request_;
};

TEST_F(DataTasks, LongBenchAsksAsItsAuthorsDo) {
  Write(
      "hotpotqa.jsonl",
      R"({"input": "Who {context}?", "context": "Some {input} text.", "answers": ["Ada", "Ada L."], "all_classes": null})"
      "\n\n");
  const std::vector<Sample> samples = Samples("longbench/hotpotqa");
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].prompt,
            "Answer the question based on the given passages. Only give me the answer and do not output any "
            "other words.\n\n"
            "The following are given passages.\nSome {input} text.\n\nAnswer the question based on the given "
            "passages. Only "
            "give me the answer and do not output any other words.\n\nQuestion: Who {context}?\nAnswer:");
  EXPECT_EQ(samples[0].references, (std::vector<std::string>{"Ada", "Ada L."}));
  EXPECT_EQ(samples[0].max_tokens, 32);
  EXPECT_EQ(samples[0].metric, "qa_f1");
  EXPECT_FALSE(samples[0].plain || samples[0].first_line);

  std::filesystem::create_directory(folder_.Path("data"));
  Write("data/trec.jsonl",
        R"({"input": "Type:", "context": "c", "answers": ["Number"], "all_classes": ["Number", "City"]})");
  const Sample trec = Samples("longbench/trec").at(0);
  EXPECT_EQ(trec.classes.size(), 2u);
  EXPECT_TRUE(trec.plain && trec.first_line);
}

TEST_F(DataTasks, LongBenchPromptsAreThoseOfItsFiles) {
  if (!std::filesystem::exists(kShared)) GTEST_SKIP() << kShared << " is absent";
  const json prompts = ReadJsonFile(kShared + "/longctx/longbench_dataset2prompt.json");
  const json lengths = ReadJsonFile(kShared + "/longctx/longbench_dataset2maxlen.json");
  EXPECT_EQ(FindTasks("longbench").size(), prompts.size());
  request_.length = 100000;
  for (const auto& [name, prompt] : prompts.items()) {
    Write(name + ".jsonl", R"({"input": "Input", "context": "Context", "answers": ["a"]})");
    const Sample sample = Samples("longbench/" + name).at(0);
    EXPECT_EQ(sample.prompt,
              FillTemplate(prompt.get<std::string>(), {{"context", "Context"}, {"input", "Input"}}));
    EXPECT_EQ(sample.max_tokens, lengths.at(name));
  }
}

TEST_F(DataTasks, LongTextsLoseTheirMiddle) {
  std::string context = "begin";
  for (int i = 0; i < 3000; ++i) context += " word" + std::to_string(i);
  Write("qmsum.jsonl", json{{"input", "the end?"}, {"context", context}, {"answers", {"x"}}}.dump());
  const Sample sample = Samples("longbench/qmsum").at(0);
  EXPECT_THAT(sample.prompt, StartsWith("You are given a meeting transcript"));
  EXPECT_THAT(sample.prompt, HasSubstr("Transcript:\nbegin word0 word1"));
  EXPECT_THAT(sample.prompt, EndsWith("Query: the end?\nAnswer:"));
  EXPECT_THAT(sample.prompt, testing::Not(HasSubstr(" word1500 ")));
  const int64_t tokens = CountTokens(request_, sample.prompt) + sample.max_tokens;
  EXPECT_LE(tokens, request_.length + 2);
  EXPECT_GE(tokens, request_.length - 10);
  request_.length = 512;
  EXPECT_THAT(Failure("longbench/qmsum"),
              HasSubstr("an answer takes 512 tokens, too many for a length of 512"));
}

TEST_F(DataTasks, HostileFilesAreErrorsThatNameTheLine) {
  EXPECT_THAT(Failure("longbench/lcc"), HasSubstr("no lcc.jsonl in the data folders"));
  EXPECT_THROW(Samples("longbench/lcc"), MissingData);
  const auto failure = [&](const std::string& text) {
    Write("lcc.jsonl", text);
    return Failure("longbench/lcc");
  };
  const std::string good = R"({"input": "", "context": "int x;", "answers": ["y"]})";
  EXPECT_EQ(failure(good), "no error");
  EXPECT_THAT(failure(""), HasSubstr("lcc.jsonl: holds no samples"));
  EXPECT_THAT(failure(good + "\n[1]"), HasSubstr("lcc.jsonl line 2: is no JSON object"));
  EXPECT_THAT(failure(good + "\n{\"input\": "), HasSubstr("lcc.jsonl line 2"));
  EXPECT_THAT(failure(good + "\n" + std::string(100000, '[')), HasSubstr("lcc.jsonl line 2: nested"));
  EXPECT_THAT(failure(R"({"input": "", "answers": ["y"]})"), HasSubstr("line 1: has no 'context'"));
  EXPECT_THAT(failure(R"({"input": [], "context": "", "answers": ["y"]})"),
              HasSubstr("'input' is not a text"));
  EXPECT_THAT(failure(R"({"input": "", "context": "", "answers": "y"})"),
              HasSubstr("'answers' is not a list"));
  EXPECT_THAT(failure(R"({"input": "", "context": "", "answers": [{}]})"),
              HasSubstr("'answers' is not a list of texts"));
  std::filesystem::remove(folder_.Path("lcc.jsonl"));
  std::filesystem::create_directory(folder_.Path("lcc.jsonl"));
  EXPECT_THAT(Failure("longbench/lcc"), HasSubstr("no lcc.jsonl"));
}

TEST_F(DataTasks, LEvalSpreadsQuestionsOverDocuments) {
  Write("leval_tpo.jsonl",
        json{{"input", "Doc one."}, {"instructions", {"Q1 A. x", "Q2"}}, {"outputs", {"A", "B"}}}.dump() +
            "\n" + json{{"input", "Doc two."}, {"instructions", {"Q3"}}, {"outputs", {"C"}}}.dump());
  const std::vector<Sample> samples = Samples("leval/tpo");
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].id, "0/0");
  EXPECT_EQ(samples[1].id, "1/0");
  EXPECT_EQ(samples[2].id, "0/1");
  EXPECT_THAT(samples[1].prompt, HasSubstr("\n\nDoc two.\n\nQ3\nAnswer:"));
  EXPECT_EQ(samples[1].references.at(0), "C");
  EXPECT_EQ(samples[1].metric, "choice");
  Write("leval_tpo.jsonl", R"({"input": "", "instructions": ["a", "b"], "outputs": ["A"]})");
  EXPECT_THAT(Failure("leval/tpo"), HasSubstr("leval_tpo.jsonl line 1: 2 instructions, 1 outputs"));
}

TEST_F(DataTasks, LEvalKeepsTheEndOfCode) {
  std::string document = "first";
  for (int i = 0; i < 3000; ++i) document += " f" + std::to_string(i);
  for (const std::string name : {"codeU", "quality"}) {
    Write(name + ".jsonl",
          json{{"input", document}, {"instructions", {"Ask."}}, {"outputs", {"(A) x"}}}.dump());
    const Sample sample = Samples("leval/" + name).at(0);
    const bool code = name == "codeU";
    EXPECT_EQ(sample.prompt.find("first f0") == std::string::npos, code);
    EXPECT_EQ(sample.prompt.find("f2999\n\nAsk.") == std::string::npos, !code);
    EXPECT_LE(CountTokens(request_, sample.prompt) + sample.max_tokens, request_.length);
  }
}

TEST_F(DataTasks, LinesAndPairsHaveADepth) {
  Write(
      "longeval_lines_200.jsonl",
      R"({"random_idx": ["a-b", 50], "expected_number": 2416, "prompt": "line a-b: REGISTER_CONTENT is <2416>\n\nWhich? "})");
  const Sample line = Samples("longeval/lines_200").at(0);
  EXPECT_EQ(line.depth, 0.25);
  EXPECT_EQ(line.references.at(0), "2416");
  EXPECT_EQ(line.answer_prefix, "Line <a-b>: <REGISTER_CONTENT> is");
  Write("kv_retrieval_75.jsonl",
        R"({"ordered_kv_records": [["k1", "v1"], ["k2", "v2"], ["k3", "v3"]], "key": "k2", "value": "v2"})");
  const Sample pair = Samples("kv_retrieval/75").at(0);
  EXPECT_EQ(pair.prompt,
            "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON "
            "data:\n{\"k1\": "
            "\"v1\",\n \"k2\": \"v2\",\n \"k3\": \"v3\"}\n\nKey: \"k2\"\nCorresponding value:");
  EXPECT_NEAR(pair.depth, 1.0 / 3, 1e-9);
  Write("kv_retrieval_75.jsonl", R"({"ordered_kv_records": [["k1", "v1"]], "key": "k2", "value": "v2"})");
  EXPECT_THAT(Failure("kv_retrieval/75"), HasSubstr("'key' is none of the records'"));
  Write("kv_retrieval_75.jsonl", R"({"ordered_kv_records": [["k1"]], "key": "k2", "value": "v2"})");
  EXPECT_THAT(Failure("kv_retrieval/75"), HasSubstr("no pair of texts"));
  Write("longeval_lines_200.jsonl", R"({"random_idx": [1], "expected_number": 1, "prompt": ""})");
  EXPECT_THAT(Failure("longeval/lines_200"), HasSubstr("'random_idx' is not a name and a number"));
}

TEST_F(DataTasks, StoriesAreSpreadInOrder) {
  request_.length = 1200;
  Write("qa2_two-supporting-facts_train.txt",
        "1 Mary moved to the bathroom.\n2 Mary got the football there.\n3 Where is the football? "
        "\tbathroom\t1 2\n"
        "4 Mary went to the garden.\n5 Where is the football?|garden|4\n1 John sat.\n2 Where is "
        "John?\toffice\t1\n");
  const std::vector<Sample> samples = Samples("babi/qa2");
  ASSERT_EQ(samples.size(), 3u);
  for (const Sample& sample : samples) {
    const int64_t tokens = CountTokens(request_, sample.prompt + sample.answer_prefix) + sample.max_tokens;
    EXPECT_LE(tokens, 1200);
    EXPECT_GE(tokens, 1150);
    const size_t context = sample.prompt.find("<context>\n");
    ASSERT_NE(context, std::string::npos);
    if (sample.id == "1") {
      const size_t first = sample.prompt.find("Mary moved to the bathroom.", context);
      const size_t second = sample.prompt.find("Mary got the football there.", context);
      const size_t third = sample.prompt.find("Mary went to the garden.", context);
      EXPECT_LT(first, second);
      EXPECT_LT(second, third);
      EXPECT_NE(third, std::string::npos);
      EXPECT_EQ(sample.references.at(0), "garden");
      EXPECT_THAT(sample.prompt, EndsWith("</context>\n\nQuestion: Where is the football?"));
    }
    if (sample.id == "2") {
      EXPECT_EQ(sample.prompt.find("Mary moved to the bathroom."), std::string::npos);
    }
  }
  Write("qa2_two-supporting-facts_train.txt", "1 Fact.\nno number\n");
  EXPECT_THAT(Failure("babi/qa2"), HasSubstr("train.txt line 2: does not begin with a number"));
  Write("qa2_two-supporting-facts_train.txt", "1 Where?\tx\t1\n");
  EXPECT_THAT(Failure("babi/qa2"), HasSubstr("line 1: a question without facts"));
  Write("qa2_two-supporting-facts_train.txt", "1 Fact.\n");
  EXPECT_THAT(Failure("babi/qa2"), HasSubstr("holds no questions"));
}

// Rows as lm-evaluation-harness shows them (tools/make_metric_cases.py), as questions behind shots and as
// shots.
TEST_F(DataTasks, FewShotQuestionsAreThoseOfTheHarness) {
  const json cases =
      ReadJsonFile(std::string(COPPICE_SOURCE_DIR) + "/tests/data/metric_cases.json").at("fewshot");
  std::vector<std::string> seen;
  for (const json& one : cases) {
    const auto task = one.at("task").get<std::string>();
    Write(task + ".dev.jsonl", one.at("row").dump());
    std::string shots;
    for (int i = 0; i < 5; ++i) shots += one.at("row").dump() + "\n";
    Write(task + ".train.jsonl", shots);
    const Sample sample = Samples("fewshot/" + task).at(0);
    EXPECT_EQ(sample.kind, SampleKind::kChoose);
    EXPECT_EQ(sample.gold, one.at("gold"));
    std::string shown;
    for (int i = 0; i < 5; ++i) shown += one.at("shot").get<std::string>();
    ASSERT_EQ(sample.choices.size(), one.at("pairs").size());
    for (size_t i = 0; i < sample.choices.size(); ++i) {
      EXPECT_EQ(sample.choices[i].context, shown + one.at("pairs")[i][0].get<std::string>());
      EXPECT_EQ(sample.choices[i].continuation, one.at("pairs")[i][1]);
      EXPECT_EQ(sample.choices[i].norm_length, one.at("lengths")[i]);
    }
    seen.push_back("fewshot/" + task);
  }
  for (const TaskInfo* task : FindTasks("fewshot")) EXPECT_THAT(seen, testing::Contains(task->name));
}

TEST_F(DataTasks, FewShotsComeFromTheLastRowsWhereTheyHaveNoFile) {
  std::string rows;
  for (int i = 0; i < 8; ++i)
    rows +=
        json{{"goal", "goal " + std::to_string(i)}, {"sol1", "a"}, {"sol2", "b"}, {"label", i % 2}}.dump() +
        "\n";
  Write("PIQA.valid.jsonl", rows);
  const std::vector<Sample> samples = Samples("fewshot/piqa");
  ASSERT_EQ(samples.size(), 3u);
  const std::string& context = samples[2].choices.at(0).context;
  EXPECT_THAT(context, EndsWith("Question: goal 2\nAnswer:"));
  for (int i = 3; i < 8; ++i)
    EXPECT_THAT(context, HasSubstr("Question: goal " + std::to_string(i) +
                                   "\nAnswer: " + (i % 2 ? "b" : "a") + "\n\n"));
  Write("PIQA.valid.jsonl", rows.substr(0, rows.find('\n')));
  EXPECT_THAT(Failure("fewshot/piqa"), HasSubstr("too few rows for 5 shots"));
}

TEST_F(DataTasks, FewShotHostileRows) {
  const auto failure = [&](const std::string& task, const json& row) {
    Write(task + ".x.jsonl", row.dump());
    return Failure("fewshot/" + task);
  };
  EXPECT_THAT(failure("piqa", {{"goal", "g"}, {"sol1", "a"}, {"sol2", "b"}, {"label", 2}}),
              HasSubstr("the right choice is 2, of 2"));
  EXPECT_THAT(
      failure("wic", {{"sentence1", "abc"}, {"sentence2", ""}, {"start1", 2}, {"end1", 9}, {"label", true}}),
      HasSubstr("2 to 9 of 3"));
  EXPECT_THAT(
      failure(
          "wsc",
          {{"text", "a b"}, {"span1_text", "a"}, {"span2_text", "b"}, {"span2_index", 99}, {"label", true}}),
      HasSubstr("span2_index is 99"));
  EXPECT_THAT(
      failure("winogrande", {{"sentence", "no blank"}, {"option1", "a"}, {"option2", "b"}, {"answer", "1"}}),
      HasSubstr("no blank"));
  EXPECT_THAT(failure("winogrande", {{"instruction", "what?"}}), HasSubstr("no WinoGrande question"));
  EXPECT_THAT(failure("mathqa", {{"instruction", "what?"}, {"answer", "A"}}),
              HasSubstr("no MathQA question"));
  EXPECT_THAT(failure("mathqa", {{"Problem", "p"}, {"options", std::string(200000, ' ')}, {"correct", "a"}}),
              HasSubstr("the right choice is 0, of 0"));
  EXPECT_THAT(failure("copa", {{"premise", ""}, {"question", "why"}}), HasSubstr("neither cause nor effect"));
  EXPECT_THAT(failure("cb", {{"premise", ""}, {"hypothesis", ""}, {"label", "maybe"}}),
              HasSubstr("the right choice is -1"));
}

// Everything that lies in the shared folder becomes samples: the forms of real files.
TEST_F(DataTasks, RealFilesBecomeSamples) {
  if (!std::filesystem::exists(kShared)) GTEST_SKIP() << kShared << " is absent";
  request_.data = {kShared + "/longctx", kShared};
  request_.length = 4096;
  request_.samples = 6;
  TaskMetrics metrics;
  const std::vector<std::string> there = {"leval/coursera",     "leval/tpo",          "longeval/lines_200",
                                          "longeval/lines_400", "longeval/lines_680", "kv_retrieval/75",
                                          "babi/qa1",           "babi/qa2",           "babi/qa3",
                                          "fewshot/copa",       "fewshot/piqa",       "fewshot/winogrande",
                                          "fewshot/mathqa",     "fewshot/boolq",      "fewshot/cb",
                                          "fewshot/wic",        "fewshot/wsc"};
  for (const std::string& task : there) {
    const std::vector<Sample> samples = Samples(task);
    EXPECT_EQ(samples.size(), 6u) << task;
    for (const Sample& sample : samples) {
      if (sample.kind == SampleKind::kAnswer) {
        EXPECT_EQ(metrics.Score(sample, " " + sample.references.at(0)), 1) << task;
      } else {
        EXPECT_GE(sample.choices.size(), 2u) << task;
      }
    }
  }
  request_.samples = 1000;
  EXPECT_EQ(Samples("fewshot/mathqa").size(), 195u);
  for (const Sample& sample : Samples("fewshot/mathqa")) EXPECT_EQ(sample.choices.size(), 5u) << sample.id;
}

TEST(Template, ValuesAreNotLookedAtAgain) {
  EXPECT_EQ(FillTemplate("{a} {b} {c} {", {{"a", "{b}"}, {"b", "x"}}), "{b} x {c} {");
  EXPECT_EQ(FillTemplate("", {{"a", "b"}}), "");
}

}  // namespace
}  // namespace coppice::data_test
