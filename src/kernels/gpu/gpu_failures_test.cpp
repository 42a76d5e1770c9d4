// Every operation over the fake device, with every call of the driver and of cuBLASLt failing in turn: each
// failure is an error of one line, or changes nothing, and nothing leaks.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/conformance_support.h"
#include "kernels/gpu/fake_test_support.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/gpu_backend.h"
#include "tensor/device_memory.h"

namespace coppice {
namespace {

using testing_kernels::AttentionData;
using testing_kernels::Random;
using testing_kernels::RandomWeight;
using testing_kernels::SameBits;

// A run of all operations, with operands in device memory, as the model has them, and what the host sees of
// it.
class Operations {
 public:
  std::vector<Tensor> All() {
    Products();
    Rows();
    Attend();
    Step();
    return std::move(seen_);
  }

 private:
  Tensor Placed(const Tensor& t) {
    Tensor copy(t.dtype(), t.rows(), t.cols(), be_->memory());
    CopyRows(t.view(), copy.mutable_view());
    return copy;
  }
  PlacedWeight Weight(DType type, int64_t rows, uint32_t seed) {
    const Tensor stored = RandomWeight(type, rows, 256, seed);
    return be_->PlaceWeight(stored.view(), WeightUse::kProduct);
  }
  void See(const TensorView& view) {
    Tensor host(view.dtype, view.rows, view.cols);
    CopyRows(view, host.mutable_view());
    seen_.push_back(std::move(host));
  }

  void Products() {
    const Tensor x = Placed(Random(9, 256, 1));
    const PlacedWeight quantised = Weight(DType::kQ4_K, 30, 3);
    const PlacedWeight gate = Weight(DType::kQ8_0, 20, 4);
    const PlacedWeight up = Weight(DType::kQ8_0, 20, 5);
    const PlacedWeight plain = Weight(DType::kBF16, 30, 6);
    const Tensor bias = Placed(Random(1, 60, 7));
    Tensor y = Tensor::Zeros(DType::kF32, 9, 60, be_->memory());
    Tensor inner(DType::kF32, 9, 20, be_->memory());
    PackedMatrix packed;
    PackedMatrix gated;
    be_->PackParts(std::vector{quantised.view, plain.view}, packed);
    be_->ProductInto(x.view(), packed, bias.view(), ProductEnd::kAdd, y.mutable_view());
    be_->PackGated(gate.view, up.view, Activation::kSilu, gated);
    be_->Product(x.view(), gated, {}, inner.mutable_view());
    be_->DecodeProduct(x.view().Rows(3, 2), plain.view, {}, y.mutable_view().Rows(3, 2).Cols(30, 30));
    See(y.view());
    See(inner.view());
  }

  void Rows() {
    const std::vector<int32_t> rows = {1, 5, 8};
    const Tensor x = Placed(Random(9, 64, 1));
    const Tensor norm = Placed(Random(1, 64, 2));
    const Tensor angle = Placed(Random(9, 16, 3));
    const Tensor table = RandomWeight(DType::kQ8_0, 12, 64, 4);
    Tensor y(DType::kF32, 9, 64, be_->memory());
    Tensor few(DType::kF32, 3, 64, be_->memory());
    Tensor narrow(DType::kBF16, 9, 64, be_->memory());
    be_->RmsNorm(x.view(), norm.view(), 1e-5f, y.mutable_view());
    be_->LayerNorm(y.view(), norm.view(), norm.view(), 1e-5f, y.mutable_view());
    be_->Rope(y.mutable_view(), 32, std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8},
              {.cos = angle.view(), .sin = angle.view()});
    be_->Embed(table.view(), rows, 1, few.mutable_view());
    be_->ScatterAddRows(few.view(), rows, y.mutable_view());
    be_->GateMul(y.mutable_view(), x.view(), Activation::kSilu);
    be_->Gelu(y.mutable_view());
    // Rows that are kept move to the front.
    be_->GatherRows(y.view(), rows, y.mutable_view().Rows(0, 3));
    be_->Convert(y.view(), narrow.mutable_view());
    Tensor host(DType::kBF16, 3, 64);
    be_->GatherRows(narrow.view(), rows, host.mutable_view());
    See(y.view());
    seen_.push_back(std::move(host));
  }

