#include "policies/methods/quest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "policies/retain_test_support.h"
#include "shape_edit.h"
#include "special_floats.h"

namespace coppice {
namespace {

using Rows = std::vector<int32_t>;
using testing::HasSubstr;

// Keys at some positions, the bounds of their pages, and queries.
class Decode {
 public:
  Decode(Rows positions, int page, uint32_t seed, int heads = 4, int kv_heads = 2)
      : shape_{.heads = heads, .kv_heads = kv_heads, .head_dim = 8, .scale = 0.3f},
        positions_(std::move(positions)),
        page_(page),
        noise_(seed) {
    keys_ = Random(static_cast<int64_t>(positions_.size()) * Width());
    Ask({positions_.back()});
  }
  // Queries at these positions.
  void Ask(Rows positions) {
    query_positions_ = std::move(positions);
    queries_ = Random(static_cast<int64_t>(query_positions_.size()) * shape_.heads * shape_.head_dim);
  }
  // A key that no query attends any more, still inside its page's bounds.
  void Widen(int page, float by) {
    wider_page_ = page;
    wider_ = by;
  }

  SparsePattern Pattern(const QuestConfig& config, int layer = 5) {
    const int64_t pages = positions_.back() / page_ + 2;  // one more than there are keys for
    std::vector<float> low(static_cast<size_t>(pages * Width()), kInf), high = low;
    for (float& x : high) x = -kInf;
    for (size_t row = 0; row < positions_.size(); ++row) {
      for (size_t d = 0; d < static_cast<size_t>(Width()); ++d) {
        const size_t at = static_cast<size_t>(positions_[row] / page_ * Width()) + d;
        low[at] = std::min(low[at], Key(row)[d]);
        high[at] = std::max(high[at], Key(row)[d]);
      }
    }
    for (int64_t d = 0; wider_page_ >= 0 && d < Width(); ++d) {
      low[static_cast<size_t>(wider_page_ * Width() + d)] -= wider_;
      high[static_cast<size_t>(wider_page_ * Width() + d)] += wider_;
    }
    QuestPolicy quest(config);
    const auto view = [](const std::vector<float>& x, int64_t rows) {
      return TensorView(x.data(), DType::kF32, rows, static_cast<int64_t>(x.size()) / rows);
    };
    AttentionScene scene;
    scene.phase = Phase::kDecode;
    scene.layer = layer;
    scene.in = {.shape = shape_,
                .queries = view(queries_, static_cast<int64_t>(query_positions_.size())),
                .keys = view(keys_, static_cast<int64_t>(positions_.size())),
                .values = {},
                .query_positions = query_positions_,
                .key_positions = positions_};
    scene.page_min = view(low, pages);
    scene.page_max = view(high, pages);
    low_ = low;
    high_ = high;
    return quest.Pattern(scene, *be_);
  }

  // (1), as it is written.
  double Bound(int head, size_t query, int page) const {
    double sum = 0;
    for (int d = 0; d < shape_.head_dim; ++d) {
      const double q = Query(head, query)[static_cast<size_t>(d)];
      const auto at = static_cast<size_t>(page * Width() + KvOffset(head) + d);
      sum += std::max(q * low_[at], q * high_[at]);
    }
    return sum;
  }
  double Product(int head, size_t query, size_t row) const {
    double sum = 0;
    for (int d = 0; d < shape_.head_dim; ++d) {
      sum += static_cast<double>(Query(head, query)[static_cast<size_t>(d)]) *
             Key(row)[static_cast<size_t>(KvOffset(head) + d)];
    }
    return sum;
  }
  std::span<float> Query(int head, size_t query) {
    return std::span(queries_).subspan(
        (query * static_cast<size_t>(shape_.heads) + static_cast<size_t>(head)) * 8, 8);
  }
  std::span<const float> Query(int head, size_t query) const {
    return const_cast<Decode*>(this)->Query(head, query);
  }
  std::span<float> Key(size_t row) {
    const auto width = static_cast<size_t>(Width());
    return std::span(keys_).subspan(row * width, width);
  }
  std::span<const float> Key(size_t row) const { return const_cast<Decode*>(this)->Key(row); }

  // The pages whose rows a head reads; checks that it reads whole pages, as the attended keys fill them.
  std::set<int> PagesRead(const SparsePattern& pattern, int head, int64_t query = 0) const {
    EXPECT_TRUE(pattern.query_block == 1 && pattern.key_block == 1);  // blocks are rows
    const SparsePattern::Head& chosen = pattern.heads[static_cast<size_t>(head)];
    EXPECT_TRUE(chosen.columns.empty());
    const Rows rows = chosen.key_blocks[static_cast<size_t>(query)];
    std::set<int> pages;
    for (const int32_t row : rows) pages.insert(positions_[static_cast<size_t>(row)] / page_);
    Rows whole;
    for (size_t row = 0; row < positions_.size(); ++row) {
      if (pages.count(positions_[row] / page_) > 0) whole.push_back(static_cast<int32_t>(row));
    }
    EXPECT_EQ(rows, whole);
    return pages;
  }
  const Rows& positions() const { return positions_; }

