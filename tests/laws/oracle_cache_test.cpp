// C13 for the methods that choose among keys and values: H2O, SnapKV, StreamingLLM, Quest, and attention
// under a given pattern, against the oracle.
#include "oracle_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "oracle_compass.h"
#include "oracle_support.h"

namespace coppice::oracle_cache_test {
namespace {

class OracleCache : public OracleTest {
 protected:
  static OracleCase H2o(double heavy, double recent) {
    return {.spec = fmt::format("h2o:heavy={},recent={},min=0", heavy, recent),
            .methods = [=] { return MethodsOf<oracle::H2o>(heavy, recent); }};
  }
  static OracleCase SnapKv(size_t cap, size_t window, size_t kernel, bool max) {
    return {.spec = fmt::format("snapkv:cap={},window={},kernel={},pool={},min=0", cap, window, kernel,
                                max ? "max" : "avg"),
            .methods = [=] { return MethodsOf<oracle::SnapKv>(cap, window, kernel, max); }};
  }
  static OracleCase FastKv(size_t layer, size_t keep, size_t cache, size_t kernel) {
    return {.spec = fmt::format("fastkv:layer={},keep={},cache={},window=8,kernel={},min=0", layer, keep,
                                cache, kernel),
            .methods = [=] { return MethodsOf<oracle::FastKv>(layer, keep, cache, 8, kernel); }};
  }
  static OracleCase Streaming(size_t sink, size_t recent) {
    return {.spec = fmt::format("streamingllm:sink={},recent={},min=0", sink, recent),
            .methods = [=] { return MethodsOf<oracle::StreamingLlm>(sink, recent); },
            .cache = OracleCase::Cache::kRows};
  }
  static OracleCase Quest(size_t budget, size_t page) {
    return {.spec = fmt::format("quest:budget={},page={},dense=2,min=0", budget, page),
            .methods = [=] { return MethodsOf<oracle::Quest>(budget, page, 2); }};
  }
  OracleText CompassText() const {
    return {Named("compass"), MakeCompass({.interleaved = interleaved(), .seed = 8}),
            CompassPrompt(256, 16, 5, 4, 6)};
  }
};

TEST_P(OracleCache, RandomModelInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const OracleText text = RandomText(200, 3);
  Compare(text, H2o(0.2, 0.2));
  Compare(text, SnapKv(64, 8, 5, false));
  const RunResult run = Compare(text, FastKv(2, 80, 40, 7));
  EXPECT_EQ(run.kept[2].size(), 200u);
  EXPECT_EQ(run.kept[3].size(), 80u);
  EXPECT_EQ(run.state.layers[1].cache.rows(), 40 + kOracleSteps);
  Compare(text, FastKv(3, 50, 100, 3));  // later caches keep all that goes on
  Compare(text, Streaming(4, 60));
  Compare(text, Quest(64, 16));
}

TEST_P(OracleCache, FarFromTies) {
  Compare(NeedleText(256), H2o(0.0313, 0.1));
  Compare(CompassText(), SnapKv(72, 8, 1, false));
  Compare(CompassText(), Streaming(4, 60));
  Compare(NeedleText(256), Quest(64, 16));
}

// A pattern as a method might choose it, whatever it looks at: per head some columns, per block of queries
// its own block and about a third of those before it. The last layer, with its one query, is dense.
constexpr int kPatternBlock = 16;

bool SeesBlock(size_t layer, size_t head, size_t query_block, size_t key_block) {
  return key_block == query_block || (5 * layer + 7 * head + 11 * query_block + 13 * key_block) % 3 == 0;
}
bool IsColumn(size_t head, size_t key) { return key == head || key == 40 + 3 * head; }

class PatternPolicy final : public TokenPolicy {
 public:
  bool ChoosesPattern(Phase phase, int layer) const override { return phase == Phase::kPrefill && layer < 5; }
  SparsePattern Pattern(const AttentionScene& scene, Backend&) override {
    SparsePattern pattern{.query_block = kPatternBlock, .key_block = kPatternBlock, .heads = {}};
    for (size_t h = 0; h < 8; ++h) {
      SparsePattern::Head& head = pattern.heads.emplace_back();
      for (int32_t j = 0; j < kTokens; ++j) {
        if (IsColumn(h, static_cast<size_t>(j))) head.columns.push_back(j);
      }
      for (int32_t b = 0; b * kPatternBlock < kTokens; ++b) {
        std::vector<int32_t>& keys = head.key_blocks.emplace_back();
        for (int32_t j = 0; j <= b; ++j) {
          if (SeesBlock(static_cast<size_t>(scene.layer), h, static_cast<size_t>(b), static_cast<size_t>(j)))
            keys.push_back(j);
        }
      }
    }
    return pattern;
  }
  static constexpr int32_t kTokens = 200;
};

TEST_P(OracleCache, SparsePrefill) {
  const OracleText text = RandomText(PatternPolicy::kTokens, 3);
  OracleCase c{.spec = "given pattern", .methods = [] {
                 auto methods = MethodsOf<oracle::GivenPattern>();
                 static_cast<oracle::GivenPattern&>(*methods[0]).sees = [](size_t l, size_t h, size_t i,
                                                                           size_t j) {
                   return l == 5 || IsColumn(h, j) || SeesBlock(l, h, i / kPatternBlock, j / kPatternBlock);
                 };
                 return methods;
               }};
  PatternPolicy policy;
  const RunResult run = RunTiny(text.tiny.Make(), text.prompt, *backend_, {.policy = &policy, .decode = 2});
  std::vector<int32_t> tokens = text.prompt;
  tokens.insert(tokens.end(), run.generated.begin(), run.generated.end());
  const oracle::Result& want = AskOracle(text, c, tokens);
  ExpectSameSets(run, want, c);
  ExpectNearLogits(run, want, tolerance());
  const RunResult dense = RunTiny(text.tiny.Make(), text.prompt, *backend_, {});
  EXPECT_GT(std::abs(dense.logits[0][0] - run.logits[0][0]), 0.01) << "the pattern changes nothing";
}

// The keys that each head reads, page by page.
class QuestRecorder final : public TokenPolicy {
 public:
  explicit QuestRecorder(TokenPolicy& inner) : inner_(inner) {}
  bool ChoosesPattern(Phase phase, int layer) const override { return inner_.ChoosesPattern(phase, layer); }
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override {
    SparsePattern pattern = inner_.Pattern(scene, be);
    std::vector<oracle::Set> heads;
    for (int h = 0; h < static_cast<int>(pattern.heads.size()); ++h) {
      const std::vector<int32_t> keys = KeysOf(pattern, h, 0, scene.in.keys.rows);
      heads.emplace_back(keys.begin(), keys.end());
    }
    read.emplace_back(scene.layer, std::move(heads));
    return pattern;
  }
  PolicyFacts Facts() const override { return inner_.Facts(); }

