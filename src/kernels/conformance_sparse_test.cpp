// Attention under a pattern, of every backend: against fp64 with the pattern's mask materialised and, bit for
// bit, against other calls and dense attention.
#include <algorithm>

#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

struct SparseCase {
  AttentionCase attention;
  int query_block, key_block;
  double blocks;   // share of the key blocks before the diagonal
  double columns;  // share of the rows
};
void PrintTo(const SparseCase& c, std::ostream* out) {
  PrintTo(c.attention, out);
  *out << ", query blocks of " << c.query_block << ", key blocks of " << c.key_block << ", blocks "
       << c.blocks << ", columns " << c.columns;
}

// Groups of 1, 2, 4 and 7; gaps, windows and ALiBi; block sizes that do and do not divide the rows; one
// query.
const std::vector<SparseCase> kSparseCases = {
    {{.heads = 1, .kv_heads = 1, .head_dim = 4, .n = 1, .m = 1}, 1, 1, 1, 0},
    {{.heads = 2, .kv_heads = 2, .head_dim = 64, .n = 200, .m = 200}, 64, 64, 0.3, 0.05},
    {{.heads = 4, .kv_heads = 2, .head_dim = 80, .n = 333, .m = 333}, 128, 32, 0.3, 0},
    {{.heads = 4, .kv_heads = 1, .head_dim = 32, .n = 290, .m = 290}, 100, 7, 0.2, 0.1},
    {{.heads = 7, .kv_heads = 1, .head_dim = 64, .n = 260, .m = 150}, 64, 64, 0.5, 0.02},
    {{.heads = 14, .kv_heads = 2, .head_dim = 64, .n = 300, .m = 1}, 1, 16, 0.3, 0},
    {{.heads = 8, .kv_heads = 2, .head_dim = 40, .n = 150, .m = 1, .hole = 2}, 1, 16, 0.2, 0.1},
    {{.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 300, .m = 120, .hole = 3}, 32, 16, 0.3, 0.1},
    {{.heads = 4, .kv_heads = 4, .head_dim = 64, .n = 200, .m = 200, .alibi = true}, 64, 64, 0.3, 0.1},
    {{.heads = 4, .kv_heads = 1, .head_dim = 64, .n = 250, .m = 250, .window = 90}, 64, 32, 0.4, 0.2},
    {{.heads = 7, .kv_heads = 1, .head_dim = 128, .n = 257, .m = 90, .hole = 2, .window = 100, .alibi = true},
     48,
     16,
     0.4,
     0.2},
    {{.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 300, .m = 300, .window = 128, .sinks = true},
     64,
     64,
     0.4,
     0.1},
    {{.heads = 2, .kv_heads = 1, .head_dim = 16, .n = 500, .m = 500}, 512, 64, 0.5, 0},
    {{.heads = 2, .kv_heads = 1, .head_dim = 16, .n = 4500, .m = 40},
     16,
     64,
     0.9,
     0.5},  // lists of two chunks
    {{.heads = 2, .kv_heads = 1, .head_dim = 16, .n = 4500, .m = 40, .window = 700}, 64, 64, 0.9, 0.5},
    // Windows that start in one chunk of the list and end in the next, at different tiles for different
    // queries.
    {{.heads = 2, .kv_heads = 1, .head_dim = 16, .n = 4500, .m = 130, .window = 2600}, 128, 64, 0.9, 0.5},
    // Lists of whole key tiles, which the CPU kernels read from the packed cache.
    {{.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 700, .m = 260}, 64, 128, 0.4, 0},
    {{.heads = 2, .kv_heads = 1, .head_dim = 40, .n = 4500, .m = 130}, 64, 64, 0.8, 0},
    {{.heads = 2, .kv_heads = 1, .head_dim = 16, .n = 4500, .m = 130, .window = 2600}, 128, 64, 0.9, 0},
};

