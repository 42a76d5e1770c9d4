// What pruning does to answers, on the bundled models: laws that random weights cannot show. Their layers,
// ten of coppice-mini and twelve of coppice-12, stand for the papers' 32, a layer for the same fraction of
// the depth.
//
// The measure is log p of the right answer: its five digits and the full stop, each given those before it.
// Whether an answer is right is one bit, and which of two methods has more right ones of a few is chance;
// log p also says by how much. Each law is about all the questions that one prompt has an answer to: facts of
// five kinds, at seven depths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>

#include "engine/open_model.h"
#include "laws_support.h"
#include "policies/methods/drop.h"

namespace coppice::behaviour_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr int64_t kBlock = 64;  // SlimInfer's

struct Question {
  std::vector<int32_t> prompt;
  std::vector<int32_t> answer;  // " 80590."
  int64_t fact_begin = 0;       // the tokens of the sentence that holds it
  int64_t fact_end = 0;
};

// Of one question, or of several.
struct Outcome {
  double log_p = 0;  // the sum
  int right = 0;     // answers that greedy decoding gives
  int64_t ffn_rows = 0;
};

class Behaviour : public testing::Test {
 protected:
  explicit Behaviour(const char* model = "coppice-mini-f16.gguf") : model_file_(model) {}

  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
    if (std::getenv("COPPICE_ISA") != nullptr)
      GTEST_SKIP() << "once, with the best kernels: no law of an ISA";
    OpenedModel opened = OpenModel(COPPICE_SOURCE_DIR "/models/" + model_file_);
    tokenizer_ = std::move(opened.tokenizer);
    model_ = std::make_unique<Transformer>(opened.config, Weights::Load(opened.store, opened.config));
    backend_ = MakeBackend("cpu", {});
    AskEverything();
  }

  // One question about each number that prompt-2k.txt hides, instead of the one that it ends with.
  void AskEverything() {
    std::ifstream file(COPPICE_SOURCE_DIR "/tests/data/prompt-2k.txt", std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    const std::string text = all.substr(0, all.find("Question: "));
    const std::regex fact("The ([a-z]+ [a-z]+ of the [a-z]+ [a-z]+) is ([0-9]{5})\\.");
    for (std::sregex_iterator it(text.begin(), text.end(), fact), end; it != end; ++it) {
      const std::string subject = (*it)[1];
      const std::string prompt =
          text + "Question: What is the " + subject + "?\nAnswer: The " + subject + " is";
      Question q;
      q.prompt = tokenizer_->Encode(prompt);
      q.answer = tokenizer_->Encode(prompt + " " + (*it)[2].str() + ".");
      ASSERT_TRUE(std::equal(q.prompt.begin(), q.prompt.end(), q.answer.begin()));
      q.answer.erase(q.answer.begin(), q.answer.begin() + static_cast<std::ptrdiff_t>(q.prompt.size()));
      q.fact_begin = TokensOf(text.substr(0, static_cast<size_t>(it->position())));
      q.fact_end = TokensOf(text.substr(0, static_cast<size_t>(it->position() + it->length())));
      questions_.push_back(std::move(q));
    }
    ASSERT_EQ(questions_.size(), 7u);
  }
  int64_t TokensOf(const std::string& text) const {
    return static_cast<int64_t>(tokenizer_->Encode(text).size());
  }

  // Adds what a run says of the answer when it is given token by token.
  void Ask(const Question& q, TokenPolicy& policy, Outcome& outcome) {
    const auto tokens = static_cast<int64_t>(q.prompt.size());
    SequenceState state =
        model_->NewSequence(tokens, tokens + static_cast<int64_t>(q.answer.size()), *backend_);
    Workspace ws = model_->NewWorkspace(512);
    Tensor logits;
    model_->Prefill(q.prompt, {policy, state, ws, *backend_}, logits);
    bool right = true;
    for (size_t i = 0; i < q.answer.size(); ++i) {
      if (i > 0) model_->Decode(q.answer[i - 1], {policy, state, ws, *backend_}, logits);
      const std::vector<float> row = RowOf(logits);
      const float max = *std::max_element(row.begin(), row.end());
      const float own = row[static_cast<size_t>(q.answer[i])];
      double sum = 0;
      for (const float x : row) sum += std::exp(static_cast<double>(x - max));
      outcome.log_p += static_cast<double>(own - max) - std::log(sum);
      right = right && own == max;
    }
    outcome.right += right ? 1 : 0;
    for (const LayerCounts& layer : state.ledger.layers()) outcome.ffn_rows += layer.ffn_rows;
  }
  Outcome AskAll(const std::string& spec) {
    Outcome outcome;
    for (const Question& q : questions_) {
      PruneChoice choice = MakePolicy(
          spec, {.shape = model_->config().shape, .tokens = static_cast<int64_t>(q.prompt.size())}, {});
      EXPECT_TRUE(choice.active) << choice.reason;
      Ask(q, *choice.policy, outcome);
    }
    return outcome;
  }
  // The blocks that hold the asked fact leave the stream after the attention of `layer`.
  Outcome AskAllWithoutTheFactAfter(int layer) {
    Outcome outcome;
    for (const Question& q : questions_) {
      DropPolicy drop(
          {.spans = {{q.fact_begin / kBlock * kBlock, (q.fact_end + kBlock - 1) / kBlock * kBlock}},
           .layer = layer + 1});
      Ask(q, drop, outcome);
    }
    return outcome;
  }

  std::string model_file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<Backend> backend_;
  std::vector<Question> questions_;
};

