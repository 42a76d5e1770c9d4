// For the tests of sparse prefill: hand-made queries and keys, and the softmax weights of plain fp64 loops.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "policies/method_test_support.h"
#include "policies/pattern.h"
#include "policies/retain_test_support.h"

namespace coppice {

// Queries and keys of one layer, small noise until something is planted; queries are the last rows.
class PrefillScene {
 public:
  static constexpr int kDim = 32;

  PrefillScene(int64_t queries, int64_t keys, int heads = 2, int kv_heads = 1, uint32_t seed = 1)
      : heads_(heads), kv_heads_(kv_heads), positions_(static_cast<size_t>(keys)), noise_(seed) {
    std::iota(positions_.begin(), positions_.end(), 0);
    queries_ = Random(queries * heads * kDim, 0.5f);
    keys_ = Random(keys * kv_heads * kDim, 0.5f);
    codes_ = Random(keys * kDim, 1.0f);
    for (float& x : codes_) x = x > 0 ? 1.0f : -1.0f;
  }

  std::span<float> Query(int head, int64_t i) { return At(queries_, i * heads_ + head); }
  std::span<float> Key(int kv_head, int64_t j) { return At(keys_, j * kv_heads_ + kv_head); }
  std::span<const float> Query(int head, int64_t i) const {
    return const_cast<PrefillScene*>(this)->Query(head, i);
  }
  std::span<const float> Key(int kv_head, int64_t j) const {
    return const_cast<PrefillScene*>(this)->Key(kv_head, j);
  }
  int64_t queries() const { return static_cast<int64_t>(queries_.size()) / heads_ / kDim; }
  int64_t keys() const { return static_cast<int64_t>(positions_.size()); }
  int heads() const { return heads_; }

  // Every query of the head looks at key j. Uses the last channel; weight of the score before the scale.
  void PlantColumn(int head, int64_t j, float score) {
    for (int64_t i = 0; i < queries(); ++i) Query(head, i).back() = 1;
    Key(KvHead(head), j).back() = score;
  }
  // Every query of the head looks back by `distance`, at scores of about `score`: each key carries a code of
  // its own.
  void PlantDiagonal(int head, int64_t distance, float score) {
    for (int64_t j = 0; j < keys(); ++j) {
      const std::span<float> code = At(codes_, j);
      for (size_t c = 0; c + 1 < code.size(); ++c) Key(KvHead(head), j)[c] = code[c];
    }
    for (int64_t i = 0; i < queries(); ++i) {
      const int64_t j = keys() - queries() + i - distance;
      if (j < 0) continue;
      const std::span<float> code = At(codes_, j);
      for (size_t c = 0; c + 1 < code.size(); ++c) Query(head, i)[c] += code[c] * score / (kDim - 1);
    }
  }
  void Alibi(std::vector<float> slopes) { slopes_ = std::move(slopes); }

  AttentionInput Input() const {
    AttentionInput in;
    in.shape = {
        .heads = heads_, .kv_heads = kv_heads_, .head_dim = kDim, .scale = kScale, .alibi_slopes = slopes_};
    in.queries = TensorView(queries_.data(), DType::kF32, queries(), int64_t{heads_} * kDim);
    in.keys = TensorView(keys_.data(), DType::kF32, keys(), int64_t{kv_heads_} * kDim);
    in.query_positions = std::span(positions_).last(static_cast<size_t>(queries()));
    in.key_positions = positions_;
    return in;
  }
  AttentionScene Scene() const {
    AttentionScene scene;
    scene.layer = 3;
    scene.in = Input();
    return scene;
  }

  double Score(int head, int64_t i, int64_t j) const {
    double sum = 0;
    for (size_t c = 0; c < kDim; ++c) sum += double{Query(head, i)[c]} * Key(KvHead(head), j)[c];
    return kScale * sum + Bias(head, j - (keys() - queries() + i));
  }
  double Bias(int head, int64_t distance) const {
    return slopes_.empty() ? 0.0 : slopes_[static_cast<size_t>(head)] * static_cast<double>(distance);
  }
  // [keys], 0 beyond the query's own row.
  std::vector<double> Weights(int head, int64_t i) const {
    std::vector<double> a(static_cast<size_t>(keys()), 0.0);
    const int64_t own = keys() - queries() + i;
    for (int64_t j = 0; j <= own; ++j) a[static_cast<size_t>(j)] = Score(head, i, j);
    NaiveSoftmax(std::span(a).first(static_cast<size_t>(own + 1)));
    return a;
  }
  static void NaiveSoftmax(std::span<double> a) {
    const double max = *std::max_element(a.begin(), a.end());
    double sum = 0;
    for (double& x : a) sum += x = std::exp(x - max);
    for (double& x : a) x /= sum;
  }
  int KvHead(int head) const { return head / (heads_ / kv_heads_); }

  static constexpr float kScale = 0.25f;
  std::unique_ptr<Backend> be = MakeBackend("reference", {});

