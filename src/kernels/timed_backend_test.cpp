#include "kernels/timed_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;

// Records which operation was called, and takes a measurable time.
class Recorder final : public Backend {
 public:
  explicit Recorder(std::vector<std::string>& calls) : calls_(calls) {}

  std::string_view name() const override { return "recorder"; }
  std::string_view isa() const override { return "paper"; }
  int threads() const override { return 7; }
  DType cache_dtype() const override { return DType::kF16; }

  void PackParts(std::span<const TensorView>, PackedMatrix&) override { Note("PackParts"); }
  void PackGated(const TensorView&, const TensorView&, Activation, PackedMatrix&) override {
    Note("PackGated");
  }
  void ProductInto(const TensorView&, const PackedMatrix&, const TensorView&, ProductEnd,
                   MutableTensorView) override {
    Note("ProductInto");
  }
  void DecodeProduct(const TensorView&, const TensorView&, const TensorView&, MutableTensorView) override {
    Note("DecodeProduct");
  }
  void DecodeProducts(std::span<const DecodeTask>) override { Note("DecodeProducts"); }
  void Embed(const TensorView&, std::span<const int32_t>, float, MutableTensorView) override {
    Note("Embed");
  }
  void RmsNorm(const TensorView&, const TensorView&, float, MutableTensorView) override { Note("RmsNorm"); }
  void LayerNorm(const TensorView&, const TensorView&, const TensorView&, float, MutableTensorView) override {
    Note("LayerNorm");
  }
  void Rope(MutableTensorView, int, std::span<const int32_t>, const RopeTable&) override { Note("Rope"); }
  void GateMul(MutableTensorView, const TensorView&, Activation) override { Note("GateMul"); }
  void Gelu(MutableTensorView) override { Note("Gelu"); }
  void Scale(MutableTensorView, float) override { Note("Scale"); }
  void Add(const TensorView&, MutableTensorView) override { Note("Add"); }
  void GatherRows(const TensorView&, std::span<const int32_t>, MutableTensorView) override {
    Note("GatherRows");
  }
  void ScatterAddRows(const TensorView&, std::span<const int32_t>, MutableTensorView) override {
    Note("ScatterAddRows");
  }
  void Convert(const TensorView&, MutableTensorView) override { Note("Convert"); }
  void MeanRows(const TensorView&, int64_t, MutableTensorView) override { Note("MeanRows"); }
  void Recur(const RecurrenceShape&, const RecurrenceWeights&, std::span<const RecurrenceRows>) override {
    Note("Recur");
  }
  void Convolve(const TensorView&, const TensorView&, const Convolution&, MutableTensorView) override {
    Note("Convolve");
  }
  void Attention(const AttentionInput&, MutableTensorView) override { Note("Attention"); }
  void AttentionMass(const AttentionInput&, std::span<const float>, MassPool, MutableTensorView) override {
    Note("AttentionMass");
  }
  void AttentionWeights(const AttentionInput&, MutableTensorView) override { Note("AttentionWeights"); }
  void SparseAttention(const AttentionInput&, const SparsePattern&, int64_t, MutableTensorView) override {
    Note("SparseAttention");
  }
  void DecodeAttention(const AttentionInput&, const SparsePattern&, MutableTensorView) override {
    Note("DecodeAttention");
  }
  void DecodeAttentions(std::span<const AttentionInput>, MutableTensorView) override {
    Note("DecodeAttentions");
  }
  void DecodeAttentionOver(const AttentionInput&, std::span<const int32_t>, MutableTensorView) override {
    Note("DecodeAttentionOver");
  }
  void UnitScores(const AttentionInput&, int, KeyPool, MutableTensorView) override { Note("UnitScores"); }
  TokenSet TopK(const TensorView&, int64_t k) override {
    Note("TopK");
    return TokenSet::Range(0, k, 9);
  }
  TokenSet SmallestSetWithMass(const TensorView&, double eta) override {
    Note("SmallestSetWithMass");
    if (eta < 0) throw Error("no such share");
    return TokenSet::Range(3, 5, 9);
  }

  void Finish() override { calls_.emplace_back("Finish"); }
  void BeginStep() override { Note("BeginStep"); }
  void EndStep() override { Note("EndStep"); }