// Random blocks and columns, and the diagonal blocks. Every second head has the same pattern as the one
// before.
SparsePattern RandomPattern(const SparseCase& c, int64_t keys) {
  std::mt19937 random(7);
  const auto draw = [&](double share) { return random() % 10000 < share * 10000; };
  SparsePattern pattern;
  pattern.query_block = c.query_block;
  pattern.key_block = c.key_block;
  for (int h = 0; h < c.attention.heads; ++h) {
    if (h % 2 == 1) {
      pattern.heads.push_back(pattern.heads.back());
      continue;
    }
    SparsePattern::Head head;
    for (int64_t j = 0; j < keys + 5; ++j) {  // some are beyond the cache
      if (draw(c.columns)) head.columns.push_back(static_cast<int32_t>(j));
    }
    const int64_t before = keys - c.attention.m;  // rows before the first query
    for (int64_t q = 0; q < c.attention.m; q += c.query_block) {
      const int64_t first = (before + q) / c.key_block;
      const int64_t last = (before + std::min<int64_t>(q + c.query_block, c.attention.m) - 1) / c.key_block;
      head.key_blocks.emplace_back();
      for (int64_t j = 0; j <= last; ++j) {
        if (j >= first || draw(c.blocks)) head.key_blocks.back().push_back(static_cast<int32_t>(j));
      }
      // No query of the block sees this one.
      if (draw(0.3)) head.key_blocks.back().push_back(static_cast<int32_t>(last + 1));
    }
    pattern.heads.push_back(head);
  }
  return pattern;
}

// Pair by pair, from the definition, without KeysOf.
std::vector<Mask> Materialise(const SparsePattern& pattern, int64_t queries, int64_t keys) {
  const auto holds = [](const std::vector<int32_t>& list, int64_t value) {
    return std::binary_search(list.begin(), list.end(), static_cast<int32_t>(value));
  };
  std::vector<Mask> masks;
  for (const SparsePattern::Head& head : pattern.heads) {
    Mask mask(queries, std::vector<bool>(keys, false));
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t j = 0; j < keys; ++j) {
        mask[i][j] = holds(head.columns, j) ||
                     (!head.key_blocks.empty() &&
                      holds(head.key_blocks[i / pattern.query_block], j / pattern.key_block));
      }
    }
    masks.push_back(std::move(mask));
  }
  return masks;
}

class SparseConformance : public ConformanceTest {
 protected:
  // AMX uses bf16 arithmetic for bf16 keys, whatever the backend's own cache type.
  std::vector<DType> CacheTypes() {
    if (GetParam().name == "reference" || !GetParam().exact) return {DType::kF32, DType::kBF16, DType::kF16};
    return {DType::kF32, DType::kF16};
  }
  static Tensor Attend(Backend& backend, const AttentionInput& in, const SparsePattern& pattern,
                       int64_t first_query = 0) {
    Tensor out = Random(in.queries.rows, in.queries.cols, 98);
    backend.SparseAttention(in, pattern, first_query, out.mutable_view());
    return out;
  }
  Tensor Attend(const AttentionInput& in, const SparsePattern& pattern, int64_t first_query = 0) {
    return Attend(be(), in, pattern, first_query);
  }
  Tensor Dense(const AttentionInput& in) {
    Tensor out(DType::kF32, in.queries.rows, in.queries.cols);
    be().Attention(in, out.mutable_view());
    return out;
  }
};

TEST_P(SparseConformance, MatchesFp64) {
  for (const SparseCase& c : kSparseCases) {
    if (!Takes(c.attention)) continue;
    for (DType type : CacheTypes()) {
      SCOPED_TRACE(::testing::PrintToString(c) + " " + std::string(Info(type).name));
      const AttentionData data(c.attention, type);
      const AttentionInput in = data.Input();
      const SparsePattern pattern = RandomPattern(c, in.keys.rows);
      ExpectClose(Attend(in, pattern),
                  NaiveAttention(in, Materialise(pattern, in.queries.rows, in.keys.rows)), tolerance());
      if (HasFatalFailure()) return;
    }
  }
}

