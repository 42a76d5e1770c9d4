// Every metric against the scores that the official programs gave (tools/make_metric_cases.py).
#include "eval/metrics/metric.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "eval/metrics/python_text.h"
#include "formats/json.h"
#include "test_files.h"

namespace coppice::metric_test {
namespace {

using nlohmann::json;

const std::string kData = std::string(COPPICE_SOURCE_DIR) + "/tests/data";
const std::string kShared = std::string(COPPICE_SOURCE_DIR) + "/../shared/data/";

const json& Tables() {
  static const json tables = ReadJsonFile(kData + "/metric_cases.json");
  return tables;
}

// jieba's own data, wherever they are; empty where they are nowhere.
std::string JiebaFolder() {
  const char* const given = std::getenv("COPPICE_JIEBA");
  const std::string folder = given != nullptr ? given : ChineseWords::kDebianFolder;
  return std::filesystem::exists(folder + "/dict.txt") ? folder : "";
}

Sample SampleOf(const json& row) {
  Sample sample;
  sample.metric = row.at("metric").get<std::string>();
  sample.question = row.value("question", "");
  if (row.contains("classes")) sample.classes = row["classes"].get<std::vector<std::string>>();
  if (row.contains("references")) {
    sample.references = row["references"].get<std::vector<std::string>>();
  } else {
    sample.references = {row.at("r").get<std::string>()};
  }
  return sample;
}

TEST(Metrics, EqualTheOfficialPrograms) {
  const bool jieba = !JiebaFolder().empty();
  TaskMetrics metrics(JiebaFolder());
  std::map<std::string, int> counts;
  for (const json& row : Tables().at("cases")) {
    const Sample sample = SampleOf(row);
    if (TaskMetrics::NeedsChineseWords(sample.metric) && !jieba) continue;
    const auto prediction = row.at("p").get<std::string>();
    EXPECT_NEAR(metrics.Score(sample, prediction), row.at("score").get<double>(), row.value("within", 1e-12))
        << row;
    ++counts[sample.metric];
  }
  for (const auto& [metric, count] : counts) {
    RecordProperty(metric, count);
    EXPECT_GE(count, 5) << metric;
  }
  for (const std::string_view name : TaskMetrics::Names()) {
    const bool own =
        name == "number_match" || name == "last_number";  // no official function: tested on their own
    if (own || (TaskMetrics::NeedsChineseWords(name) && !jieba)) continue;
    EXPECT_TRUE(counts.contains(std::string(name))) << name;
  }
  if (!jieba)
    GTEST_SKIP() << "jieba's data (python3-jieba, or COPPICE_JIEBA) are absent: Chinese metrics not compared";
}

TEST(Metrics, EqualTheOfficialProgramsOnRealAnswers) {
  if (!std::filesystem::exists(kShared)) GTEST_SKIP() << kShared << " is absent";
  std::map<std::string, std::vector<json>> files;
  TaskMetrics metrics;
  for (const json& row : Tables().at("shared")) {
    std::vector<json>& lines = files[row.at("file")];
    if (lines.empty()) {
      std::ifstream in(kShared + row.at("file").get<std::string>());
      for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    }
    const auto text = [&](const json& place) {
      return lines.at(place.at(0).get<size_t>())
          .at("outputs")
          .at(place.at(1).get<size_t>())
          .get<std::string>();
    };
    Sample sample;
    sample.metric = row.at("metric").get<std::string>();
    sample.references = {text(row.at("r"))};
    EXPECT_NEAR(metrics.Score(sample, text(row.at("p"))), row.at("score").get<double>(), 1e-12) << row;
  }
}

std::vector<std::string> CutUtf8(const ChineseWords& words, const std::string& text) {
  std::vector<std::string> cut;
  for (const std::u32string& word : words.Cut(ToCodePoints(text))) cut.push_back(ToUtf8(word));
  return cut;
}

TEST(ChineseWords, CutAsJiebaOverATinyDictionary) {
  const ChineseWords words(kData + "/jieba");
  for (const json& row : Tables().at("tiny_jieba"))
    EXPECT_EQ(json(CutUtf8(words, row.at("text"))), row.at("words")) << row;
}

TEST(ChineseWords, CutAsJiebaOverItsOwn) {
  if (JiebaFolder().empty())
    GTEST_SKIP() << "jieba's data are absent (Debian: python3-jieba, or COPPICE_JIEBA)";
  const ChineseWords words(JiebaFolder());
  for (const json& row : Tables().at("jieba"))
    EXPECT_EQ(json(CutUtf8(words, row.at("text"))), row.at("words")) << row;
}

TEST(ChineseWords, WithoutDictionaryCharactersAreWords) {
  const ChineseWords words;
  EXPECT_FALSE(words.has_dictionary());
  EXPECT_EQ(CutUtf8(words, "我们 3.5%abc，"),
            (std::vector<std::string>{"我", "们", " ", "3.5%", "abc", "，"}));
}

TEST(ChineseWords, BadFilesAreErrorsThatNameThem) {
  const TempFolder temporary;
  const std::string& folder = temporary.path();
  std::filesystem::create_directories(folder + "/finalseg");
  const auto fails_with = [&](const char* cause) {
    try {
      const ChineseWords words(folder);
      FAIL() << cause;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(cause), std::string::npos) << error.what();
    }
  };
  fails_with("dict.txt: cannot read");
  std::ofstream(folder + "/dict.txt") << "我们 12 r\nno-frequency\n";
  fails_with("dict.txt: line 2");
  std::ofstream(folder + "/dict.txt") << "我们 12 r\n";
  fails_with("prob_emit.py: cannot read");
  std::ofstream(folder + "/finalseg/prob_emit.py") << "P={}\n";
  fails_with("prob_emit.py: holds no probabilities");
}

TEST(Metrics, NumbersOfNeedles) {
  TaskMetrics metrics;
  Sample needle{.metric = "number_match", .references = {"48213"}};
  EXPECT_EQ(metrics.Score(needle, " 48213."), 1);
  EXPECT_EQ(metrics.Score(needle, "148213, 482130, 48213"), 1);
  EXPECT_EQ(metrics.Score(needle, "148213"), 0);
  EXPECT_EQ(metrics.Score(needle, "482130"), 0);
  EXPECT_EQ(metrics.Score(needle, ""), 0);
  Sample line{.metric = "last_number", .references = {"2416"}};
  EXPECT_EQ(metrics.Score(line, "line 7 holds <2416>."), 1);
  EXPECT_EQ(metrics.Score(line, "02416"), 1);
  EXPECT_EQ(metrics.Score(line, "2416 or 2417"), 0);
  EXPECT_EQ(metrics.Score(line, "none"), 0);
}

TEST(Metrics, FirstLineAndBestReferenceCount) {
  TaskMetrics metrics;
  Sample sample{.metric = "qa_f1", .references = {"dog", "the red cat"}, .first_line = true};
  EXPECT_EQ(metrics.Score(sample, "\n\nred cat\ndog dog dog"), 1);
  sample.first_line = false;
  EXPECT_LT(metrics.Score(sample, "\n\nred cat\ndog dog dog"), 1);
}

TEST(Metrics, UnknownNameIsAnError) {
  TaskMetrics metrics;
  EXPECT_THROW(metrics.Score(Sample{.metric = "bleu"}, ""), Error);
}

}  // namespace
}  // namespace coppice::metric_test
