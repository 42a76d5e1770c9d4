// Attention of decode steps, of every backend, against fp64 and, bit for bit, between calls with different
// queries and heads.
#include <algorithm>

#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

// Groups below, at and above four heads; whole, half and partial vectors of columns; keys that do not fill a
// tile, or fill one or several pieces; more heads than share a task.
const std::vector<AttentionCase> kCases = {
    {.heads = 1, .kv_heads = 1, .head_dim = 4, .n = 1, .m = 1},
    {.heads = 6, .kv_heads = 2, .head_dim = 8, .n = 17, .m = 3},
    {.heads = 2, .kv_heads = 2, .head_dim = 21, .n = 40, .m = 2},
    {.heads = 10, .kv_heads = 2, .head_dim = 32, .n = 1100, .m = 1},
    {.heads = 4, .kv_heads = 2, .head_dim = 40, .n = 512, .m = 1},
    {.heads = 32, .kv_heads = 8, .head_dim = 64, .n = 1055, .m = 1},
    {.heads = 7, .kv_heads = 1, .head_dim = 64, .n = 513, .m = 3, .hole = 3},
    {.heads = 4, .kv_heads = 2, .head_dim = 80, .n = 600, .m = 1, .alibi = true},
    {.heads = 3, .kv_heads = 3, .head_dim = 96, .n = 700, .m = 2, .hole = 2, .window = 530},
    {.heads = 64, .kv_heads = 64, .head_dim = 16, .n = 70, .m = 1},
    {.heads = 8, .kv_heads = 1, .head_dim = 128, .n = 555, .m = 2, .window = 33, .alibi = true},
    {.heads = 5, .kv_heads = 1, .head_dim = 256, .n = 1030, .m = 1},
    {.heads = 8, .kv_heads = 2, .head_dim = 64, .n = 1100, .m = 2, .sinks = true},
    {.heads = 4, .kv_heads = 4, .head_dim = 40, .n = 300, .m = 1, .window = 128, .sinks = true},
};

class DecodeConformance : public ConformanceTest {
 protected:
  std::vector<DType> CacheTypes(int head_dim) {
    std::vector<DType> types = {be().cache_dtype(), DType::kF16};
    if (GetParam().name == "reference" || !GetParam().exact) types = {DType::kF32, DType::kBF16, DType::kF16};
    if (head_dim % 32 == 0) types.push_back(DType::kQ8_0);
    return types;
  }
  // Calls fn(input) for every case and cache type.
  template <typename Fn>
  void ForCases(Fn fn) {
    for (const AttentionCase& c : kCases) {
      if (!Takes(c)) continue;
      for (const DType type : CacheTypes(c.head_dim)) {
        SCOPED_TRACE(::testing::PrintToString(c) + " " + std::string(Info(type).name));
        const AttentionData data(c, type);
        fn(data.Input());
        if (HasFatalFailure()) return;
      }
    }
  }
  static Tensor Attend(Backend& backend, const AttentionInput& in, const SparsePattern& pattern = {}) {
    Tensor out = Random(in.queries.rows, in.queries.cols, 99);
    backend.DecodeAttention(in, pattern, out.mutable_view());
    return out;
  }
  Tensor Attend(const AttentionInput& in, const SparsePattern& pattern = {}) {
    return Attend(be(), in, pattern);
  }
};

AttentionInput Keys(AttentionInput in, int64_t begin, int64_t count) {
  in.keys = in.keys.Rows(begin, count);
  in.values = in.values.Rows(begin, count);
  in.key_positions = in.key_positions.subspan(begin, count);
  return in;
}

AttentionInput Query(AttentionInput in, int64_t i) {
  in.queries = in.queries.Rows(i, 1);
  in.query_positions = in.query_positions.subspan(i, 1);
  return in;
}

