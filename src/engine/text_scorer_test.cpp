// A second model's self-information, laid over the tokens of the first, and input compression by it.
#include "engine/text_scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/engine.h"
#include "engine/open_model.h"
#include "tests_support.h"
#include "tiny_model.h"

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

const std::string kBundled = COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf";

std::vector<float> Laid(std::vector<double> worth, std::vector<std::string> tokens,
                        std::vector<std::string> pieces) {
  return LayOver(worth, tokens, pieces);
}

TEST(SelfInformation, WorthFollowsTheBytes) {
  EXPECT_THAT(Laid({4, 6}, {"ab", "cd"}, {"a", "bc", "", "d"}), ElementsAre(2, 5, 0, 3));
  // A space that the tokenizer put first, or that only the text has.
  EXPECT_THAT(Laid({4, 6}, {" ab", "cd"}, {"ab", "cd"}), ElementsAre(4, 6));
  EXPECT_THAT(Laid({4, 6}, {"ab", "cd"}, {" ab", "cd"}), ElementsAre(4, 6));
  // An unknown character is worth what its token was, and what follows is found again.
  EXPECT_THAT(Laid({1, 8, 3}, {"a", "", "b"}, {"a", "\xe2\x82\xac", "b"}),
              ElementsAre(1, FloatNear(11 * 0.75f, 1e-5f), FloatNear(11 * 0.25f, 1e-5f)));
  EXPECT_THAT(Laid({1, 2, 4}, {"a", "?", "b"}, {"a", "b", "c"}), ElementsAre(1, 6, 0));
  EXPECT_THAT(Laid({1, 2}, {"a", "?"}, {"a", "c"}), ElementsAre(1, 2));
  EXPECT_THAT(Laid({}, {}, {"", ""}), ElementsAre(0, 0));
}

TEST(SelfInformation, NothingIsLost) {
  uint32_t state = 7;
  const auto random = [&](uint32_t below) { return (state = state * 1664525 + 1013904223) / 65536 % below; };
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (uint32_t n = 1 + random(60); n > 0; --n) text += static_cast<char>('a' + random(4));
    const auto cut = [&](bool noisy) {
      std::vector<std::string> parts;
      for (size_t at = 0; at < text.size();) {
        const size_t length = 1 + random(4);
        parts.push_back(text.substr(at, length));
        if (noisy && random(8) == 0) parts.back() = random(2) == 0 ? "" : "#";
        at += length;
      }
      return parts;
    };
    const std::vector<std::string> tokens = cut(true);
    std::vector<double> worth(tokens.size());
    for (double& w : worth) w = random(100);
    const std::vector<float> laid = LayOver(worth, tokens, cut(false));
    EXPECT_NEAR(std::accumulate(laid.begin(), laid.end(), 0.0),
                std::accumulate(worth.begin(), worth.end(), 0.0), 1e-3);
  }
}

// Against a log-softmax of all logits, in fp64.
TEST(SelfInformation, LogProbabilities) {
  for (const char* architecture : {"llama", "bloom"}) {
    SCOPED_TRACE(architecture);
    const Transformer model = MakeTiny({.architecture = architecture}).Make();
    const auto be = MakeBackendOrSkip("cpu", {.threads = 2, .exact = true});
    if (!be) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    const std::vector<int32_t> prompt = RandomPrompt(150, model.config().shape.vocab);
    Workspace ws = model.NewWorkspace(64);
    const TextScore score = model.Score(prompt, ws, *be);
    SequenceState state = model.NewSequence(150, 150, *be);
    TokenPolicy dense;
    Tensor logits;
    model.Prefill(prompt, {dense, state, ws, *be}, logits, true);
    ASSERT_EQ(score.log_probabilities.size(), 150u);
    EXPECT_EQ(score.log_probabilities[0], 0);
    for (int64_t row = 0; row + 1 < 150; ++row) {
      const std::span<const float> l = logits.view().Row<float>(row);
      double sum = 0;
      for (const float x : l) sum += std::exp(static_cast<double>(x));
      const int32_t next = prompt[static_cast<size_t>(row + 1)];
      EXPECT_NEAR(score.log_probabilities[static_cast<size_t>(row + 1)],
                  static_cast<double>(l[static_cast<size_t>(next)]) - std::log(sum), 1e-4);
    }
    // Every row of every layer, and a head for every row but the last.
    const ModelShape& s = model.config().shape;
    EXPECT_NEAR(score.flops, s.layer_count() * LayerFlops(s, {150, 150, 150}) + 149 * HeadFlops(s), 1.0);
  }
}

