// Against LLMLingua-2's own program on two tiny classifiers (tools/make_lingua_golden.py).
#include "engine/word_classifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "base/error.h"
#include "formats/json.h"
#include "policies/methods/llmlingua2.h"
#include "test_files.h"

namespace coppice::word_classifier_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string Folder(const std::string& name) {
  return std::string(COPPICE_SOURCE_DIR) + "/tests/data/llmlingua2/" + name;
}
json Texts(const std::string& name) { return ReadJsonFile(Folder(name) + "/cases.json")["texts"]; }

class WordClassifierTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> reference_ = MakeBackend("reference", {});
};

TEST_P(WordClassifierTest, CutsTextsIntoTheSameTokens) {
  const auto tokenizer = EncoderTokenizer::FromHfFolder(Folder(GetParam()));
  for (const json& entry : Texts(GetParam())) {
    const auto text = entry["text"].get<std::string>();
    std::vector<int32_t> ids;
    size_t begin = 0;
    for (const PlacedToken& token : tokenizer->Encode(text)) {
      ids.push_back(token.id);
      EXPECT_LE(token.begin, token.end);
      EXPECT_GE(token.begin, begin);  // tokens of one character share its place
      EXPECT_LE(token.end, text.size());
      begin = token.begin;
    }
    EXPECT_EQ(ids, entry["ids"].get<std::vector<int32_t>>()) << text;
  }
}

TEST_P(WordClassifierTest, GivesTheSameProbabilities) {
  const TokenClassifier classifier(HfFolder::Open(Folder(GetParam())));
  const auto tokenizer = EncoderTokenizer::FromHfFolder(Folder(GetParam()));
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> wanted;
  for (const json& entry : Texts(GetParam())) {
    ids.push_back({tokenizer->first()});
    const auto own = entry["ids"].get<std::vector<int32_t>>();
    ids.back().insert(ids.back().end(), own.begin(), own.begin() + std::min<int64_t>(std::ssize(own), 62));
    ids.back().push_back(tokenizer->last());
    wanted.push_back(entry["probabilities"].get<std::vector<float>>());
  }
  // fp32, and what a run would use: products in 16 or 8 bits.
  const std::unique_ptr<Backend> cpu = MakeBackend("cpu", {.threads = 2});
  for (const auto& [be, tolerance] : {std::pair(reference_.get(), 2e-5), std::pair(cpu.get(), 0.1)}) {
    const TokenClassifier::Classes classes = classifier.Classify(ids, {}, *be);
    EXPECT_GT(classes.flops, 0);
    double worst = 0;
    for (size_t t = 0; t < wanted.size(); ++t) {
      ASSERT_EQ(classes.probability[t].size(), wanted[t].size());
      for (size_t i = 0; i < wanted[t].size(); ++i)
        worst = std::max<double>(worst, std::abs(classes.probability[t][i] - wanted[t][i]));
    }
    EXPECT_LT(worst, tolerance) << be->name();
  }
}

TEST_P(WordClassifierTest, ReadsAndChoosesTheSameWords) {
  const WordClassifier classifier(Folder(GetParam()));
  for (const json& entry : Texts(GetParam())) {
    const auto text = entry["text"].get<std::string>();
    // The pieces of a model's tokens may end anywhere.
    std::vector<std::string> pieces = {"", text.substr(0, text.size() / 3), text.substr(text.size() / 3)};
    const ReadText read = classifier.Read(pieces, {}, *reference_);
    for (const json& wanted : entry["cases"]) {
      const auto words = wanted["words"].get<std::vector<std::string>>();
      ASSERT_EQ(words.size(), read.words.size()) << text;
      // The program counts the bytes of a word as its vocabulary spells it, with the mark of white space.
      std::vector<int64_t> weights;
      for (size_t w = 0; w < words.size(); ++w)
        weights.push_back(std::ssize(words[w]) + (read.words[w].spaced ? 3 : 0));
      LlmLingua2Config config;
      config.keep = wanted["rate"].get<double>();
      config.force_ends = wanted.contains("force_tokens");
      config.force_digits = wanted.value("force_reserve_digit", false);
      config.drop_repeated = wanted.value("drop_consecutive", false);
      const std::vector<bool> stay = ChooseWords(config, read.words, weights);
      const auto labels = wanted["labels"].get<std::vector<int>>();
      for (size_t w = 0; w < words.size(); ++w)
        EXPECT_EQ(stay[w], labels[w] == 1)
            << "word " << w << " '" << words[w] << "' " << wanted.dump().substr(0, 60);
    }
  }
}