// T-SL12, the probing test of SlimInfer's figure 2: what the answer needs moves to the end of the prompt in
// the middle layers. There layer 25 of 32 is late and 5 is early; of ten, 8 and 2. The model retrieves in
// layer 3.
TEST_F(Behaviour, AFactMayLeaveLateButNotEarly) {
  const Outcome late = AskAllWithoutTheFactAfter(8);
  EXPECT_EQ(late.right, 7);
  EXPECT_GT(late.log_p, -3.5);  // a dense run: -0.9
  const Outcome early = AskAllWithoutTheFactAfter(2);
  EXPECT_EQ(early.right, 0);
  EXPECT_LT(early.log_p, -70);  // guessing 35 digits: -81
}

// T-FT9, the random control of FTP's table 3: the same number of rows at random is worse. From layer 3 of ten
// on, where the preset begins, both answer everything, because the model has retrieved before that layer's
// FFN. The law is tested where the FFN does matter, from layer 0 on.
TEST_F(Behaviour, RowsOfTheFfnByLotAreWorse) {
  const Outcome ftp = AskAll("ftp:dense=0,eta=0.5");
  const Outcome lot = AskAll("ftp:dense=0,eta=0.5,choose=random");
  // A method's choice in one layer changes what the next ones look at, so the counts are close, not equal.
  EXPECT_NEAR(static_cast<double>(lot.ffn_rows) / static_cast<double>(ftp.ffn_rows), 1, 0.02);
  EXPECT_GT(ftp.log_p, lot.log_p + 7);  // -2.9 against -24, -25 and -35 for three seeds
  EXPECT_GE(ftp.right, lot.right);      // 6 against 4, 2 and 2
}

// coppice-12 reads the answer in layers 5 and 6, so a first stage before layer 4 can lose it.
class MiddleLayers : public Behaviour {
 protected:
  MiddleLayers() : Behaviour("coppice-12-q8_0.gguf") {}
  void SetUp() override {
    Behaviour::SetUp();
    questions_.erase(questions_.begin() + std::min<std::ptrdiff_t>(4, std::ssize(questions_)),
                     questions_.end());
  }
};

TEST_F(MiddleLayers, AFactMayLeaveBehindThemButNotBefore) {
  EXPECT_EQ(AskAllWithoutTheFactAfter(6).right, 4);
  EXPECT_EQ(AskAllWithoutTheFactAfter(4).right, 0);
}

// Stages at 0.3, 0.6 and 0.9 of the depth.
TEST_F(MiddleLayers, ChosenTokensAnswerAndAsManyByLotDoNot) {
  EXPECT_GE(AskAll("lazyllm:layers=4/7/11,min=0").right, 3);
  EXPECT_GE(AskAll("sliminfer:layers=4/7/11,keep=0.25/0.125/0.0625,min=0").right, 3);
  EXPECT_LE(AskAll("random:layers=4/7/11,keep=0.5/0.5/0.5,min=0").right, 1);
}

// The shipped predictors, ten stages from layer 2 on, against the same number of tokens at random.
TEST_F(MiddleLayers, ShippedPredictorsKeepTheFacts) {
  EXPECT_GE(AskAll("sdtp:file=" COPPICE_SOURCE_DIR "/models/coppice-12-sdtp.safetensors,min=0").right, 3);
}

}  // namespace
}  // namespace coppice::behaviour_test
