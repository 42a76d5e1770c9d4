// Shared by the laws of prefixes (model/prefix.h): methods, arithmetics, and states that runs leave and take
// over.
#pragma once

#include <gtest/gtest.h>

#include "laws_support.h"
#include "laws_table.h"

namespace coppice {

inline constexpr int64_t kSteps = 6;
inline constexpr int kLayers = 6;

inline constexpr LawArm kArms[] = {{"reference", "reference", true, std::nullopt},
                                   {"cpu_exact", "cpu", true, std::nullopt},
                                   {"cpu", "cpu", false, std::nullopt},
                                   {"cpu_f32", "cpu", false, DType::kF32},
                                   {"cpu_q8", "cpu", false, DType::kQ8_0}};

// The table's methods, and what they make together.
inline std::vector<MethodEntry> PrefixEntries() {
  std::vector<MethodEntry> entries = LawEntries();
  const auto active = [&](std::string_view name) { return ActiveOf(entries, name); };
  const std::vector<MethodEntry> more = {
      {.name = "none", .active = "none", .shared = {6, false}},
      {.name = "sliminfer_ftp", .active = active("sliminfer") + "+" + active("ftp"), .shared = {1, true}},
      {.name = "sdtp_snapkv", .active = active("sdtp") + "+" + active("snapkv"), .shared = {2, false}},
      {.name = "ftp_xattention", .active = active("ftp") + "+" + active("xattention"), .tokens = 500},
      {.name = "lazyllm_sum",
       .active = "lazyllm:layers=2/4,keep=0.5,queries=4,ask=question,sum=2,whole=sentence,min=0",
       .shared = {2, false}},
      {.name = "coppice_sum",
       .active = "coppice:layers=3/5,keep=0.5/0.25,queries=8/1,widen=16/8,sum=3/2,whole=none/"
                 "sentence,floor=0,last=8,min=0",
       .shared = {3, false}},
      {.name = "coppice_mass",
       .active = "coppice:layers=2/4,keep=1/0.4,mass=0.6,queries=8/1,widen=2,floor=0,last=8,min=0",
       .shared = {2, false}},
      {.name = "sliminfer_sum",
       .active =
           "sliminfer:layers=2/4,keep=112/64,block=16,last=1,score=mass,queries=4,sum=2,whole=sentence,min=0",
       .shared = {1, true}},
      {.name = "ftp_sum",
       .active = "ftp:eta=0.5,dense=2,first=10,last=8,sum=3,whole=sentence,min=0",
       .shared = {2, true}},
      {.name = "ftp_late", .active = "ftp:eta=0.5,dense=5,first=10,last=8,min=0", .shared = {6, false}}};
  entries.insert(entries.end(), more.begin(), more.end());
  return entries;
}

struct PrefixCase {
  LawArm arm;
  MethodEntry entry;
};

inline std::vector<PrefixCase> PrefixCases() {
  std::vector<PrefixCase> cases;
  for (const LawArm& arm : kArms) {
    for (const MethodEntry& entry : PrefixEntries()) {
      // The rows of a layer are copied whatever their type: where it is not the arithmetic's own, a few
      // methods do.
      const bool few = arm.cache == DType::kF32;
      if (!few || entry.name == "sliminfer" || entry.name == "quest") cases.push_back({arm, entry});
    }
  }
  return cases;
}

inline std::vector<int32_t> Joined(std::vector<int32_t> first, const std::vector<int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// The first `rows` of `document`, then something else.
inline std::vector<int32_t> Question(const std::vector<int32_t>& document, int64_t rows, int64_t tokens) {
  return Joined({document.begin(), document.begin() + rows}, RandomPrompt(tokens - rows, 50, 99));
}

inline bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() && a.dtype() == b.dtype() &&
         (a.rows() == 0 || std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.bytes())) == 0);
}

inline void ExpectSameState(const PrefixState& a, const PrefixState& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.point, b.point);
  EXPECT_EQ(a.complete, b.complete);
  EXPECT_TRUE(SameBytes(a.hidden, b.hidden));
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t l = 0; l < a.layers.size(); ++l) {
    EXPECT_TRUE(SameBytes(a.layers[l].keys, b.layers[l].keys)) << l;
    EXPECT_TRUE(SameBytes(a.layers[l].values, b.layers[l].values)) << l;
  }
}

class PrefixBase : public testing::Test {
 protected:
  void Start(const LawArm& arm) {
    backend_ = MakeBackendOrSkip(arm.backend, {.threads = 1, .exact = arm.exact, .cache_type = arm.cache});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    head_dim_ = arm.cache == DType::kQ8_0 ? 32 : 8;
    tiny_ = MakeTiny({.head_dim = head_dim_});
  }
  PrefixRules Rules(const std::string& spec, const std::vector<int32_t>& prompt) const {
    return RulesOf(*MakePolicy(spec, TinyContext(tiny_.Make(), prompt, *backend_), {}).policy, kLayers,
                   static_cast<int64_t>(prompt.size()));
  }
  RunResult Run(const std::vector<int32_t>& prompt, const RunOptions& options) {
    return RunTiny(tiny_.Make(), prompt, *backend_, options);
  }
  // What a run of `spec` leaves at `point`.
  std::shared_ptr<const PrefixState> Capture(const std::vector<int32_t>& prompt, const std::string& spec,
                                             LayerPoint point) {
    PrefixCapture capture(point, kLayers);
    Run(prompt, {.spec = spec, .capture = &capture});
    return capture.Take(prompt);
  }

  std::unique_ptr<Backend> backend_;
  int head_dim_ = 8;
  TinyModel tiny_ = MakeTiny({});
};

inline std::string CaseName(const testing::TestParamInfo<PrefixCase>& test) {
  return std::string(test.param.arm.name) + "_" + test.param.entry.name;
}

}  // namespace coppice
