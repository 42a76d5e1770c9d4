// C13 and C14: comparing a run of the engine with the oracle, and a model whose choices bf16 can tell apart.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "laws_support.h"
#include "oracle.h"

namespace coppice {

inline constexpr int64_t kOracleSteps = 12;

// A spec for the engine, and the same in the oracle.
struct OracleCase {
  std::string spec;
  std::function<std::vector<std::unique_ptr<oracle::Method>>()> methods;
  // Layers from which on tokens come back.
  std::set<size_t> stages = {};
  bool append = true;  // revive_mask
  // What the engine's caches can be compared in: positions; or, where positions have become slots, numbers of
  // rows; or nothing, where part of what there is lies in the cold tier.
  enum class Cache { kPositions, kRows, kNothing } cache = Cache::kPositions;
  std::vector<PositionSpan> question = {};
};

template <typename M, typename... Args>
std::vector<std::unique_ptr<oracle::Method>> MethodsOf(Args&&... args) {
  std::vector<std::unique_ptr<oracle::Method>> methods;
  methods.push_back(std::make_unique<M>(std::forward<Args>(args)...));
  return methods;
}

struct OracleText {
  std::string name;  // of model and prompt together
  TinyModel tiny;
  std::vector<int32_t> prompt;
};

// Greedy ids differ between backends only where logits tie, so most runs ask the oracle the same question.
inline const oracle::Result& AskOracle(const OracleText& text, const OracleCase& c,
                                       const std::vector<int32_t>& tokens) {
  static std::map<std::tuple<std::string, std::string, std::vector<int32_t>>, oracle::Result> answers;
  std::string name = text.name;
  for (const PositionSpan& span : c.question) name += " " + std::to_string(span.begin);
  const auto key = std::make_tuple(name, c.spec, tokens);
  const auto it = answers.find(key);
  if (it != answers.end()) return it->second;
  const oracle::Llama model(text.tiny);
  const auto methods = c.methods();
  std::vector<oracle::Method*> list;
  for (const auto& method : methods) list.push_back(method.get());
  oracle::Pass pass(model, tokens, text.prompt.size(), list);
  pass.append = c.append;
  return answers[key] = pass.Run();
}

inline oracle::Set SetOf(const Positions& positions) { return {positions.begin(), positions.end()}; }

// Run by run: what the engine kept, attended, revived, parked and has in its caches is what the oracle did.
inline void ExpectSameSets(const RunResult& run, const oracle::Result& want, const OracleCase& c) {
  const size_t layers = want.cached.size();
  for (size_t l = 0; l < layers; ++l) {
    EXPECT_EQ(SetOf(run.ffn[l]), want.ffn[l]) << "FFN of layer " << l;
    EXPECT_EQ(run.state.ledger.layers()[l].kv_rows, static_cast<int64_t>(want.cached[l].size()));
    EXPECT_EQ(run.state.ledger.layers()[l].ffn_rows, static_cast<int64_t>(want.ffn[l].size()));
    for (int g = 0; g < static_cast<int>(want.left[l].size()); ++g) {
      const auto positions = run.state.layers[l].cache.positions(g);
      const oracle::Set cached(positions.begin(), positions.end());
      const oracle::Set& left = want.left[l][static_cast<size_t>(g)];
      if (c.cache == OracleCase::Cache::kPositions) {
        EXPECT_EQ(cached, left) << "layer " << l << " head " << g;
      }
      if (c.cache == OracleCase::Cache::kRows) {
        EXPECT_EQ(cached.size(), left.size()) << "layer " << l;
      }
    }
  }
  for (size_t step = 0; step < want.steps.size(); ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    const oracle::Step& did = want.steps[step];
    std::vector<std::pair<size_t, size_t>> revived;
    for (const auto& [layer, position] : did.revived) {
      if (c.stages.contains(layer)) revived.emplace_back(layer, position);
    }
    std::vector<std::pair<size_t, size_t>> got(run.revived[step].begin(), run.revived[step].end());
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, revived);
    for (size_t l = 0; l < layers && !c.stages.empty(); ++l)
      EXPECT_EQ(SetOf(run.attended[step][l]), did.attended[l].at(0)) << "layer " << l;
  }
  if (want.steps.empty()) return;
  const oracle::Step& last = want.steps.back();
  for (size_t p = 0; p < last.depth.size(); ++p) {
    EXPECT_EQ(run.state.depth[p], static_cast<int32_t>(last.depth[p])) << "depth of " << p;
    EXPECT_EQ(run.state.aux.Has(static_cast<int32_t>(p)), oracle::In(last.parked, p)) << "Aux of " << p;
  }
}