// Different keys for every head, and the last block of keys for all. The first head sees few keys.
SparsePattern RandomPattern(const AttentionInput& in, double share) {
  std::mt19937 random(11);
  const auto draw = [&](double chance) { return random() % 10000 < chance * 10000; };
  SparsePattern pattern{.query_block = 1, .key_block = 16, .heads = {}};
  const auto blocks = static_cast<int32_t>((in.keys.rows + 15) / 16);
  for (int h = 0; h < in.shape.heads; ++h) {
    SparsePattern::Head head;
    for (int32_t j = 0; j < in.keys.rows; ++j) {
      if (draw(0.02)) head.columns.push_back(j);
    }
    for (int64_t i = 0; i < in.queries.rows; ++i) {
      head.key_blocks.emplace_back();
      for (int32_t b = 0; b < blocks; ++b) {
        if (b + 1 == blocks || draw(h == 0 ? share / 10 : share)) head.key_blocks.back().push_back(b);
      }
    }
    pattern.heads.push_back(head);
  }
  return pattern;
}

TEST_P(DecodeConformance, MatchesFp64) {
  ForCases([&](const AttentionInput& in) { ExpectClose(Attend(in), NaiveAttention(in), tolerance()); });
  for (const AttentionCase& c : Cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, be().cache_dtype());
    ExpectClose(Attend(data.Input()), NaiveAttention(data.Input()), tolerance());
  }
}

TEST_P(DecodeConformance, FollowsThePattern) {
  const std::unique_ptr<Backend> reference = MakeBackend("reference", {});
  ForCases([&](const AttentionInput& in) {
    const SparsePattern pattern = RandomPattern(in, 0.4);
    Tensor expected(DType::kF32, in.queries.rows, in.queries.cols);
    reference->SparseAttention(in, pattern, 0, expected.mutable_view());
    ExpectClose(Attend(in, pattern), ToMatrix(expected.view()), tolerance());
  });
}

TEST_P(DecodeConformance, APatternOfEverythingIsNoPattern) {
  ForCases([&](const AttentionInput& in) {
    std::vector<int32_t> every(in.keys.rows);
    std::iota(every.begin(), every.end(), 0);
    SparsePattern columns{.query_block = 10, .key_block = 0, .heads = {}};
    columns.heads.assign(in.shape.heads, {.columns = every, .key_blocks = {}});
    ASSERT_TRUE(SameBits(Attend(in, columns), Attend(in)));
  });
}

// Keys at their original positions, with all other keys absent.
TEST_P(DecodeConformance, APatternIsAttentionOverItsKeysAlone) {
  ForCases([&](const AttentionInput& all) {
    const AttentionInput in = Query(all, all.queries.rows - 1);
    SparsePattern pattern = RandomPattern(in, 0.6);
    pattern.heads.assign(in.shape.heads, pattern.heads.back());
    const std::vector<int32_t> rows = KeysOf(pattern, 0, 0, in.keys.rows);
    Tensor keys(in.keys.dtype, rows.size(), in.keys.cols);
    Tensor values(in.keys.dtype, rows.size(), in.keys.cols);
    be().GatherRows(in.keys, rows, keys.mutable_view());
    be().GatherRows(in.values, rows, values.mutable_view());
    std::vector<int32_t> positions;
    for (const int32_t row : rows) positions.push_back(in.key_positions[row]);
    AttentionInput gathered = in;
    gathered.keys = keys.view();
    gathered.values = values.view();
    gathered.key_positions = positions;
    ASSERT_TRUE(SameBits(Attend(in, pattern), Attend(gathered)));
  });
}

TEST_P(DecodeConformance, AHeadWithoutKeysIsZero) {
  const AttentionData data({.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 50, .m = 1}, be().cache_dtype());
  SparsePattern pattern = RandomPattern(data.Input(), 0.5);
  pattern.heads[2] = {.columns = {}, .key_blocks = {{}}};
  const Tensor out = Attend(data.Input(), pattern);
  for (const float v : out.view().Cols(128, 64).Row<float>(0)) EXPECT_EQ(v, 0.0f);
  for (const float v : out.view().Cols(192, 64).Row<float>(0)) EXPECT_NE(v, 0.0f);
}