// A text longer than a window: the tokens of the second window are scored after kOverlap tokens of context.
TEST(SelfInformation, Windows) {
  OpenedModel opened = OpenModel(kBundled);
  std::string text;
  for (int i = 0; i < 400; ++i) text += "The key of door " + std::to_string(i * 7919 % 10007) + " is blue. ";
  const EncodeOptions plain{.add_special = false, .parse_special = false};
  const std::vector<int32_t> ids = opened.tokenizer->Encode(text, plain);
  ASSERT_GT(ids.size(), 2u * TextScorer::kWindow);
  const std::vector<std::string> pieces = PiecesOf(*opened.tokenizer, ids);
  const auto be = MakeNativeBackendOrSkip("cpu", {.threads = 2});
  if (!be) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  TextScorer scorer(kBundled, 512);
  std::vector<double> shares;
  int pauses = 0;
  const RunControl control{[&](double share) { shares.push_back(share); }, nullptr, [&] { ++pauses; }};
  const ScoredText scored = scorer.Score(pieces, control, *be);
  EXPECT_GE(pauses, static_cast<int>(shares.size()));
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GT(shares.size(), 10u);
  EXPECT_DOUBLE_EQ(shares.back(), 1);

  const std::shared_ptr<const Weights> weights = Weights::Load(opened.store, opened.config);
  const Transformer model(opened.config, weights);
  Workspace ws = model.NewWorkspace(512);
  const std::vector<int32_t> bos = opened.tokenizer->Encode("", {.add_special = true});
  double flops = 0;
  for (size_t done = 0; done < ids.size();) {
    const size_t begin = done - std::min<size_t>(done, TextScorer::kOverlap);
    const size_t end = std::min(begin + static_cast<size_t>(TextScorer::kWindow) - bos.size(), ids.size());
    std::vector<int32_t> input = bos;
    input.insert(input.end(), ids.begin() + static_cast<ptrdiff_t>(begin),
                 ids.begin() + static_cast<ptrdiff_t>(end));
    const TextScore expected = model.Score(input, ws, *be);
    flops += expected.flops;
    for (size_t i = done; i < end; ++i) {
      ASSERT_NEAR(scored.bits[i], -expected.log_probabilities[i - begin + bos.size()] / std::log(2.0), 1e-3)
          << i;
    }
    done = end;
  }
  EXPECT_NEAR(scored.flops / flops, 1, 1e-9);

  std::atomic<bool> cancelled{true};
  EXPECT_THROW(scorer.Score(pieces, {{}, &cancelled}, *be), Cancelled);
  EXPECT_EQ(scorer.Score(pieces, {}, *be).bits, scored.bits);  // and it goes on serving
}

// The whole of it: what was guessable is gone, what protects itself stays, the account has the second model
// in it.
TEST(SelfInformation, SelectiveContextEndToEnd) {
  if (!MakeNativeBackendOrSkip("cpu", {})) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  const std::unique_ptr<Engine> engine = Engine::Load(kBundled, {.threads = 2});
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The same line is written here again. ";
  text += "But 81725 is new.";
  Request request;
  request.tokens = engine->tokenizer()->Encode(text);
  request.max_tokens = 2;
  request.prune = "selective:model=" + kBundled + ",keep=0.3,min=0";
  int calls = 0;
  request.scoring = [&](double) { ++calls; };
  const Answer answer = engine->Generate(request);
  EXPECT_TRUE(answer.prune_active);
  EXPECT_GT(calls, 0);
  const int64_t kept = answer.ledger.layers()[0].kv_rows;
  EXPECT_LT(kept, static_cast<int64_t>(request.tokens.size()) / 2);
  EXPECT_GT(answer.ledger.selection_flops, 0);
  EXPECT_GT(answer.ledger.prefill_flops(), answer.ledger.selection_flops);

  TraceRecorder recorder;
  request.trace = &recorder;
  request.protection = {.first = 5, .last = 3};
  engine->Generate(request);
  const Answer again = engine->Generate(request);
  EXPECT_GE(again.ledger.layers()[0].kv_rows, kept);
  EXPECT_EQ(again.ledger.selection_flops, answer.ledger.selection_flops);

  request.prune = "selective:model=/nonexistent.gguf";
  EXPECT_THAT(ErrorOf([&] { engine->Generate(request); }), HasSubstr("/nonexistent.gguf"));
  request.prune = "none";
  EXPECT_EQ(engine->Generate(request).ledger.selection_flops, 0);
  const std::unique_ptr<Engine> bare = Engine::FromShape("tiny", {.threads = 2});
  request = {};
  request.tokens = std::vector<int32_t>(1100, 3);
  request.max_tokens = 1;
  request.prune = "selective:model=" + kBundled;
  EXPECT_THAT(bare->Generate(request).prune_reason, HasSubstr("no tokenizer"));
}

}  // namespace
}  // namespace coppice