inline void ExpectNearLogits(const RunResult& run, const oracle::Result& want, double tolerance) {
  ASSERT_EQ(run.logits.size(), want.logits.size());
  for (size_t step = 0; step < want.logits.size(); ++step) {
    for (size_t i = 0; i < want.logits[step].size(); ++i) {
      ASSERT_NEAR(run.logits[step][i], want.logits[step][i], tolerance)
          << "logits " << step << " token " << i;
    }
  }
}

// On every backend and both pairings of RoPE.
class OracleTest : public testing::TestWithParam<std::tuple<Arithmetic, bool>> {
 protected:
  void SetUp() override {
    backend_ = MakeBackendOrSkip(arithmetic().backend, {.threads = 2, .exact = arithmetic().exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  Arithmetic arithmetic() const { return std::get<0>(GetParam()); }
  bool interleaved() const { return std::get<1>(GetParam()); }
  std::string Named(const std::string& name) const { return name + (interleaved() ? " interleaved" : ""); }
  // How far from any other choice the oracle's decisions must be for the sets to be a fair question, and how
  // near the logits.
  double clear() const { return arithmetic().exact ? 1e-6 : 0.02; }
  double tolerance() const { return arithmetic().exact ? 1e-4 : 3e-2; }

  RunResult Compare(const OracleText& text, const OracleCase& c) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, text.name + ": " + c.spec);
    RunOptions options;
    options.spec = c.spec;
    options.question = c.question;
    options.decode = kOracleSteps;
    RunResult run = RunTiny(text.tiny.Make(), text.prompt, *backend_, options);
    EXPECT_TRUE(run.active || c.spec == "none") << run.reason;
    std::vector<int32_t> tokens = text.prompt;
    tokens.insert(tokens.end(), run.generated.begin(), run.generated.end());
    const oracle::Result& want = AskOracle(text, c, tokens);
    EXPECT_GT(want.margin, clear()) << "no fair question: scores nearly tie";
    ExpectSameSets(run, want, c);
    ExpectNearLogits(run, want, tolerance());
    return run;
  }
  // Random weights: dozens of scores near each other, which fp32 must still order as fp64 does.
  OracleText RandomText(int64_t tokens, uint64_t seed) const {
    return {Named("random " + std::to_string(tokens) + " " + std::to_string(seed)),
            MakeTiny({.interleaved = interleaved(), .seed = seed}), RandomPrompt(tokens, 50)};
  }
  OracleText NeedleText(int64_t tokens) const {
    return {Named("needles " + std::to_string(tokens)), MakeNeedle({.interleaved = interleaved(), .seed = 6}),
            NeedlePrompt(tokens)};
  }

  std::unique_ptr<Backend> backend_;
};

#define COPPICE_ORACLE_ON_BACKENDS(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(Backends, suite,                                                    \
                           testing::Combine(testing::ValuesIn(kArithmetics), testing::Bool()), \
                           [](const auto& test) {                                              \
                             return std::string(std::get<0>(test.param).name) +                \
                                    (std::get<1>(test.param) ? "_interleaved" : "_halves");    \
                           })

}  // namespace coppice