TEST_P(DecodeConformance, AQueryIsTheSameInAnyCompany) {
  ForCases([&](const AttentionInput& in) {
    const Tensor all = Attend(in);
    for (int64_t i = 0; i < in.queries.rows; ++i) {
      ASSERT_TRUE(SameBits(Attend(Query(in, i)), all.view().Rows(i, 1))) << i;
    }
  });
}

TEST_P(DecodeConformance, AHeadIsTheSameAlone) {  // as layers call it when heads keep different keys
  ForCases([&](const AttentionInput& in) {
    const Tensor all = Attend(in);
    const int64_t columns = int64_t{in.shape.heads / in.shape.kv_heads} * in.shape.head_dim;
    Tensor apart(DType::kF32, in.queries.rows, in.queries.cols);
    for (int g = 0; g < in.shape.kv_heads; ++g) {
      be().DecodeAttention(HeadOf(in, g), {}, apart.mutable_view().Cols(g * columns, columns));
    }
    ASSERT_TRUE(SameBits(apart, all));
  });
}

TEST_P(DecodeConformance, ThreadsChangeNothing) {
  const std::unique_ptr<Backend> one = Make(1);
  const std::unique_ptr<Backend> five = Make(5);
  ForCases([&](const AttentionInput& in) {
    const SparsePattern pattern = RandomPattern(in, 0.5);
    const Tensor dense = Attend(in);
    const Tensor sparse = Attend(in, pattern);
    for (Backend* other : {one.get(), five.get()}) {
      ASSERT_TRUE(SameBits(Attend(*other, in), dense)) << other->threads();
      ASSERT_TRUE(SameBits(Attend(*other, in, pattern), sparse)) << other->threads();
    }
  });
}

TEST_P(DecodeConformance, KeysThatAQueryCannotSeeChangeNothing) {
  ForCases([&](const AttentionInput& in) {
    const Tensor all = Attend(in);
    for (int64_t i = 0; i < in.queries.rows; ++i) {
      const int32_t p = in.query_positions[i];
      const auto keys = in.key_positions;
      const auto end = std::upper_bound(keys.begin(), keys.end(), p) - keys.begin();
      const int32_t window = in.shape.window > 0 ? in.shape.window : p + 1;
      const auto begin = std::upper_bound(keys.begin(), keys.end(), p - window) - keys.begin();
      const AttentionInput seen = Keys(Query(in, i), begin, end - begin);
      ASSERT_TRUE(SameBits(Attend(seen), all.view().Rows(i, 1))) << i;
    }
  });
}

TEST_P(DecodeConformance, ColumnsOfWiderMatrices) {
  const AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 64, .n = 40, .m = 1}, be().cache_dtype());
  const Tensor wide_queries = Random(1, 400, 5);
  const Tensor wide_cache = Converted(Random(60, 256, 6), be().cache_dtype());
  AttentionInput in = data.Input();
  in.queries = wide_queries.view().Cols(100, 128);
  in.keys = wide_cache.view().Rows(10, 40).Cols(64, 64);
  in.values = wide_cache.view().Rows(10, 40).Cols(192, 64);
  Tensor wide_out = Random(1, 300, 8);
  const Tensor before = wide_out.Clone();
  be().DecodeAttention(in, {}, wide_out.mutable_view().Cols(50, 128));
  ExpectClose(wide_out.view().Cols(50, 128), NaiveAttention(in), tolerance());
  EXPECT_TRUE(SameBits(wide_out.view().Cols(0, 50), before.view().Cols(0, 50)));
  EXPECT_TRUE(SameBits(wide_out.view().Cols(178, 122), before.view().Cols(178, 122)));
}