  void Attend() {
    const AttentionData data({.heads = 4, .kv_heads = 2, .head_dim = 16, .n = 20, .m = 6}, DType::kBF16);
    AttentionInput in = data.Input();
    const Tensor keys = Placed(data.keys);
    in.keys = keys.view();
    const std::vector<SparsePattern::Head> heads(4, {{0, 3}, {{0, 1, 2}, {1, 2}}});
    const SparsePattern pattern{.query_block = 4, .key_block = 8, .heads = heads};
    Tensor out(DType::kF32, 6, 64);
    Tensor mass(DType::kF32, 1, 20);
    Tensor weights(DType::kF32, 24, 20);
    Tensor units(DType::kF32, 1, 3);
    const auto keep = [&](const Tensor& t) { seen_.push_back(t.Clone()); };
    be_->Attention(in, out.mutable_view());
    keep(out);
    be_->SparseAttention(in, pattern, 0, out.mutable_view());
    keep(out);
    be_->DecodeAttention(in, pattern, out.mutable_view());
    keep(out);
    be_->AttentionMass(in, {}, MassPool::kSum, mass.mutable_view());
    keep(mass);
    be_->AttentionWeights(in, weights.mutable_view());
    keep(weights);
    be_->UnitScores(in, 8, KeyPool::kMean, units.mutable_view());
    keep(units);
    be_->TopK(mass.view(), 3);
  }

  void Step() {
    const Tensor x = Placed(Random(1, 64, 1));
    Tensor sum = Tensor::Zeros(DType::kF32, 1, 64, be_->memory());
    for (int step = 0; step < 2; ++step) {
      be_->BeginStep();
      be_->Add(x.view(), sum.mutable_view());
      See(sum.view());                                // the host waits in the middle
      const Tensor moved = Placed(Random(1, 64, 2));  // allocated and freed while the step is recorded
      be_->Add(moved.view(), sum.mutable_view());
      be_->EndStep();
    }
    See(sum.view());
  }

  std::unique_ptr<Backend> be_ = MakeGpuBackend({});
  std::vector<Tensor> seen_;
};

// A call that destroys something, or must come before it is destroyed, leaves it behind if it fails.
bool MayLeak(const std::string& call) {
  for (const char* part : {"Free", "Destroy", "Release", "Unload", "SetCurrent"}) {
    if (call.find(part) != std::string::npos) return true;
  }
  return false;
}

class GpuFakeFailures : public testing_gpu::GpuFake {};

TEST_F(GpuFakeFailures, EveryFailingCallIsAnErrorAndLeaksNothing) {
  const std::vector<Tensor> expected = Operations().All();
  fake().RunAll();
  int64_t live = fake().live();
  const int64_t before = fake().Calls("");
  Operations().All();
  const int64_t calls = fake().Calls("") - before;
  fake().RunAll();
  ASSERT_EQ(fake().live(), live);
  ASSERT_GT(calls, 300);
  int64_t errors = 0;
  for (int64_t i = 1; i <= calls; ++i) {
    fake().FailAt("", i);
    try {
      const std::vector<Tensor> seen = Operations().All();
      // A failed call whose result is not needed (a free, a destructor) changes nothing.
      ASSERT_EQ(seen.size(), expected.size());
      for (size_t t = 0; t < seen.size(); ++t)
        ASSERT_TRUE(SameBits(seen[t], expected[t])) << "call " << i << ", " << fake().failed();
    } catch (const Error& error) {
      ++errors;
      EXPECT_TRUE(std::string(error.what()).starts_with("[gpu] ")) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
    fake().FailAt("", 0);
    fake().RunAll();
    const int64_t left = fake().live() - live;
    if (left > 0) {
      ASSERT_TRUE(MayLeak(fake().failed())) << "call " << i << ", " << fake().failed() << ": " << left;
    }
    live += left;
  }
  EXPECT_GT(errors, calls / 2);
}

TEST_F(GpuFakeFailures, NothingIsLeftWhenTheLastBackendIsGone) {
  Operations().All();
  fake().RunAll();
  const int64_t live = fake().live();
  Operations().All();
  fake().RunAll();
  EXPECT_EQ(fake().live(), live);
}

}  // namespace
}  // namespace coppice
