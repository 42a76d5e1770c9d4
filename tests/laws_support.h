// Running a tiny model under a policy and keeping everything that the laws of pruning speak of.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/transformer.h"
#include "policies/registry.h"
#include "tests_support.h"
#include "tiny_model.h"

namespace coppice {

using Positions = std::vector<int32_t>;

// Passes every question on, and writes the answers down as positions.
class RecordingPolicy final : public TokenPolicy {
 public:
  explicit RecordingPolicy(TokenPolicy& inner) : inner_(inner) {}

  Needs NeedsAt(int layer) const override { return inner_.NeedsAt(layer); }
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override { return inner_.BeforeLayer(seen, be); }
  TokenSet AfterAttention(const Observation& seen, Backend& be) override {
    return Note(inner_.AfterAttention(seen, be), seen, kept);
  }
  TokenSet RunFfn(const Observation& seen, Backend& be) override {
    return Note(inner_.RunFfn(seen, be), seen, ffn);
  }

  std::vector<Positions> kept;  // [layers] after attention, in prefill
  std::vector<Positions> ffn;   // [layers]
  bool decode_is_dense = true;  // no question of a decode step was answered with less than everything

 private:
  TokenSet Note(TokenSet set, const Observation& seen, std::vector<Positions>& list) {
    if (seen.phase == Phase::kDecode) {
      decode_is_dense = decode_is_dense && set.IsAll();
      return set;
    }
    Positions positions;
    for (const int32_t row : set.ToRows()) positions.push_back(seen.positions[static_cast<size_t>(row)]);
    list.push_back(std::move(positions));
    return set;
  }
  TokenPolicy& inner_;
};

struct RunOptions {
  std::string spec = "none";
  Protection protection = {};
  TokenPolicy* policy = nullptr;  // instead of `spec`
  int64_t decode = 0;             // greedy steps
  int64_t tile_rows = 64;
};

struct RunResult {
  std::vector<std::vector<float>> logits;  // of the prompt's end, then of each generated token
  std::vector<int32_t> generated;          // greedy
  SequenceState state;
  std::vector<Positions> kept, ffn;  // as RecordingPolicy
  bool decode_is_dense = true;
  bool active = false;
  std::string reason;
};

inline RunResult RunTiny(const Transformer& model, const std::vector<int32_t>& prompt, Backend& be,
                         const RunOptions& options) {
  const auto tokens = static_cast<int64_t>(prompt.size());
  PruneChoice choice = MakePolicy(options.spec, model.config().shape, tokens, options.protection);
  RecordingPolicy policy(options.policy != nullptr ? *options.policy : *choice.policy);
  RunResult run;
  run.active = choice.active;
  run.reason = choice.reason;
  run.state = model.NewSequence(tokens, tokens + options.decode, be);
  Workspace ws = model.NewWorkspace(options.tile_rows);
  Tensor logits;
  model.Prefill(prompt, policy, run.state, ws, be, logits);
  for (int64_t step = 0;; ++step) {
    const std::span<const float> row = logits.view().Row<float>(0);
    run.logits.emplace_back(row.begin(), row.end());
    if (step == options.decode) break;
    run.generated.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    model.Decode(run.generated.back(), policy, run.state, ws, be, logits);
  }
  run.kept = std::move(policy.kept);
  run.ffn = std::move(policy.ffn);
  run.decode_is_dense = policy.decode_is_dense;
  return run;
}

inline Positions PositionsOf(const LayerCache& cache) {
  return {cache.positions().begin(), cache.positions().end()};
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline void ExpectSameLogits(const RunResult& a, const RunResult& b) {
  ASSERT_EQ(a.logits.size(), b.logits.size());
  for (size_t i = 0; i < a.logits.size(); ++i) {
    ASSERT_TRUE(SameBits(a.logits[i], b.logits[i])) << "logits " << i << " differ";
  }
  EXPECT_EQ(a.generated, b.generated);
}

// The cached key and value of one position, as bytes; empty where the layer has none.
inline std::string CachedBytes(const LayerCache& cache, int32_t position) {
  const auto it = std::lower_bound(cache.positions().begin(), cache.positions().end(), position);
  if (it == cache.positions().end() || *it != position) return {};
  const int64_t row = it - cache.positions().begin();
  const auto bytes = [&](const TensorView& t) {
    return std::string(reinterpret_cast<const char*>(t.RowBytes(row)),
                       static_cast<size_t>(BytesOf(t.dtype, t.cols)));
  };
  return bytes(cache.keys()) + bytes(cache.values());
}

// Every row of `pruned` is bit-equal to the same position of `dense`.
inline void ExpectRowsOf(const LayerCache& pruned, const LayerCache& dense) {
  for (const int32_t p : pruned.positions()) {
    ASSERT_EQ(CachedBytes(pruned, p), CachedBytes(dense, p)) << "position " << p;
  }
}

inline bool IsSubset(const Positions& inner, const Positions& outer) {
  return std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

inline bool Has(const Positions& set, int32_t position) {
  return std::binary_search(set.begin(), set.end(), position);
}

}  // namespace coppice