 private:
  static std::span<float> At(std::vector<float>& x, int64_t row) {
    return std::span(x).subspan(static_cast<size_t>(row) * kDim, kDim);
  }
  std::vector<float> Random(int64_t count, float size) {
    std::vector<float> x = noise_.Row(count);
    for (float& value : x) value = (2 * value - 1) * size;
    return x;
  }

  int heads_;
  int kv_heads_;
  std::vector<int32_t> positions_;
  Noise noise_;
  std::vector<float> queries_, keys_, codes_, slopes_;
};

// Whether query row i of a head reads key row j.
inline bool Reads(const SparsePattern& pattern, int head, int64_t i, int64_t j) {
  const SparsePattern::Head& of = pattern.heads[static_cast<size_t>(head)];
  const std::vector<int32_t>& blocks = of.key_blocks[static_cast<size_t>(i / pattern.query_block)];
  return std::binary_search(blocks.begin(), blocks.end(), static_cast<int32_t>(j / pattern.key_block)) ||
         std::binary_search(of.columns.begin(), of.columns.end(), static_cast<int32_t>(j));
}

// What holds for every pattern: lists ascend and stay in range, each query reads itself and the first key,
// and the last kDenseRows queries read everything.
inline void ExpectSound(const SparsePattern& pattern, const PrefillScene& scene) {
  ASSERT_EQ(static_cast<int>(pattern.heads.size()), scene.heads());
  ASSERT_GT(pattern.query_block, 0);
  ASSERT_GT(pattern.key_block, 0);
  const auto ascends = [](const std::vector<int32_t>& list, int64_t end) {
    return std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) == list.end() &&
           (list.empty() || (list.front() >= 0 && list.back() < end));
  };
  const int64_t offset = scene.keys() - scene.queries();
  const int64_t key_blocks = (scene.keys() + pattern.key_block - 1) / pattern.key_block;
  for (int head = 0; head < scene.heads(); ++head) {
    const SparsePattern::Head& of = pattern.heads[static_cast<size_t>(head)];
    EXPECT_TRUE(ascends(of.columns, scene.keys()));
    ASSERT_EQ(static_cast<int64_t>(of.key_blocks.size()),
              (scene.queries() + pattern.query_block - 1) / pattern.query_block);
    for (const std::vector<int32_t>& blocks : of.key_blocks) EXPECT_TRUE(ascends(blocks, key_blocks));
    for (int64_t i = 0; i < scene.queries(); ++i) {
      ASSERT_TRUE(Reads(pattern, head, i, offset + i)) << "row " << i << " does not read itself";
      ASSERT_TRUE(Reads(pattern, head, i, 0)) << "row " << i << " does not read the first key";
    }
    for (int64_t i = scene.queries() - kDenseRows; i < scene.queries(); ++i) {
      for (int64_t j = 0; j <= offset + i; ++j) ASSERT_TRUE(Reads(pattern, head, i, j)) << i << ", " << j;
    }
  }
}

// Whether `more` reads all that `less` does; an empty pattern reads everything.
inline bool Covers(const SparsePattern& more, const SparsePattern& less) {
  if (more.empty()) return true;
  if (less.empty() || more.heads.size() != less.heads.size()) return false;
  for (size_t h = 0; h < more.heads.size(); ++h) {
    const auto includes = [](const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
      return std::includes(a.begin(), a.end(), b.begin(), b.end());
    };
    if (!includes(more.heads[h].columns, less.heads[h].columns)) return false;
    for (size_t b = 0; b < more.heads[h].key_blocks.size(); ++b) {
      if (!includes(more.heads[h].key_blocks[b], less.heads[h].key_blocks[b])) return false;
    }
  }
  return true;
}

inline bool SamePattern(const SparsePattern& a, const SparsePattern& b) {
  return Covers(a, b) && Covers(b, a);
}

// Where every method leaves attention dense, and where it is not asked.
inline void ExpectDenseWhereNothingIsChosen(TokenPolicy& policy, int64_t longest_dense) {
  EXPECT_TRUE(policy.ChoosesPattern(Phase::kPrefill, 0));
  EXPECT_FALSE(policy.ChoosesPattern(Phase::kDecode, 0));
  PrefillScene scene(longest_dense + 200, longest_dense + 200);
  AttentionScene asked = scene.Scene();
  EXPECT_FALSE(policy.Pattern(asked, *scene.be).empty());
  asked.pruned = true;
  EXPECT_TRUE(policy.Pattern(asked, *scene.be).empty());
  asked.pruned = false;
  asked.phase = Phase::kDecode;
  EXPECT_TRUE(policy.Pattern(asked, *scene.be).empty());
  for (const int64_t n : {int64_t{1}, int64_t{5}, int64_t{127}, kDenseRows, longest_dense}) {
    PrefillScene shorter(n, n);
    EXPECT_TRUE(policy.Pattern(shorter.Scene(), *shorter.be).empty()) << n;
  }
  // A second question over a long cache: its rows are all among the dense ones.
  PrefillScene second(kDenseRows, longest_dense + 500);
  EXPECT_TRUE(policy.Pattern(second.Scene(), *second.be).empty());
}

}  // namespace coppice
