// Quest: query-aware sparsity in decode. No training. The whole cache stays; a step reads a small part of it.
//
// Keys are grouped in pages of positions, with the smallest and the largest key of each page by channel. For
// query head h and page p,
//   u_p = sum_d max(q_d kmin_pd, q_d kmax_pd)                         (1) >= q . k of every key in p
//   P   = max(3, budget / page)                                       (2)
//   h reads the keys of the P best pages by u, the query's own always (3) ties: the earlier page
// If the budget covers the keys, every key is read.
//
// (1) is max(q, 0) . kmax + min(q, 0) . kmin: two decode products per kv head over its group's heads,
// together 2 / page of the products q . k of a dense step. A page's bounds may include keys that are not
// attended (dropped or parked): the bound then still holds, but is less tight. Pages without attended keys
// are not candidates.
#include "policies/methods/quest.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace coppice {

namespace {

// Pages that hold attended keys, ascending.
struct Pages {
  std::vector<int32_t> page;   // [count]
  std::vector<int32_t> begin;  // [count + 1] cache rows [begin[i], begin[i + 1]) lie in page[i]
};

Pages PagesOf(std::span<const int32_t> key_positions, int page) {
  Pages pages;
  for (size_t row = 0; row < key_positions.size(); ++row) {
    const int32_t at = key_positions[row] / page;
    if (!pages.page.empty() && pages.page.back() == at) continue;
    pages.page.push_back(at);
    pages.begin.push_back(static_cast<int32_t>(row));
  }
  pages.begin.push_back(static_cast<int32_t>(key_positions.size()));
  return pages;
}

// (1): [heads * m, pages], row h * m + i is head h of query i. Values of pages without keys are meaningless:
// the bounds of these pages are infinite.
Tensor UpperBounds(const AttentionScene& scene, Backend& be) {
  const AttentionShape& shape = scene.in.shape;
  const int64_t c = shape.head_dim;
  const int64_t m = scene.in.queries.rows;
  const int64_t pages = scene.page_max.rows;
  Tensor positive(DType::kF32, shape.heads * m, c);
  Tensor negative(DType::kF32, shape.heads * m, c);
  const HostRows queries(scene.in.queries);
  for (int64_t h = 0; h < shape.heads; ++h) {
    for (int64_t i = 0; i < m; ++i) {
      const std::span<const float> q = queries.view().Cols(h * c, c).Row<float>(i);
      const std::span<float> above = positive.mutable_view().Row<float>(h * m + i);
      const std::span<float> below = negative.mutable_view().Row<float>(h * m + i);
      for (size_t d = 0; d < q.size(); ++d) {
        above[d] = std::max(q[d], 0.0f);
        below[d] = std::min(q[d], 0.0f);
      }
    }
  }
  Tensor bounds(DType::kF32, shape.heads * m, pages);
  Tensor from_minima(DType::kF32, shape.heads * m, pages);
  const int64_t rows = shape.heads / shape.kv_heads * m;  // of one kv head
  for (int64_t g = 0; g < shape.kv_heads; ++g) {
    be.DecodeProduct(positive.view().Rows(g * rows, rows), scene.page_max.Cols(g * c, c), {},
                     bounds.mutable_view().Rows(g * rows, rows));
    be.DecodeProduct(negative.view().Rows(g * rows, rows), scene.page_min.Cols(g * c, c), {},
                     from_minima.mutable_view().Rows(g * rows, rows));
  }
  be.Add(from_minima.view(), bounds.mutable_view());
  return bounds;
}

// The cache rows of the best `kept` pages among the first `count`; the last of these is the query's own.
std::vector<int32_t> BestRows(const Pages& pages, int64_t count, int64_t kept, std::span<const float> bounds,
                              Backend& be) {
  std::vector<float> score(static_cast<size_t>(count - 1));
  for (size_t i = 0; i < score.size(); ++i) score[i] = bounds[static_cast<size_t>(pages.page[i])];
  const TokenSet best =
      be.TopK(TensorView(score.data(), DType::kF32, 1, count - 1), kept - 1).Shift(0, count).UnionLast(1);
  std::vector<int32_t> rows;
  for (const int32_t i : best.ToRows()) {
    const auto at = static_cast<size_t>(i);
    for (int32_t row = pages.begin[at]; row < pages.begin[at + 1]; ++row) rows.push_back(row);
  }
  return rows;
}

}  // namespace

bool QuestPolicy::ChoosesPattern(Phase phase, int layer) const {
  return phase == Phase::kDecode && layer >= config_.dense;
}

int64_t QuestPolicy::KeptPages() const { return std::max<int64_t>(3, config_.budget / config_.page); }  // (2)

SparsePattern QuestPolicy::Pattern(const AttentionScene& scene, Backend& be) {
  const AttentionInput& in = scene.in;
  const auto keys = static_cast<int64_t>(in.key_positions.size());
  const Pages pages = PagesOf(in.key_positions, config_.page);
  const int64_t kept = KeptPages();
  if (config_.budget >= keys || kept >= static_cast<int64_t>(pages.page.size())) return {};
  COPPICE_CHECK(scene.page_min.rows == scene.page_max.rows && pages.page.back() < scene.page_max.rows);

  const Tensor bounds = UpperBounds(scene, be);
  const int64_t m = in.queries.rows;
  SparsePattern pattern{.query_block = 1, .key_block = 1, .heads = {}};
  pattern.heads.resize(static_cast<size_t>(in.shape.heads));
  for (int64_t h = 0; h < in.shape.heads; ++h) {
    SparsePattern::Head& head = pattern.heads[static_cast<size_t>(h)];
    for (int64_t i = 0; i < m; ++i) {
      // Revived tokens are in the middle of the sequence: they see only pages up to their own.
      const int32_t own = in.query_positions[static_cast<size_t>(i)] / config_.page;
      const int64_t count = std::upper_bound(pages.page.begin(), pages.page.end(), own) - pages.page.begin();
      COPPICE_CHECK(count > 0);
      head.key_blocks.push_back(
          BestRows(pages, count, kept, bounds.view().Row<float>(h * m + i), be));  // (3)
    }
  }
  return pattern;
}

namespace {

Keys QuestKeys(QuestConfig& c, const ModelShape& shape) {
  return {{"budget", &c.budget, 1, kManyTokens, "keys that a query head reads; whole pages, at least three"},
          {"page", &c.page, 1, 4096, "positions per page"},
          {"dense", &c.dense, 0, shape.layer_count(), "layers below this one read every key", "", "0 to L"},
          MinKey(c.minimum)};
}

MethodInstance MakeQuest(const MethodSpec& spec, const MethodContext& context) {
  QuestConfig c;
  Keys keys = QuestKeys(c, context.shape);
  keys.Read(spec);
  c.dense = std::min(c.dense, context.shape.layer_count());
  std::string fits;
  if (c.budget >= context.tokens) {
    fits = fmt::format("{} prompt tokens fit its budget of {}", context.tokens, c.budget);
  }
  return MakeInstance<QuestPolicy>(keys, {LengthReason(context, c.minimum), fits, WindowReason(context)}, c);
}

}  // namespace

MethodInfo QuestMethod() {
  return {"quest",
          "while generating, read only the pages of keys that may matter to the query; nothing is evicted",
          "Quest: query-aware sparsity for efficient long-context LLM inference, ICML 2024, arXiv 2406.10774",
          kSparseDecode,
          HelpOf(&QuestKeys),
          &MakeQuest};
}

}  // namespace coppice