// Varies threads and calls: the number of items of a call per thread decides whether heads share items.
TEST_P(SparseConformance, ARowIsTheSameInAnyCallOnAnyThreads) {
  const std::unique_ptr<Backend> one = Make(1);
  const std::unique_ptr<Backend> three = Make(3);
  for (const SparseCase& c : kSparseCases) {
    if (!Takes(c.attention)) continue;
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c.attention, be().cache_dtype());
    const AttentionInput in = data.Input();
    const SparsePattern pattern = RandomPattern(c, in.keys.rows);
    const Tensor all = Attend(in, pattern);
    for (int64_t step : {1, 7, 64}) {
      PackedCache packed;  // shared by all calls of a step
      packed.Begin(in.shape.kv_heads, in.keys.rows);
      for (int64_t first = 0; first < in.queries.rows; first += step) {
        // All of them would take minutes where tiles are emulated.
        if (first / step % (step == 1 ? 39 : step == 7 ? 5 : 1) > 1) continue;
        const int64_t count = std::min(step, in.queries.rows - first);
        AttentionInput some = RowsOf(in, first, count);
        ASSERT_TRUE(SameBits(Attend(some, pattern, first), all.view().Rows(first, count)))
            << first << " + " << count;
        for (Backend* other : {one.get(), three.get()}) {
          if (first / step % 3 != 0) continue;
          ASSERT_TRUE(SameBits(Attend(*other, some, pattern, first), all.view().Rows(first, count)))
              << first << " + " << count << ", " << other->threads() << " threads";
        }
        // The first rows of the cache, up to the last row that the call sees.
        const int64_t seen = in.keys.rows - in.queries.rows + first + count;
        some = FirstKeys(some, seen);
        ASSERT_TRUE(SameBits(Attend(some, pattern, first), all.view().Rows(first, count)))
            << first << " + " << count;
        some.packed = &packed;
        ASSERT_TRUE(SameBits(Attend(some, pattern, first), all.view().Rows(first, count)))
            << first << " + " << count << ", packed";
      }
    }
    for (Backend* other : {one.get(), three.get()}) {
      ASSERT_TRUE(SameBits(Attend(*other, in, pattern), all)) << other->threads() << " threads";
    }
  }
}

TEST_P(SparseConformance, OtherRowsHaveNoPart) {  // keys of other blocks may change
  const SparseCase& c = kSparseCases[3];
  const AttentionData data(c.attention, be().cache_dtype());
  const AttentionInput in = data.Input();
  SparsePattern pattern = RandomPattern(c, in.keys.rows);
  const Tensor before = Attend(in, pattern);
  for (SparsePattern::Head& head : pattern.heads) head.key_blocks[0] = {0, 1, 2, 3, 8, 14};
  const Tensor after = Attend(in, pattern);
  EXPECT_FALSE(SameBits(after, before));
  EXPECT_TRUE(SameBits(after.view().Rows(100, 190), before.view().Rows(100, 190)));
}

TEST_P(SparseConformance, APatternOfEverythingIsDenseAttention) {
  for (const AttentionCase& c : Cases()) {
    SCOPED_TRACE(::testing::PrintToString(c));
    const AttentionData data(c, be().cache_dtype());
    const AttentionInput in = data.Input();
    const Tensor dense = Dense(in);
    EXPECT_TRUE(SameBits(Attend(in, {}), dense));  // empty: no pattern
    std::vector<int32_t> every(in.keys.rows);
    std::iota(every.begin(), every.end(), 0);
    SparsePattern blocks{.query_block = 64, .key_block = 1, .heads = {}};
    for (int h = 0; h < c.heads; ++h) {
      blocks.heads.push_back({.columns = {}, .key_blocks = {}});
      blocks.heads.back().key_blocks.assign((c.m + 63) / 64, every);
    }
    EXPECT_TRUE(SameBits(Attend(in, blocks), dense));
    SparsePattern columns{.query_block = 10, .key_block = 0, .heads = {}};  // no blocks at all
    for (int h = 0; h < c.heads; ++h) columns.heads.push_back({.columns = every, .key_blocks = {}});
    EXPECT_TRUE(SameBits(Attend(in, columns), dense));
  }
}