 private:
  int64_t Width() const { return int64_t{shape_.kv_heads} * shape_.head_dim; }
  int64_t KvOffset(int head) const {
    return static_cast<int64_t>(head / (shape_.heads / shape_.kv_heads)) * shape_.head_dim;
  }
  std::vector<float> Random(int64_t count) {
    std::vector<float> x = noise_.Row(count);
    for (float& value : x) value = 2 * value - 1;
    return x;
  }

  AttentionShape shape_;
  Rows positions_;
  int page_;
  Noise noise_;
  std::vector<float> keys_, queries_, low_, high_;
  Rows query_positions_;
  int wider_page_ = -1;
  float wider_ = 0;
  std::unique_ptr<Backend> be_ = MakeBackend("reference", {});
};

Rows Count(int32_t n) {
  Rows rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// Attended keys with holes: some pages are thin, some are gone.
Rows WithHoles(int32_t n, int page) {
  Rows rows;
  for (int32_t p = 0; p < n; ++p) {
    if (p == n - 1 || ((p / page) % 3 != 1 && p % 4 != 2)) rows.push_back(p);
  }
  return rows;
}

// The query's own page, and the best of the others by the bound of equation 1.
std::set<int> Expected(const Decode& scene, int head, size_t query, int own, int64_t kept, int page) {
  std::set<int> pages;
  for (const int32_t p : scene.positions()) pages.insert(p / page);
  std::vector<std::pair<double, int>> ranked;
  for (const int p : pages) {
    if (p < own) ranked.emplace_back(-scene.Bound(head, query, p), p);
  }
  std::sort(ranked.begin(), ranked.end());
  std::set<int> best = {own};
  for (const auto& [bound, p] : ranked) {
    if (static_cast<int64_t>(best.size()) < kept) best.insert(p);
  }
  return best;
}

TEST(QuestPolicy, ReadsTheBestPagesAndItsOwn) {
  for (const int page : {1, 7, 16}) {
    for (const bool holes : {false, true}) {
      Decode scene(holes ? WithHoles(403, page) : Count(403), page, 11);
      const int64_t kept = std::max(3, 60 / page);
      const SparsePattern pattern = scene.Pattern({.budget = 60, .page = page});
      ASSERT_EQ(pattern.heads.size(), 4u);
      std::set<std::set<int>> choices;
      for (int head = 0; head < 4; ++head) {
        const std::set<int> pages = scene.PagesRead(pattern, head);
        EXPECT_EQ(pages, Expected(scene, head, 0, 402 / page, kept, page)) << page << holes << head;
        EXPECT_EQ(static_cast<int64_t>(pages.size()), kept);
        choices.insert(pages);
      }
      EXPECT_EQ(choices.size(), 4u);  // per query head, not per kv head
    }
  }
}

// 7.6: no key of a page has a product above the page's bound, attended or not.
TEST(QuestPolicy, TheBoundIsAnUpperBound) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Decode scene(WithHoles(100, 8), 8, seed);
    scene.Pattern({.budget = 24, .page = 8});
    for (int head = 0; head < 4; ++head) {
      for (size_t row = 0; row < scene.positions().size(); ++row) {
        ASSERT_GE(scene.Bound(head, 0, scene.positions()[row] / 8), scene.Product(head, 0, row) - 1e-9);
      }
    }
  }
}

// So a key that towers above all others is never missed.
TEST(QuestPolicy, FindsTheNeedle) {
  for (const int32_t needle : {0, 77, 200, 320}) {
    Decode scene(Count(403), 16, 3);
    for (int head = 0; head < 4; ++head) {
      const size_t at = head < 2 ? 0 : 8;  // of the kv head
      const std::span<float> key = scene.Key(static_cast<size_t>(needle)).subspan(at, 8);
      for (size_t d = 0; d < 8; ++d) key[d] = 20 * scene.Query(head, 0)[d];
      const SparsePattern pattern = scene.Pattern({.budget = 48, .page = 16});
      EXPECT_EQ(scene.PagesRead(pattern, head).count(needle / 16), 1u) << needle << " " << head;
    }
  }
}

TEST(QuestPolicy, DenseWhereTheBudgetCoversTheKeys) {
  Decode scene(Count(100), 16, 4);
  EXPECT_TRUE(scene.Pattern({.budget = 100, .page = 16}).empty());
  EXPECT_TRUE(scene.Pattern({.budget = 5000, .page = 16}).empty());
  EXPECT_FALSE(scene.Pattern({.budget = 99, .page = 16}).empty());  // 6 of 7 pages
  EXPECT_EQ(scene.PagesRead(scene.Pattern({.budget = 99, .page = 16}), 0).size(), 6u);
  EXPECT_TRUE(scene.Pattern({.budget = 1, .page = 40}).empty());  // three pages at least, and there are three
  EXPECT_EQ(scene.PagesRead(scene.Pattern({.budget = 1, .page = 16}), 0).size(), 3u);
  Decode one(Count(1), 16, 4);
  EXPECT_TRUE(one.Pattern({.budget = 1, .page = 16}).empty());
}

TEST(QuestPolicy, TiesGoToTheEarlierPage) {
  Decode scene(Count(100), 10, 5);
  for (int head = 0; head < 4; ++head) std::fill_n(scene.Query(head, 0).begin(), 8, 0.0f);
  EXPECT_EQ(scene.PagesRead(scene.Pattern({.budget = 40, .page = 10}), 2), (std::set<int>{0, 1, 2, 9}));
}

// A query or bounds that are no numbers choose badly, but whole pages and the own one.
TEST(QuestPolicy, StrangeNumbersStillReadTheOwnPage) {
  Decode scene(Count(100), 10, 5);
  scene.Query(1, 0)[3] = kNan;
  scene.Query(2, 0)[0] = kInf;
  const SparsePattern pattern = scene.Pattern({.budget = 40, .page = 10});
  for (int head = 0; head < 4; ++head) {
    const std::set<int> pages = scene.PagesRead(pattern, head);
    EXPECT_EQ(pages.size(), 4u);
    EXPECT_EQ(pages.count(9), 1u);
  }
}

// Bounds may include keys that left: they make a page likelier, and one without attended keys stays unread.
TEST(QuestPolicy, LooseBoundsNeverNameUnattendedKeys) {
  Decode scene(WithHoles(160, 16), 16, 6);
  scene.Widen(2, 100);
  EXPECT_EQ(scene.PagesRead(scene.Pattern({.budget = 48, .page = 16}), 0).count(2), 1u);
  Decode gone(WithHoles(160, 16), 16, 6);  // no key of page 1 is attended
  gone.Widen(1, 0);
  for (int head = 0; head < 4; ++head) {
    EXPECT_EQ(gone.PagesRead(gone.Pattern({.budget = 48, .page = 16}), head).count(1), 0u);
  }
}

// Tokens that come back ask from the middle: each reads its own page and none beyond it.
TEST(QuestPolicy, EachOfSeveralQueriesHasItsOwnPages) {
  Decode scene(Count(200), 10, 7);
  scene.Ask({25, 120, 199});
  const SparsePattern pattern = scene.Pattern({.budget = 50, .page = 10});
  for (int head = 0; head < 4; ++head) {
    EXPECT_EQ(scene.PagesRead(pattern, head, 0), (std::set<int>{0, 1, 2}));
    EXPECT_EQ(scene.PagesRead(pattern, head, 1), Expected(scene, head, 1, 12, 5, 10));
    EXPECT_EQ(scene.PagesRead(pattern, head, 2), Expected(scene, head, 2, 19, 5, 10));
  }
}

TEST(QuestPolicy, ActsInDecodeAboveTheDenseLayers) {
  const QuestPolicy quest({.budget = 64, .page = 8, .dense = 2});
  EXPECT_FALSE(quest.ChoosesPattern(Phase::kPrefill, 5));
  EXPECT_FALSE(quest.ChoosesPattern(Phase::kDecode, 1));
  EXPECT_TRUE(quest.ChoosesPattern(Phase::kDecode, 2));
  EXPECT_EQ(quest.Facts().page_size, 8);
  EXPECT_FALSE(quest.RetainsAt(Phase::kDecode, 5));  // nothing leaves the cache
}

TEST(QuestMethod, Settings) {
  const MethodInfo method = QuestMethod();
  EXPECT_EQ(method.traits, unsigned{kSparseDecode});
  EXPECT_EQ(MakeMethod(method, "quest", Llama8B(), 32768).settings,
            "quest:budget=1024,page=16,dense=2,min=1024");
  ModelShape one = Llama8B();
  one.layers.resize(1);
  EXPECT_EQ(MakeMethod(method, "quest", one, 32768).settings, "quest:budget=1024,page=16,dense=1,min=1024");
  for (const char* spec : {"quest", "quest:budget=1,page=1,dense=0,min=0", "quest:dense=32"}) {
    SettingsOf(method, spec);
  }
  for (const auto& [spec, part] :
       {std::pair{"quest:budget=0", "budget=0"},
        {"quest:budget=0.5", "budget=0.5"},
        {"quest:page=0", "page=0"},
        {"quest:page=4097", "page=4097"},
        {"quest:dense=33", "dense=33 is not a whole number from 0 to 32"},
        {"quest:pages=3", "unknown key 'pages': did you mean page? It has budget, page, dense, min"}})
    EXPECT_THAT(RefusalOf(method, spec), HasSubstr(part)) << spec;

  EXPECT_EQ(MakeMethod(method, "quest:budget=64", Llama8B(), 1023).reason,
            "1023 prompt tokens are below its break-even of 1024");
  EXPECT_EQ(MakeMethod(method, "quest", Llama8B(), 1024).reason, "1024 prompt tokens fit its budget of 1024");
  EXPECT_NE(MakeMethod(method, "quest", Llama8B(), 1025).policy, nullptr);
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 4096);
  EXPECT_THAT(MakeMethod(method, "quest", windowed, 5000).reason, HasSubstr("sliding window of 4096"));
  EXPECT_EQ(MakeMethod(method, "quest", windowed, 5000).policy, nullptr);
}

}  // namespace
}  // namespace coppice
