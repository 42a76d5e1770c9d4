// The document cache of a model whose layers carry states: a conversation costs its own tokens, in memory and
// from files, and its answers are those of an engine without a cache.
#include <gtest/gtest.h>

#include <string>

#include "engine/engine.h"
#include "tests_support.h"

namespace coppice::document_states_test {
namespace {

const std::string kModel = COPPICE_SOURCE_DIR "/tests/data/rows/qwen3_5/model.gguf";

struct Told {
  Answer answer;
  std::vector<std::vector<float>> logits;
};

class DocumentStates : public testing::Test {
 protected:
  void SetUp() override {
    if (!MakeBackendOrSkip("cpu", {})) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    plain_ = Load(false);
  }
  std::unique_ptr<Engine> Load(bool documents) const {
    EngineOptions options{.threads = 2, .tile_rows = 24};
    if (documents)
      options.documents = DocumentCacheOptions{.folder = dir_.path(), .least_new = 1, .least_written = 1};
    return Engine::Load(kModel, options);
  }
  static Told Tell(Engine& engine, const std::vector<int32_t>& tokens) {
    Told told;
    Request request;
    request.tokens = tokens;
    request.max_tokens = 4;
    request.ignore_eos = true;
    request.prompt_lookup = 3;
    request.sampling.temperature = 0;
    request.on_logits = [&](std::span<const float> logits) {
      told.logits.emplace_back(logits.begin(), logits.end());
    };
    told.answer = engine.Generate(request);
    return told;
  }
  // Returns the prompt of the next turn.
  std::vector<int32_t> Turn(Engine& engine, std::vector<int32_t> prompt, int64_t reused, int turn) const {
    const Told told = Tell(engine, prompt);
    const Told fresh = Tell(*plain_, prompt);
    EXPECT_EQ(told.answer.cached_tokens(), reused) << "turn " << turn;
    EXPECT_EQ(told.answer.tokens, fresh.answer.tokens) << "turn " << turn;
    EXPECT_EQ(told.logits, fresh.logits) << "turn " << turn;
    prompt.insert(prompt.end(), told.answer.tokens.begin(), told.answer.tokens.end());
    for (int i = 0; i < 11; ++i) prompt.push_back((turn * 7 + i * i) % 29);
    return prompt;
  }

  TempFolder dir_;
  std::unique_ptr<Engine> plain_;
};

TEST_F(DocumentStates, AConversationCostsItsOwnTokens) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back((i * i + 3 * i) % 29);
  std::unique_ptr<Engine> engine = Load(true);
  int64_t reused = 0;
  for (int turn = 0; turn < 10; ++turn) {
    if (turn == 6) {  // the rest of it from files
      engine.reset();
      engine = Load(true);
    }
    const auto tokens = std::ssize(prompt);
    prompt = Turn(*engine, prompt, reused, turn);
    reused = tokens;  // the whole prompt of the last turn
  }
  // A prompt that leaves the earlier ones in the middle of a text takes over the turns before it.
  prompt.resize(100);
  prompt.back() = (prompt.back() + 1) % 29;
  Turn(*engine, prompt, 40 + 3 * 15, 10);
}

TEST(Checkpoints, AreAtTheEndTheLastMessagesAndEverySoOften) {
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(CheckpointsOf(100, 0, 1, {}), Rows({100}));
  EXPECT_EQ(CheckpointsOf(100, 0, 8, {}), Rows({92, 100}));
  EXPECT_EQ(CheckpointsOf(10000, 0, 1, {}), Rows({4096, 8192, 10000}));
  EXPECT_EQ(CheckpointsOf(10000, 8192, 1, {}), Rows({10000}));
  const Rows turns = {10, 700, 705, 1995, 1998};
  EXPECT_EQ(CheckpointsOf(2000, 0, 1, turns), Rows({10, 705, 1995, 1998, 2000}));
  EXPECT_EQ(CheckpointsOf(2000, 1995, 1, turns), Rows({1998, 2000}));
  EXPECT_EQ(CheckpointsOf(1000, 0, 1, turns), Rows({10, 700, 705, 1000}));
}

}  // namespace
}  // namespace coppice::document_states_test