// Caches of several lengths at once: the last part of the keys is cut off for all but the first input.
TEST_P(DecodeConformance, SeveralCachesGiveTheBitsOfEachAlone) {
  ForCases([&](const AttentionInput& in) {
    std::vector<AttentionInput> inputs;
    int64_t rows = 0;
    for (const int64_t cut : {0, 1, 40, 600, 5, 0, 513}) {
      const int64_t keys = in.keys.rows - cut;
      if (keys <= 0) continue;
      inputs.push_back(Keys(in, 0, keys));
      if (inputs.size() % 2 == 0) inputs.back() = Query(inputs.back(), in.queries.rows - 1);
      rows += inputs.back().queries.rows;
    }
    Tensor together = Random(rows, in.queries.cols, 98);
    be().DecodeAttentions(inputs, together.mutable_view());
    int64_t first = 0;
    for (const AttentionInput& one : inputs) {
      const Tensor alone = Attend(one);
      for (int64_t i = 0; i < one.queries.rows; ++i, ++first) {
        const std::span<const float> a = alone.view().Row<float>(i);
        const std::span<const float> b = together.view().Row<float>(first);
        ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << "row " << first << " of " << rows;
      }
    }
  });
}

TEST_P(DecodeConformance, RowsInPlaceGiveTheBitsOfACopy) {
  ForCases([&](const AttentionInput& in) {
    for (const int step : {1, 2, 7}) {  // all rows, half of them, few
      std::vector<int32_t> rows;
      for (int32_t row = step / 2; row < in.keys.rows; row += step) rows.push_back(row);
      if (rows.empty()) continue;
      Tensor expected = Random(in.queries.rows, in.queries.cols, 96);
      be().Backend::DecodeAttentionOver(in, rows, expected.mutable_view());  // copies them
      Tensor out = Random(in.queries.rows, in.queries.cols, 97);
      be().DecodeAttentionOver(in, rows, out.mutable_view());
      for (int64_t i = 0; i < out.rows(); ++i) {
        const std::span<const float> a = expected.view().Row<float>(i);
        const std::span<const float> b = out.view().Row<float>(i);
        ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << "every " << step << ", row " << i;
      }
    }
  });
}

TEST_P(DecodeConformance, HugeScoresStayAWeightedMean) {  // exp overflows fp32 above 88
  AttentionData data({.heads = 2, .kv_heads = 1, .head_dim = 64, .n = 1200, .m = 1}, be().cache_dtype());
  data.queries = Random(1, 128, 5, 1e4f);
  const Tensor out = Attend(data.Input());
  const Matrix v = ToMatrix(data.values.view());
  for (int64_t c = 0; c < 128; ++c) {
    const auto less = [&](const auto& a, const auto& b) { return a[c % 64] < b[c % 64]; };
    const auto [low, high] = std::minmax_element(v.begin(), v.end(), less);
    ASSERT_GE(out.view().Row<float>(0)[c], (*low)[c % 64] - 0.02);
    ASSERT_LE(out.view().Row<float>(0)[c], (*high)[c % 64] + 0.02);
  }
}

TEST_P(DecodeConformance, WrongShapesFail) {
  const AttentionData data({.heads = 4, .kv_heads = 2, .head_dim = 8, .n = 10, .m = 1}, be().cache_dtype());
  Tensor out(DType::kF32, 1, 32);
  const auto expect_failure = [&](const AttentionInput& in, const SparsePattern& pattern = {}) {
    EXPECT_THROW(be().DecodeAttention(in, pattern, out.mutable_view()), CheckFailure);
  };
  AttentionInput in = data.Input();
  in.shape.kv_heads = 3;
  expect_failure(in);
  in = data.Input();
  in.values = in.values.Rows(0, 9);
  expect_failure(in);
  in = data.Input();
  in.key_positions = in.key_positions.first(9);
  expect_failure(in);
  SparsePattern pattern = RandomPattern(data.Input(), 0.5);
  pattern.heads.pop_back();
  expect_failure(data.Input(), pattern);
  EXPECT_THROW(be().DecodeAttention(data.Input(), {}, out.mutable_view().Cols(0, 16)), CheckFailure);
}

INSTANTIATE_TEST_SUITE_P(Backends, DecodeConformance, ::testing::ValuesIn(kConfigs), ConfigName);

}  // namespace
}  // namespace coppice