// Keys at their original positions, with all other keys absent: equal to attention over gathered rows.
TEST_P(SparseConformance, APatternIsAttentionOverItsKeysAlone) {
  const AttentionData data({.heads = 4, .kv_heads = 2, .head_dim = 64, .n = 3000, .m = 5, .alibi = true},
                           be().cache_dtype());
  const AttentionInput in = data.Input();
  SparsePattern::Head head{.columns = {0, 1, 2, 9, 700, 2998, 2999}, .key_blocks = {{}}};
  for (int32_t j = 3; j < 187; j += j % 5 == 0 ? 2 : 1) head.key_blocks[0].push_back(j);
  const SparsePattern pattern{.query_block = 8, .key_block = 16, .heads = std::vector(4, head)};
  const std::vector<int32_t> rows = KeysOf(pattern, 0, 0, 3000);
  ASSERT_GT(rows.size(), 2100u);  // more than a chunk
  Tensor keys(in.keys.dtype, rows.size(), in.keys.cols);
  Tensor values(in.keys.dtype, rows.size(), in.keys.cols);
  be().GatherRows(in.keys, rows, keys.mutable_view());
  be().GatherRows(in.values, rows, values.mutable_view());
  AttentionInput gathered = in;
  gathered.keys = keys.view();
  gathered.values = values.view();
  gathered.key_positions = rows;   // positions equal rows here
  if (GetParam().name == "gpu") {  // it takes a head's blocks before its columns
    const Tensor expected = Dense(gathered);
    ExpectClose(Attend(in, pattern), ToMatrix(expected.view()), tolerance());
    return;
  }
  EXPECT_TRUE(SameBits(Attend(in, pattern), Dense(gathered)));
}

TEST_P(SparseConformance, ColumnsOfWiderMatrices) {
  const SparseCase c{{.heads = 2, .kv_heads = 1, .head_dim = 64, .n = 90, .m = 90}, 16, 16, 0.4, 0.1};
  const AttentionData data(c.attention, be().cache_dtype());
  const Tensor wide_queries = Random(90, 400, 5);
  const Tensor wide_cache = Converted(Random(120, 256, 6), be().cache_dtype());
  AttentionInput in = data.Input();
  in.queries = wide_queries.view().Cols(100, 128);
  in.keys = wide_cache.view().Rows(10, 90).Cols(64, 64);
  in.values = wide_cache.view().Rows(10, 90).Cols(192, 64);
  Tensor wide_out = Random(90, 300, 8);
  const Tensor before = wide_out.Clone();
  const SparsePattern pattern = RandomPattern(c, 90);
  be().SparseAttention(in, pattern, 0, wide_out.mutable_view().Cols(50, 128));
  ExpectClose(wide_out.view().Cols(50, 128), NaiveAttention(in, Materialise(pattern, 90, 90)), tolerance());
  EXPECT_TRUE(SameBits(wide_out.view().Cols(0, 50), before.view().Cols(0, 50)));
  EXPECT_TRUE(SameBits(wide_out.view().Cols(178, 122), before.view().Cols(178, 122)));
}

TEST_P(SparseConformance, WrongPatternsFail) {
  const SparseCase c{{.heads = 4, .kv_heads = 2, .head_dim = 8, .n = 30, .m = 30}, 8, 8, 0.5, 0.2};
  const AttentionData data(c.attention, be().cache_dtype());
  const SparsePattern good = RandomPattern(c, 30);
  Tensor out(DType::kF32, 30, 32);
  const auto expect_failure = [&](const SparsePattern& pattern, int64_t first_query = 0) {
    EXPECT_THROW(be().SparseAttention(data.Input(), pattern, first_query, out.mutable_view()), CheckFailure);
  };
  expect_failure(good, -1);
  expect_failure(good, 8);  // rows 32 to 37 have no block
  SparsePattern bad = good;
  bad.heads.pop_back();
  expect_failure(bad);
  bad = good;
  bad.query_block = 0;
  expect_failure(bad);
  bad = good;
  bad.key_block = 0;
  expect_failure(bad);
  bad = good;
  bad.heads[1].columns = {3, 3};
  expect_failure(bad);
  bad.heads[1].columns = {-1, 3};
  expect_failure(bad);
  bad = good;
  bad.heads[3].key_blocks[2] = {2, 1};
  expect_failure(bad);
  bad.heads[3].key_blocks[2] = {-1, 1};
  expect_failure(bad);
  EXPECT_THROW(be().SparseAttention(data.Input(), good, 0, out.mutable_view().Cols(0, 16)), CheckFailure);
}

INSTANTIATE_TEST_SUITE_P(Backends, SparseConformance, ::testing::ValuesIn(kAttentionConfigs), ConfigName);

}  // namespace
}  // namespace coppice
