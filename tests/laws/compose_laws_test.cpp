// Every pair of methods (docs/methods.md, composition): it is refused with a reason, or it runs, and then
// keeps the laws that both keep alone. Walks the registry; a new method joins with its row in laws_table.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "laws_support.h"
#include "laws_table.h"

namespace coppice::compose_laws_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kTokens = 200;
constexpr int64_t kSteps = 6;
const Protection kEnds{.first = 3, .last = 5};

struct Method {
  MethodEntry entry;
  unsigned traits = 0;
  std::string label = {};  // in the names of tests; empty: the method's
  std::string Label() const { return label.empty() ? entry.name : label; }
};

// In the registry's order.
const std::vector<Method>& RegisteredMethods() {
  static const std::vector<Method> all = [] {
    std::vector<Method> methods;
    const std::vector<MethodEntry> entries = LawEntries();
    for (const MethodInfo& info : Methods()) {
      const auto entry = std::find_if(entries.begin(), entries.end(),
                                      [&](const MethodEntry& e) { return e.name == info.name; });
      if (entry != entries.end()) methods.push_back({*entry, info.traits});
    }
    return methods;
  }();
  return all;
}

const Method& Named(const std::string& name) {
  const auto& all = RegisteredMethods();
  const auto it = std::find_if(all.begin(), all.end(), [&](const Method& m) { return m.entry.name == name; });
  if (it == all.end()) throw Error("no method {} in tests/laws/laws_table.h", name);
  return *it;
}

// Methods whose settings switch off a part that other methods could not bear.
std::vector<Method> Variants() {
  const auto variant = [](const char* name, const char* label, const char* active, const char* identity,
                          unsigned without) {
    Method method = Named(name);
    method.label = label;
    method.traits &= ~without;
    method.entry.active = active;
    method.entry.identity = {identity};
    return method;
  };
  return {variant("lazyllm", "lazyllm_that_revives_nothing", "lazyllm:layers=2/4,keep=0.5,revive=none,min=0",
                  "lazyllm:layers=2/4,keep=1,revive=none,min=0", kRevives),
          variant("sliminfer", "sliminfer_that_revives_nothing",
                  "sliminfer:layers=2/4,keep=112/64,block=16,last=1,revive=none,min=0",
                  "sliminfer:layers=2/4,keep=1,revive=none,min=0", kRevives),
          variant("random", "random_input", "random:keep=0.6,min=0", "random:keep=1,min=0", kDropsRows)};
}

std::string Active(const std::string& name) { return Named(name).entry.active; }

// What is wrong with a spec for the tiny model, or "no error".
std::string SpecError(const std::string& spec) {
  const ModelConfig config = TinyConfig({});
  return ErrorOf([&] { MakePolicy(spec, {.shape = config.shape, .tokens = kTokens}, {}); });
}

// Fixed by docs/methods.md and by what each method does to the others' tokens; not read from the registry's
// table.
TEST(Pairs, NamedOnesRunAndNamedOnesAreRefused) {
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{{"sliminfer", "ftp"},
                                                                             {"sliminfer", "quest"},
                                                                             {"lazyllm", "quest"},
                                                                             {"lazyllm", "ftp"},
                                                                             {"sdtp", "h2o"},
                                                                             {"sdtp", "snapkv"},
                                                                             {"sdtp", "ftp"},
                                                                             {"ftp", "snapkv"},
                                                                             {"ftp", "h2o"},
                                                                             {"ftp", "quest"}}) {
    EXPECT_EQ(SpecError(Active(a) + "+" + Active(b)), "no error");
  }
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{{"lazyllm", "sliminfer"},
                                                                             {"lazyllm", "sdtp"},
                                                                             {"lazyllm", "h2o"},
                                                                             {"lazyllm", "snapkv"},
                                                                             {"lazyllm", "streamingllm"},
                                                                             {"sliminfer", "sdtp"},
                                                                             {"sliminfer", "h2o"},
                                                                             {"sliminfer", "pyramidinfer"},
                                                                             {"h2o", "snapkv"},
                                                                             {"streamingllm", "h2o"},
                                                                             {"streamingllm", "sdtp"},
                                                                             {"quest", "h2o"}}) {
    EXPECT_NE(SpecError(Active(a) + "+" + Active(b)), "no error") << a << "+" << b;
  }
}

struct PairCase {
  Arithmetic arithmetic;
  Method a, b;
};