TEST_P(WordClassifierTest, ChunksEndBehindFullStops) {
  const WordClassifier classifier(Folder(GetParam()));
  std::string text;
  for (int i = 0; i < 40; ++i) text += "The committee met again. ";
  const auto chunks = classifier.ChunksOf(text);
  EXPECT_GT(chunks.size(), 3u);
  for (const auto& [begin, end] : chunks) EXPECT_EQ(text[end - 1], '.');
  EXPECT_EQ(chunks.front().first, 0u);
  EXPECT_TRUE(classifier.ChunksOf("").empty());
  EXPECT_TRUE(classifier.Read(std::vector<std::string>{"", " \n"}, {}, *reference_).words.empty());
}

TEST_P(WordClassifierTest, AnyBytesAreRead) {
  const WordClassifier classifier(Folder(GetParam()));
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * 7919 % 256);
  const ReadText read = classifier.Read(std::vector<std::string>{text}, {}, *reference_);
  for (const ReadWord& word : read.words) {
    ASSERT_FALSE(word.parts.empty());
    EXPECT_LE(word.parts.back().end, text.size());
    for (const ReadWord::Part& part : word.parts) EXPECT_TRUE(part.keep >= 0 && part.keep <= 1);
  }
  const std::atomic<bool> cancelled = true;
  EXPECT_THROW(classifier.Read(std::vector<std::string>{"a text"}, {.progress = {}, .cancelled = &cancelled},
                               *reference_),
               Cancelled);
}

// The heads of these classifiers have 16 channels, half a block of Q8_0.
TEST_P(WordClassifierTest, ACacheTypeThatHeadsDoNotFillIsAnError) {
  const WordClassifier classifier(Folder(GetParam()));
  const std::unique_ptr<Backend> be = MakeBackend("cpu", {.threads = 1, .cache_type = DType::kQ8_0});
  const std::vector<std::string> pieces = {"a text"};
  const std::string model = GetParam() == "bert" ? "bert" : "xlm-roberta";
  EXPECT_THAT(ErrorOf([&] { classifier.Read(pieces, {}, *be); }),
              AllOf(HasSubstr("Q8_0"), HasSubstr("heads of this " + model + " model 16")));
}

INSTANTIATE_TEST_SUITE_P(Folders, WordClassifierTest, ::testing::Values("bert", "xlmr"),
                         [](const auto& of) { return of.param; });

// A copy of the BERT folder with one file changed.
std::string Failure(const std::string& name, const std::function<std::string(std::string)>& change) {
  const TempFolder folder;
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"}) {
    std::ifstream in(Folder("bert") + "/" + file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (name == file) bytes = change(bytes);
    if (!bytes.empty()) folder.Write(file, bytes);
  }
  return ErrorOf([&] { WordClassifier(folder.path()); });
}

TEST(WordClassifierFiles, FaultsAreErrorsThatNameThem) {
  const auto replace = [](const std::string& from, const std::string& to) {
    return [=](std::string text) {
      size_t at = text.find(from);
      EXPECT_NE(at, std::string::npos) << from;
      for (; at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
      return text;
    };
  };
  EXPECT_THAT(Failure("tokenizer.json", [](const std::string&) { return ""; }),
              HasSubstr("neither tokenizer.json nor"));
  EXPECT_THAT(Failure("tokenizer.json", [](const std::string&) { return "{}"; }), HasSubstr("has no model"));
  EXPECT_THAT(Failure("tokenizer.json", replace("[CLS]", "[BEGIN]")), HasSubstr("has no token [CLS]"));
  EXPECT_THAT(Failure("tokenizer.json", replace("\"WordPiece\"", "\"BPE\"")),
              HasSubstr("'BPE' is no WordPiece"));
  EXPECT_THAT(Failure("tokenizer.json", replace("\"lowercase\": false", "\"lowercase\": true")),
              HasSubstr("cased"));
  EXPECT_THAT(Failure("config.json", replace("\"model_type\": \"bert\"", "\"model_type\": \"gpt2\"")),
              HasSubstr("'gpt2'"));
  EXPECT_THAT(Failure("config.json", replace("\"hidden_size\": 32", "\"hidden_size\": 31")),
              HasSubstr("hidden_size 31 is no multiple of 2 heads"));
  EXPECT_THAT(Failure("config.json", replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3")),
              HasSubstr("layer.2.attention"));
  EXPECT_THAT(Failure("config.json", replace("\"intermediate_size\": 48", "\"intermediate_size\": 40")),
              HasSubstr("config says [40, 32]"));
  EXPECT_THAT(Failure("model.safetensors", replace("classifier.weight", "classifier.wrong!")),
              HasSubstr("classifier.weight"));
}

}  // namespace
}  // namespace coppice::word_classifier_test
