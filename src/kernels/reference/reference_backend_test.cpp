// Promises of the reference backend only; conformance_*_test.cpp cover those of every backend.
#include "kernels/reference/reference_backend.h"

#include <gtest/gtest.h>

#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

TEST(ReferenceBackend, DecodeEqualsPrefillBitForBit) {
  const std::unique_ptr<Backend> be = MakeReferenceBackend();
  for (DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ3_K, DType::kQ6_K}) {
    const Tensor x = Random(5, 768, 1);
    const Tensor w = RandomWeight(type, 33, 768, 2);
    const Tensor bias = Random(1, 33, 3);
    PackedMatrix packed;
    be->Pack(w.view(), packed);
    Tensor prefill(DType::kF32, 5, 33);
    Tensor decode(DType::kF32, 5, 33);
    be->Product(x.view(), packed, bias.view(), prefill.mutable_view());
    be->DecodeProduct(x.view(), w.view(), bias.view(), decode.mutable_view());
    EXPECT_TRUE(SameBits(prefill, decode)) << Info(type).name;
  }
}

TEST(ReferenceBackend, AQueryWithoutVisibleKeysIsZero) {  // outside the contract, but must not be NaN
  const std::unique_ptr<Backend> be = MakeReferenceBackend();
  AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 8, .n = 6, .m = 2}, DType::kF32);
  data.key_positions = {0, 1, 2, 3, 5, 6};  // the query at 4 has a window of one and no key there
  data.shape.window = 1;
  Tensor out = Random(2, 16, 4);
  Tensor mass(DType::kF32, 1, 6);
  be->Attention(data.Input(), out.mutable_view());
  be->AttentionMass(data.Input(), {}, MassPool::kSum, mass.mutable_view());
  for (float v : out.view().Row<float>(0)) EXPECT_EQ(v, 0.0f);
  EXPECT_NE(out.view().Row<float>(1)[0], 0.0f);
  for (int j = 0; j < 6; ++j)
    EXPECT_EQ(mass.view().Row<float>(0)[j], j == 4 ? 2.0f : 0.0f);  // two heads at 5
}

TEST(ReferenceBackend, ABrokenKeyHasNoWeightAndANanShows) {
  const std::unique_ptr<Backend> be = MakeReferenceBackend();
  AttentionData data({.heads = 1, .kv_heads = 1, .head_dim = 4, .n = 3, .m = 1}, DType::kF32);
  for (float& q : data.queries.mutable_view().Row<float>(0)) q = 1;
  const auto mass = [&] {
    Tensor t(DType::kF32, 1, 3);
    be->AttentionMass(data.Input(), {}, MassPool::kSum, t.mutable_view());
    return t;
  };
  data.keys.mutable_view().Row<float>(1)[0] = -std::numeric_limits<float>::infinity();
  const Tensor without = mass();
  EXPECT_EQ(without.view().Row<float>(0)[1], 0.0f);
  EXPECT_NEAR(without.view().Row<float>(0)[0] + without.view().Row<float>(0)[2], 1, 1e-6);
  for (int j : {0, 2}) data.keys.mutable_view().Row<float>(j)[0] = -std::numeric_limits<float>::infinity();
  const Tensor nothing = mass();
  for (float v : nothing.view().Row<float>(0)) EXPECT_EQ(v, 0.0f);
  data.keys.mutable_view().Row<float>(1)[0] = std::numeric_limits<float>::quiet_NaN();
  const Tensor broken = mass();
  EXPECT_TRUE(std::isnan(broken.view().Row<float>(0)[1]));  // not hidden by a guard
}

}  // namespace
}  // namespace coppice
