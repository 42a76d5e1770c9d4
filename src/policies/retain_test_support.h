// What the tests of evicting methods share: a cache that follows the answers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/method_test_support.h"
#include "policy_scene.h"

namespace coppice {

// One layer's cache, by the prompt position of each row of each list, and a policy that evicts from it.
class EvictedCache {
 public:
  using Lists = std::vector<std::vector<float>>;

  EvictedCache(TokenPolicy& policy, int lists, int layer = 20)
      : policy_(policy), layer_(layer), positions_(static_cast<size_t>(lists)) {}

  // A prompt of `tokens` with these masses [lists][tokens], or none.
  std::optional<Retained> Prefill(int64_t tokens, const Lists& mass) {
    prompt_tokens_ = tokens;
    for (std::vector<int32_t>& list : positions_) {
      list.resize(static_cast<size_t>(tokens));
      std::iota(list.begin(), list.end(), 0);
    }
    next_ = static_cast<int32_t>(tokens);
    return Ask(Phase::kPrefill, mass);
  }
  // One more token, with masses [lists][rows + 1].
  std::optional<Retained> Step(const Lists& mass) {
    for (std::vector<int32_t>& list : positions_) list.push_back(next_);
    ++next_;
    return Ask(Phase::kDecode, mass);
  }

  // Protected positions, as Compose pins them; the last row always is.
  std::function<bool(int32_t position)> is_protected = [](int32_t) { return false; };
  int64_t rows() const { return static_cast<int64_t>(positions_.front().size()); }
  const std::vector<int32_t>& positions(size_t list = 0) const { return positions_[list]; }
  bool Holds(int32_t position, size_t list = 0) const {
    return std::binary_search(positions_[list].begin(), positions_[list].end(), position);
  }

 private:
  std::optional<Retained> Ask(Phase phase, const Lists& mass) {
    Scene scene(positions_.front(), prompt_tokens_, layer_);
    scene.seen.phase = phase;
    for (const Needs::Mass& need : policy_.NeedsAt(phase, layer_).masses) scene.Mass(need, mass);
    EXPECT_TRUE(policy_.RetainsAt(phase, layer_));
    CacheScene cache{.rows = rows(), .positions = {}, .pinned = {}};
    for (const std::vector<int32_t>& list : positions_) {
      cache.positions.emplace_back(list);
      std::vector<int32_t> pinned = {static_cast<int32_t>(rows() - 1)};
      for (size_t row = 0; row < list.size(); ++row) {
        if (is_protected(list[row])) pinned.push_back(static_cast<int32_t>(row));
      }
      cache.pinned.push_back(TokenSet::Of(std::move(pinned), rows()));
    }
    std::optional<Retained> answer = policy_.Retain(scene.seen, cache, *scene.be);
    if (answer) Apply(*answer, cache);
    return answer;
  }

  void Apply(const Retained& answer, const CacheScene& cache) {
    ASSERT_TRUE(answer.rows.size() == 1 || answer.rows.size() == positions_.size());
    for (size_t list = 0; list < positions_.size(); ++list) {
      const TokenSet& rows = answer.rows[answer.rows.size() == 1 ? 0 : list];
      ASSERT_EQ(rows.universe(), cache.rows);
      ASSERT_EQ(rows.size(), answer.rows.front().size());
      ASSERT_EQ(rows.Intersect(cache.pinned[list]), cache.pinned[list]);
      std::vector<int32_t> kept;
      for (const int32_t row : rows.ToRows()) kept.push_back(positions_[list][static_cast<size_t>(row)]);
      positions_[list] = std::move(kept);
    }
    if (answer.close_gap) CloseGaps();
  }

  // Positions are slots: one apart, the last one where it is.
  void CloseGaps() {
    for (std::vector<int32_t>& list : positions_) {
      for (size_t row = 0; row < list.size(); ++row) {
        list[row] = list.back() - static_cast<int32_t>(list.size() - 1 - row);
      }
    }
  }

  TokenPolicy& policy_;
  int layer_;
  int64_t prompt_tokens_ = 0;
  int32_t next_ = 0;
  std::vector<std::vector<int32_t>> positions_;
};

// Irregular numbers in [0, 1).
class Noise {
 public:
  explicit Noise(uint32_t seed) : state_(seed) {}
  float Next() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<float>(state_ >> 8) / static_cast<float>(1 << 24);
  }
  std::vector<float> Row(int64_t count) {
    std::vector<float> row(static_cast<size_t>(count));
    std::generate(row.begin(), row.end(), [this] { return Next(); });
    return row;
  }
  std::vector<std::vector<float>> Lists(int lists, int64_t count) {
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < lists; ++i) rows.push_back(Row(count));
    return rows;
  }

 private:
  uint32_t state_;
};

}  // namespace coppice