  std::vector<std::pair<int, std::vector<oracle::Set>>> read;  // (layer, [heads])

 private:
  TokenPolicy& inner_;
};

TEST_P(OracleCache, QuestReadsThePagesOfTheBounds) {
  const OracleText text = NeedleText(256);
  const OracleCase c = Quest(64, 16);
  const PruneChoice choice =
      MakePolicy(c.spec, {.shape = text.tiny.config.shape, .tokens = 256, .prompt = text.prompt}, {});
  QuestRecorder recorder(*choice.policy);
  const RunResult run =
      RunTiny(text.tiny.Make(), text.prompt, *backend_, {.policy = &recorder, .decode = kOracleSteps});
  std::vector<int32_t> tokens = text.prompt;
  tokens.insert(tokens.end(), run.generated.begin(), run.generated.end());
  const oracle::Result& want = AskOracle(text, c, tokens);
  ASSERT_GT(want.margin, clear());
  ASSERT_EQ(recorder.read.size(), static_cast<size_t>(kOracleSteps * 4));
  for (size_t i = 0; i < recorder.read.size(); ++i) {
    const auto& [layer, heads] = recorder.read[i];
    std::vector<oracle::Set> attended = want.steps[i / 4].attended[static_cast<size_t>(layer)];
    if (attended.size() == 1) attended.resize(heads.size(), attended[0]);
    EXPECT_EQ(heads, attended) << "step " << i / 4 << " layer " << layer;
  }
}

COPPICE_ORACLE_ON_BACKENDS(OracleCache);

}  // namespace
}  // namespace coppice::oracle_cache_test