 private:
  void Note(const char* call) {
    calls_.emplace_back(call);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::vector<std::string>& calls_;
};

class TimedBackendTest : public ::testing::Test {
 protected:
  std::vector<std::string> calls_;
  TimedBackend timed_{std::make_unique<Recorder>(calls_)};
};

TEST_F(TimedBackendTest, SaysWhatTheOtherSays) {
  EXPECT_EQ(timed_.name(), "recorder");
  EXPECT_EQ(timed_.isa(), "paper");
  EXPECT_EQ(timed_.threads(), 7);
  EXPECT_EQ(timed_.cache_dtype(), DType::kF16);
}

struct Operation {
  std::string name;
  OpKind kind;
  std::function<void()> run;
};

TEST_F(TimedBackendTest, EveryOperationIsPassedOnAndCountedUnderItsKind) {
  PackedMatrix packed;
  const std::vector<Operation> operations = {
      {"PackParts", OpKind::kPack, [&] { timed_.PackParts({}, packed); }},
      {"PackGated", OpKind::kPack, [&] { timed_.PackGated({}, {}, Activation::kSilu, packed); }},
      {"ProductInto", OpKind::kProduct, [&] { timed_.Product({}, packed, {}, {}); }},
      {"DecodeProduct", OpKind::kDecodeProduct, [&] { timed_.DecodeProduct({}, {}, {}, {}); }},
      {"DecodeProducts", OpKind::kDecodeProduct, [&] { timed_.DecodeProducts({}); }},
      {"Embed", OpKind::kRows, [&] { timed_.Embed({}, {}, 1, {}); }},
      {"RmsNorm", OpKind::kRows, [&] { timed_.RmsNorm({}, {}, 0, {}); }},
      {"LayerNorm", OpKind::kRows, [&] { timed_.LayerNorm({}, {}, {}, 0, {}); }},
      {"Rope", OpKind::kRows, [&] { timed_.Rope({}, 2, {}, {}); }},
      {"GateMul", OpKind::kRows, [&] { timed_.GateMul({}, {}, Activation::kSilu); }},
      {"Gelu", OpKind::kRows, [&] { timed_.Gelu({}); }},
      {"Scale", OpKind::kRows, [&] { timed_.Scale({}, 1); }},
      {"Add", OpKind::kRows, [&] { timed_.Add({}, {}); }},
      {"GatherRows", OpKind::kRows, [&] { timed_.GatherRows({}, {}, {}); }},
      {"ScatterAddRows", OpKind::kRows, [&] { timed_.ScatterAddRows({}, {}, {}); }},
      {"Convert", OpKind::kRows, [&] { timed_.Convert({}, {}); }},
      {"MeanRows", OpKind::kRows, [&] { timed_.MeanRows({}, 1, {}); }},
      {"Recur", OpKind::kRecurrence, [&] { timed_.Recur({}, {}, {}); }},
      {"Convolve", OpKind::kRecurrence, [&] { timed_.Convolve({}, {}, {}, {}); }},
      {"Attention", OpKind::kAttention, [&] { timed_.Attention({}, {}); }},
      {"AttentionMass", OpKind::kScoring, [&] { timed_.AttentionMass({}, {}, MassPool::kSum, {}); }},
      {"AttentionWeights", OpKind::kScoring, [&] { timed_.AttentionWeights({}, {}); }},
      {"SparseAttention", OpKind::kAttention, [&] { timed_.SparseAttention({}, {}, 0, {}); }},
      {"DecodeAttention", OpKind::kAttention, [&] { timed_.DecodeAttention({}, {}, {}); }},
      {"DecodeAttentions", OpKind::kAttention, [&] { timed_.DecodeAttentions({}, {}); }},
      {"DecodeAttentionOver", OpKind::kAttention, [&] { timed_.DecodeAttentionOver({}, {}, {}); }},
      {"UnitScores", OpKind::kScoring, [&] { timed_.UnitScores({}, 1, KeyPool::kMean, {}); }},
      {"TopK", OpKind::kSelection, [&] { timed_.TopK({}, 1); }},
      {"SmallestSetWithMass", OpKind::kSelection, [&] { timed_.SmallestSetWithMass({}, 0.5); }}};
  for (const Operation& operation : operations) {
    const OpTimes before = timed_.times();
    calls_.clear();
    operation.run();
    EXPECT_THAT(calls_, ElementsAre(operation.name, "Finish"));
    const OpTimes one = timed_.times() - before;
    for (size_t kind = 0; kind < kOpKindNames.size(); ++kind) {
      const bool its = kind == static_cast<size_t>(operation.kind);
      EXPECT_EQ(one.calls[kind], its ? 1 : 0) << operation.name << " under " << kOpKindNames[kind];
      EXPECT_EQ(one.seconds[kind] > 0, its) << operation.name << " under " << kOpKindNames[kind];
    }
  }
}

// A step that is collected has no operations to wait for.
TEST_F(TimedBackendTest, StepsArePassedOnWhereOperationsAreNotTimed) {
  const auto step = [&] {
    calls_.clear();
    timed_.BeginStep();
    timed_.Add({}, {});
    timed_.EndStep();
  };
  step();
  EXPECT_THAT(calls_, ElementsAre("Add", "Finish"));
  const OpTimes before = timed_.times();
  timed_.SetTiming(false);
  step();
  EXPECT_THAT(calls_, ElementsAre("BeginStep", "Add", "EndStep"));
  EXPECT_EQ(timed_.times().total(), before.total());
  timed_.SetTiming(true);
  step();
  EXPECT_THAT(calls_, ElementsAre("Add", "Finish"));
}

TEST_F(TimedBackendTest, TimesAddUp) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) timed_.Add({}, {});
  for (int i = 0; i < 3; ++i) timed_.Attention({}, {});
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const OpTimes& times = timed_.times();
  EXPECT_GE(times.of(OpKind::kRows), 5 * 0.002);
  EXPECT_GE(times.of(OpKind::kAttention), 3 * 0.002);
  EXPECT_DOUBLE_EQ(times.total(), times.of(OpKind::kRows) + times.of(OpKind::kAttention));
  EXPECT_LE(times.total(), wall);
}

TEST_F(TimedBackendTest, ResultsComeBackAndErrorsPass) {
  EXPECT_THAT(timed_.TopK({}, 2).ToRows(), ElementsAre(0, 1));
  EXPECT_THAT(timed_.SmallestSetWithMass({}, 0.5).ToRows(), ElementsAre(3, 4));
  EXPECT_THROW(timed_.SmallestSetWithMass({}, -1), Error);
  EXPECT_EQ(timed_.times().calls[static_cast<size_t>(OpKind::kSelection)], 3);
}

}  // namespace
}  // namespace coppice