std::vector<PairCase> PairCases() {
  std::vector<PairCase> cases;
  const auto& all = RegisteredMethods();
  for (const Arithmetic& arithmetic : {kArithmetics[0], kArithmetics[2]}) {
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t j = i + 1; j < all.size(); ++j) cases.push_back({arithmetic, all[i], all[j]});
    }
  }
  for (const Method& variant : Variants()) {
    for (const Method& other : all) {
      if (other.entry.name != variant.entry.name) cases.push_back({kArithmetics[0], variant, other});
    }
  }
  return cases;
}

class EveryPair : public testing::TestWithParam<PairCase> {
 protected:
  void SetUp() override {
    const Arithmetic& of = GetParam().arithmetic;
    backend_ = MakeBackendOrSkip(of.backend, {.threads = 2, .exact = of.exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  RunResult Run(const RunOptions& options) { return RunTiny(model_, prompt_, *backend_, options); }
  const RunResult& Dense();
  unsigned traits() const { return GetParam().a.traits | GetParam().b.traits; }
  const std::string& a() const { return GetParam().a.entry.active; }
  const std::string& b() const { return GetParam().b.entry.active; }

  void ExpectRefusal(const std::string& error);
  void ExpectSane(const RunResult& run);

  std::unique_ptr<Backend> backend_;
  Transformer model_ = MakeTiny({}).Make();
  const int64_t tokens_ = std::max(GetParam().a.entry.tokens, GetParam().b.entry.tokens);
  std::vector<int32_t> prompt_ = RandomPrompt(tokens_, 50);
};

// The same for all pairs of a length.
const RunResult& EveryPair::Dense() {
  static std::map<std::pair<std::string, int64_t>, RunResult> runs;
  const std::pair key(std::string(GetParam().arithmetic.name), tokens_);
  const auto it = runs.find(key);
  return it != runs.end() ? it->second : runs.emplace(key, Run({.decode = kSteps})).first->second;
}

// One line that names both and says more than that (ErrorOf sees to the line).
void EveryPair::ExpectRefusal(const std::string& error) {
  const std::string& one = GetParam().a.entry.name;
  const std::string& other = GetParam().b.entry.name;
  for (const std::string& text : {error, SpecError(b() + "+" + a())}) {
    const size_t why = text.find(": ");
    ASSERT_NE(why, std::string::npos) << text;
    EXPECT_GT(text.size() - why, 40u) << text;
    const std::string reason = text.substr(why);
    EXPECT_THAT(reason, HasSubstr(one));
    EXPECT_THAT(reason, HasSubstr(other));
    EXPECT_EQ(reason.find('{'), std::string::npos) << "an empty place in " << text;
  }
}

// C2 and C4: finite logits, sets sorted and nested, the last token and what is protected in every layer.
void EveryPair::ExpectSane(const RunResult& run) {
  const bool evicts = (traits() & kEvicts) != 0;
  const bool skips = (traits() & kSkipsAttention) != 0;  // a token may pass a layer without a key in it
  int64_t held = 0;
  for (const std::vector<float>& logits : run.logits) {
    ASSERT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
  }
  Positions before;
  for (size_t l = 0; l < 6; ++l) {
    SCOPED_TRACE(l);
    for (const std::span<const int32_t> list : run.state.layers[l].cache.position_lists()) {
      const Positions here(list.begin(), list.end());
      ASSERT_EQ(std::adjacent_find(here.begin(), here.end(), std::greater_equal<>()), here.end());
      EXPECT_TRUE(Has(here, static_cast<int32_t>(run.state.depth.size()) - 1));
      // Dropped before the model, the others take their places.
      if ((traits() & (kMovesPositions | kSelectsInput)) != 0) continue;
      const auto end = static_cast<int32_t>(tokens_);
      for (const int32_t p : {0, 1, 2, end - 5, end - 4, end - 3, end - 2, end - 1}) {
        EXPECT_TRUE(Has(here, p)) << p;
      }
      for (int32_t p = end; p < end + kSteps && !evicts; ++p) EXPECT_TRUE(Has(here, p)) << p;
    }
    EXPECT_TRUE(IsSubset(run.ffn[l], run.kept[l]));
    EXPECT_TRUE(l == 0 || IsSubset(run.kept[l], run.kept[l - 1]));
    const Positions stored = StoredPositions(run.state, static_cast<int>(l));
    EXPECT_TRUE(l == 0 || evicts || skips || IsSubset(stored, before));
    before = stored;
    held += std::ssize(stored);
  }
  int64_t computed = 0;
  for (const int32_t depth : run.state.depth) computed += depth;
  EXPECT_EQ(run.state.ledger.token_layers(), skips ? held : computed);
}

TEST_P(EveryPair, RunsOrSaysWhyNot) {
  const std::string error = SpecError(a() + "+" + b());
  if (error != "no error") return ExpectRefusal(error);

  const RunResult run = Run({.spec = a() + "+" + b(), .protection = kEnds, .decode = kSteps});
  EXPECT_TRUE(run.active);
  EXPECT_EQ(run.reason, "");
  ASSERT_NO_FATAL_FAILURE(ExpectSane(run));
  // The order in the spec means nothing.
  const RunResult turned = Run({.spec = b() + "+" + a(), .protection = kEnds, .decode = kSteps});
  ExpectSameLogits(turned, run);
  EXPECT_EQ(turned.kept, run.kept);
  EXPECT_EQ(turned.ffn, run.ffn);
  EXPECT_EQ(turned.attended, run.attended);
  EXPECT_EQ(turned.state.depth, run.state.depth);

  // C1: with settings that keep everything, and with everything protected, the run is the dense one. Nothing
  // protects keys that a pattern passes over, or generated tokens from eviction.
  const RunResult& dense = Dense();
  const std::string identity =
      GetParam().a.entry.identity.front() + "+" + GetParam().b.entry.identity.front();
  ExpectSameLogits(Run({.spec = identity, .decode = kSteps}), dense);
  if ((traits() & (kSparsePrefill | kSparseDecode)) != 0) return;
  const int64_t steps = (traits() & kEvicts) != 0 ? 0 : kSteps;
  const RunResult shielded =
      Run({.spec = a() + "+" + b(), .protection = {.first = tokens_}, .decode = steps});
  for (int64_t i = 0; i <= steps; ++i) {
    EXPECT_TRUE(SameBits(shielded.logits[static_cast<size_t>(i)], dense.logits[static_cast<size_t>(i)])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryPair, testing::ValuesIn(PairCases()), [](const auto& test) {
  return std::string(test.param.arithmetic.name) + "_" + test.param.a.Label() + "_" + test.param.b.Label();
});

// What docs/methods.md says of the pairs it names.
class NamedPairs : public testing::TestWithParam<Arithmetic> {
 protected:
  void SetUp() override {
    backend_ = MakeBackendOrSkip(GetParam().backend, {.threads = 2, .exact = GetParam().exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  RunResult Run(const std::string& spec, int64_t decode = 0) {
    return RunTiny(model_, prompt_, *backend_, {.spec = spec, .decode = decode});
  }
  std::unique_ptr<Backend> backend_;
  Transformer model_ = MakeTiny({}).Make();
  std::vector<int32_t> prompt_ = RandomPrompt(kTokens, 50);
};

// Eviction chooses among what pruning left: its budget, or all of a layer that has less; never more than
// that. H2O's is 40 % of the prompt, and holds while generating.
TEST_P(NamedPairs, SdtpAndEviction) {
  const std::string sdtp = Active("sdtp");
  const RunResult alone = Run(sdtp);
  ASSERT_LT(alone.state.layers[5].cache.rows(), 80);
  for (const auto& [other, budget] :
       {std::pair{"h2o:heavy=0.2,recent=0.2,min=0", 80}, std::pair{"snapkv:cap=72,window=8,min=0", 72}}) {
    SCOPED_TRACE(other);
    const RunResult both = Run(sdtp + "+" + other);
    EXPECT_EQ(both.kept, alone.kept);  // prefill attends before it evicts
    EXPECT_TRUE(SameBits(both.logits[0], alone.logits[0]));
    for (size_t l = 0; l < 6; ++l) {
      EXPECT_EQ(both.state.layers[l].cache.rows(),
                std::min<int64_t>(budget, alone.state.layers[l].cache.rows()))
          << l;
      EXPECT_TRUE(IsSubset(StoredPositions(both.state, static_cast<int>(l)),
                           StoredPositions(alone.state, static_cast<int>(l))));
    }
    EXPECT_LE(both.state.kv_bytes(), 0.4 * static_cast<double>(Run("none").state.kv_bytes()));
  }
  const RunResult later = Run(sdtp + "+h2o:heavy=0.2,recent=0.2,min=0", 40);
  for (const LayerState& layer : later.state.layers) EXPECT_EQ(layer.cache.rows(), 80);
}

// FTP decides who runs an FFN, eviction who stays in the cache: neither sees the other.
TEST_P(NamedPairs, FtpAndEviction) {
  const RunResult alone = Run(Active("ftp"));
  for (const char* name : {"snapkv", "h2o"}) {
    SCOPED_TRACE(name);
    const RunResult both = Run(Active("ftp") + "+" + Active(name));
    EXPECT_EQ(both.ffn, alone.ffn);
    EXPECT_TRUE(SameBits(both.logits[0], alone.logits[0]));
    EXPECT_EQ(both.state.ledger.prefill_flops(), alone.state.ledger.prefill_flops());
    EXPECT_LT(both.state.kv_bytes(), alone.state.kv_bytes() / 2);
  }
}

// StreamingLLM's positions are slots: tokens that enter the model with gaps between them are moved together.
TEST_P(NamedPairs, StreamingLlmNumbersWhatEnters) {
  const std::string window = "+streamingllm:sink=4,recent=60,min=0";
  const RunResult compact = Run("random:keep=0.5,min=0" + window, kSteps);
  ExpectSameLogits(Run("random:keep=0.5,positions=original,min=0" + window, kSteps), compact);
}

// Quest chooses pages among the tokens that the other method attends, and evicts nothing.
TEST_P(NamedPairs, QuestAndWhoBringsTokensBack) {
  for (const char* name : {"sliminfer", "lazyllm"}) {
    SCOPED_TRACE(name);
    const std::string quest = "quest:budget=16,page=8,dense=0,min=0";
    const RunResult alone = Run(Active(name), kSteps);
    const RunResult both = Run(Active(name) + "+" + quest, kSteps);
    EXPECT_EQ(both.kept, alone.kept);
    EXPECT_TRUE(SameBits(both.logits[0], alone.logits[0]));
    EXPECT_FALSE(SameBits(both.logits[1], alone.logits[1]));
    EXPECT_GT(both.state.ledger.revived, 0);
    double density = 1;  // of the last step
    for (const LayerState& layer : both.state.layers) density = std::min(density, layer.step.density);
    EXPECT_LT(density, 0.7);
    int64_t computed = 0;
    for (const int32_t depth : both.state.depth) computed += depth;
    EXPECT_EQ(both.state.kv_bytes() + both.state.cold_bytes(),
              computed * 2 * 16 * BytesOf(backend_->cache_dtype(), 1));
  }
}

// The composition that matters most: sparse attention where SlimInfer keeps everything, FTP among its
// survivors. Every sparse prefill of the registry.
TEST_P(NamedPairs, SlimInferSparseAttentionAndFtp) {
  const std::string slim = Active("sliminfer");
  const std::string ftp = "ftp:eta=0.5,dense=1,first=10,last=8,min=0";
  for (const Method& method : RegisteredMethods()) {
    if ((method.traits & kSparsePrefill) == 0) continue;
    SCOPED_TRACE(method.entry.name);
    prompt_ = RandomPrompt(method.entry.tokens, 50);
    const std::string& sparse = method.entry.active;
    const RunResult run = Run(slim + "+" + sparse + "+" + ftp, kSteps);
    EXPECT_EQ(run.reason, "");
    for (const std::vector<float>& logits : run.logits) {
      ASSERT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
    }
    ExpectSameLogits(Run(ftp + "+" + sparse + "+" + slim, kSteps), run);
    double least = 1;
    for (size_t l = 0; l < 6; ++l) {
      least = std::min(least, run.state.ledger.layers()[l].density);
      EXPECT_TRUE(IsSubset(run.ffn[l], run.kept[l]));
    }
    EXPECT_LT(least, 1) << "no pattern was sparse";
    EXPECT_LT(run.ffn[1].size(), run.kept[1].size());
    EXPECT_LT(run.state.ledger.prefill_flops(), Run(slim + "+" + ftp).state.ledger.prefill_flops());
    int64_t computed = 0;
    for (const int32_t depth : run.state.depth) computed += depth;
    EXPECT_EQ(run.state.ledger.token_layers(), computed);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, NamedPairs, testing::Values(kArithmetics[0], kArithmetics[2]),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace coppice::compose_laws_test
