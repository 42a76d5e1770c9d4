// Running a tiny model under a policy and keeping everything that the laws of pruning speak of.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/filter_pass.h"
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

  TokenSet Input(int64_t tokens, Backend& be) override { return inner_.Input(tokens, be); }
  PolicyFacts Facts() const override { return inner_.Facts(); }
  LayerPoint FirstChoice() const override { return inner_.FirstChoice(); }
  Needs NeedsAt(Phase phase, int layer) const override { return inner_.NeedsAt(phase, layer); }
  bool ReadsHidden(int layer) const override { return inner_.ReadsHidden(layer); }
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override {
    EXPECT_EQ(seen.phase, Phase::kPrefill);
    return inner_.BeforeLayer(seen, be);
  }
  TokenSet AfterAttention(const Observation& seen, Backend& be) override {
    EXPECT_EQ(seen.phase, Phase::kPrefill);
    return Note(inner_.AfterAttention(seen, be), seen, kept);
  }
  TokenSet RunFfn(const Observation& seen, Backend& be) override {
    return Note(inner_.RunFfn(seen, be), seen, ffn);
  }
  bool ProbesAttention(int layer) const override { return inner_.ProbesAttention(layer); }
  TokenSet RunAttention(const Observation& seen, Backend& be) override {
    EXPECT_EQ(seen.phase, Phase::kPrefill);
    return inner_.RunAttention(seen, be);
  }
  TokenSet FillFrom(const Observation& seen, const TokenSet& ran) override {
    return inner_.FillFrom(seen, ran);
  }
  bool ChoosesPattern(Phase phase, int layer) const override { return inner_.ChoosesPattern(phase, layer); }
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override {
    return inner_.Pattern(scene, be);
  }
  bool RetainsAt(Phase phase, int layer) const override { return inner_.RetainsAt(phase, layer); }
  std::optional<Retained> Retain(const Observation& seen, const CacheScene& cache, Backend& be) override {
    return inner_.Retain(seen, cache, be);
  }
  DecodePoint AttendsAt(int layer) const override { return inner_.AttendsAt(layer); }
  TokenSet Attend(const Observation& seen, const Candidates& candidates, Backend& be) override {
    TokenSet answer = inner_.Attend(seen, candidates, be);
    // Who is attended from which layer on, and who of them has to be computed.
    const int from = seen.layer + (AttendsAt(seen.layer) == DecodePoint::kAfterAttention ? 1 : 0);
    Positions chosen;
    for (const int32_t row : answer.ToRows()) {
      const int32_t p = candidates.positions[static_cast<size_t>(row)];
      chosen.push_back(p);
      if (candidates.parked[static_cast<size_t>(row)] != 0) revived.emplace_back(from, p);
    }
    attended.emplace_back(from, std::move(chosen));
    return answer;
  }

  std::vector<Positions> kept;                      // [layers] after attention, in prefill
  std::vector<Positions> ffn;                       // [layers]
  std::vector<std::pair<int, Positions>> attended;  // of the current step: from this layer on
  std::vector<std::pair<int, int32_t>> revived;     // of the current step: (first layer, position)

 private:
  static TokenSet Note(TokenSet set, const Observation& seen, std::vector<Positions>& list) {
    EXPECT_EQ(seen.phase, Phase::kPrefill);
    Positions positions;
    for (const int32_t row : set.ToRows()) positions.push_back(seen.positions[static_cast<size_t>(row)]);
    list.push_back(std::move(positions));
    return set;
  }
  TokenPolicy& inner_;
};

// An arithmetic, and a type of keys and values, under which the laws are tried.
struct LawArm {
  const char* name;
  const char* backend;
  bool exact;
  std::optional<DType> cache;  // unset: the backend's own
};

struct RunOptions {
  std::string spec = "none";
  Protection protection = {};
  std::vector<PositionSpan> question = {};
  TokenPolicy* policy = nullptr;  // instead of `spec`
  int64_t decode = 0;             // greedy steps
  int64_t tile_rows = 64;
  ColdOptions cold = {};
  TraceRecorder* trace = nullptr;
  PrefixUse prefix = {};
  PrefixCapture* capture = nullptr;
  RunControl control = {};
  Comm* comm = nullptr;  // the processes that prefill together
};

struct RunResult {
  std::vector<std::vector<float>> logits;  // of the prompt's end, then of each generated token
  std::vector<int32_t> generated;          // greedy
  SequenceState state;
  std::vector<Positions> kept, ffn;                           // as RecordingPolicy
  std::vector<std::vector<Positions>> attended;               // [steps][layers]
  std::vector<std::vector<std::pair<int, int32_t>>> revived;  // [steps]
  bool active = false;
  std::string reason;
  ComputedRows computed;  // by this process, if several prefill together
};

inline std::vector<float> RowOf(const Tensor& logits) {
  const std::span<const float> row = logits.view().Row<float>(0);
  return {row.begin(), row.end()};
}

// The tiny model has no tokenizer: its tokens are words, and what a second model would say of them is made
// up, but always the same. What its own first layers say is computed.
inline MethodContext TinyContext(const Transformer& model, const std::vector<int32_t>& prompt, Backend& be,
                                 std::span<const PositionSpan> question = {}, Split* split = nullptr) {
  const ModelShape& shape = model.config().shape;
  return {
      .shape = shape,
      .tokens = static_cast<int64_t>(prompt.size()),
      .prompt = prompt,
      .question = question,
      .parked_bytes = ParkedBytes(shape, be.cache_dtype()),
      .layer_bytes = LayerBytes(shape, be.cache_dtype()),
      .pieces =
          [&prompt] {
            std::vector<std::string> words;
            for (const int32_t id : prompt)
              words.push_back(" word" + std::to_string(id) + (id % 5 == 0 ? "." : ""));
            return words;
          },
      .open_scorer = [&prompt](const std::string&) -> TokenScores {
        return [&prompt] {
          std::vector<float> bits;
          for (size_t i = 0; i < prompt.size(); ++i)
            bits.push_back(static_cast<float>((static_cast<uint32_t>(prompt[i]) + i) * 2654435761u >> 16));
          return bits;
        };
      },
      .open_words = [&prompt](const std::string&) -> WordReader {
        return [&prompt] {
          std::vector<ReadWord> words;
          size_t at = 0;
          for (size_t i = 0; i < prompt.size(); ++i) {
            const std::string piece = " word" + std::to_string(prompt[i]) + (prompt[i] % 5 == 0 ? "." : "");
            const uint32_t mixed =
                (static_cast<uint32_t>(prompt[i]) + static_cast<uint32_t>(i)) * 3266489917u;
            words.push_back({.parts = {{at + 1, at + piece.size(), static_cast<float>(mixed >> 8) * 0x1p-24f,
                                        piece.substr(1)}},
                             .chunk = static_cast<int>(i / 50)});
            at += piece.size();
          }
          return words;
        };
      },
      .open_draft = [&prompt](const std::string&) -> Draft {
        return {.read = [&prompt](int, int) {
          std::vector<float> scores;
          for (size_t i = 0; i < prompt.size(); ++i)
            scores.push_back(static_cast<float>((static_cast<uint32_t>(prompt[i]) + i) * 2246822519u >> 16));
          return scores;
        }};
      },
      .first_layers =
          [&, split](int layer) {
            Workspace workspace = model.NewWorkspace(64, be.memory());
            return RunFilter(model, prompt, layer, workspace, {}, be, split).scores;
          }};
}

inline RunResult RunTiny(const Transformer& model, const std::vector<int32_t>& prompt, Backend& be,
                         const RunOptions& options) {
  const auto tokens = static_cast<int64_t>(prompt.size());
  std::optional<Split> split;
  if (options.comm != nullptr) split.emplace(*options.comm, options.control);
  Split* const together = split ? &*split : nullptr;
  PruneChoice choice = MakePolicy(options.spec, TinyContext(model, prompt, be, options.question, together),
                                  options.protection);
  RecordingPolicy policy(options.policy != nullptr ? *options.policy : *choice.policy);
  RunResult run;
  run.active = choice.active;
  run.reason = choice.reason;
  run.state = model.NewSequence(tokens, tokens + options.decode, be);
  run.state.cold_options = options.cold;
  run.state.trace = options.trace;
  run.state.prefix = options.prefix;
  run.state.capture = options.capture;
  Workspace ws = model.NewWorkspace(options.tile_rows, be.memory());
  Pass pass{policy, run.state, ws, be, split ? split->control() : options.control, together};
  Tensor logits;
  model.Prefill(prompt, pass, logits);
  if (split) run.computed = split->computed;
  pass.split = nullptr;
  if (split && !split->leads()) return run;
  run.logits.push_back(RowOf(logits));
  for (int64_t step = 0; step < options.decode; ++step) {
    const std::vector<float>& row = run.logits.back();
    run.generated.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    policy.attended.clear();
    policy.revived.clear();
    model.Decode(run.generated.back(), pass, logits);
    run.logits.push_back(RowOf(logits));
    run.revived.push_back(policy.revived);
    std::vector<Positions>& attended = run.attended.emplace_back();
    for (int l = 0; l < model.config().shape.layer_count(); ++l) {
      const LayerCache& cache = run.state.layers[static_cast<size_t>(l)].cache;
      attended.emplace_back(cache.positions().begin(), cache.positions().end());
      for (const auto& [from, positions] : policy.attended) {
        if (from <= l) attended.back() = positions;
      }
    }
  }
  run.kept = std::move(policy.kept);
  run.ffn = std::move(policy.ffn);
  return run;
}

inline Positions PositionsOf(const LayerCache& cache) {
  return {cache.positions().begin(), cache.positions().end()};
}

// Positions that have keys in a layer, hot or cold, in any kv head.
inline Positions StoredPositions(const SequenceState& state, int layer) {
  Positions all = state.cold ? state.cold->ColdPositions(layer) : Positions{};
  for (const std::span<const int32_t> list :
       state.layers[static_cast<size_t>(layer)].cache.position_lists()) {
    Positions both;
    std::set_union(all.begin(), all.end(), list.begin(), list.end(), std::back_inserter(both));
    all = std::move(both);
  }
  return all;
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

// The cached keys and values of one position, as bytes, of the kv heads that have it; empty where none has.
inline std::string CachedBytes(const LayerCache& cache, int32_t position) {
  std::string all;
  for (int head = 0; head < cache.kv_heads(); ++head) {
    const std::span<const int32_t> positions = cache.positions(head);
    const auto it = std::lower_bound(positions.begin(), positions.end(), position);
    if (it == positions.end() || *it != position) continue;
    const int64_t columns = cache.width() / cache.kv_heads();
    for (const TensorView& t : {cache.keys(), cache.values()}) {
      const HostRows row(t.Cols(head * columns, columns).Rows(it - positions.begin(), 1));
      all.append(reinterpret_cast<const char*>(row.view().data),
                 static_cast<size_t>(BytesOf(t.dtype, columns)));
    }
  }
  return all;
}

// Bit for bit: logits, sets, caches and what is parked.
inline void ExpectSameRun(const RunResult& run, const RunResult& wanted) {
  ExpectSameLogits(run, wanted);
  EXPECT_EQ(run.kept, wanted.kept);
  EXPECT_EQ(run.ffn, wanted.ffn);
  EXPECT_EQ(run.attended, wanted.attended);
  EXPECT_EQ(run.revived, wanted.revived);
  EXPECT_EQ(run.state.depth, wanted.state.depth);
  EXPECT_EQ(run.state.aux.tokens(), wanted.state.aux.tokens());
  EXPECT_EQ(run.state.aux.bytes(), wanted.state.aux.bytes());
  EXPECT_EQ(run.state.kv_bytes(), wanted.state.kv_bytes());
  EXPECT_EQ(run.state.cold_bytes(), wanted.state.cold_bytes());
  for (size_t l = 0; l < wanted.state.layers.size(); ++l) {
    const LayerCache& mine = run.state.layers[l].cache;
    const LayerCache& theirs = wanted.state.layers[l].cache;
    ASSERT_EQ(PositionsOf(mine), PositionsOf(theirs)) << "layer " << l;
    for (const int32_t p : StoredPositions(wanted.state, static_cast<int>(l))) {
      ASSERT_EQ(CachedBytes(mine, p), CachedBytes(theirs, p)) << "layer " << l << " position " << p;
    }
  }
}

// Every row of `pruned` is bit-equal to the same position of `dense`.
inline void ExpectRowsOf(const LayerCache& pruned, const LayerCache& dense) {
  for (const int32_t p : pruned.ragged() ? std::span<const int32_t>() : pruned.positions()) {
    ASSERT_EQ(CachedBytes(pruned, p), CachedBytes(dense, p)) << "position " << p;
  }
  const int64_t columns = pruned.width() / pruned.kv_heads();
  for (int head = 0; head < pruned.kv_heads() && pruned.ragged(); ++head) {
    for (int64_t row = 0; row < pruned.rows(); ++row) {
      const int32_t p = pruned.positions(head)[static_cast<size_t>(row)];
      const auto at = std::lower_bound(dense.positions().begin(), dense.positions().end(), p);
      const HostRows mine(pruned.keys().Cols(head * columns, columns).Rows(row, 1));
      const HostRows theirs(
          dense.keys().Cols(head * columns, columns).Rows(at - dense.positions().begin(), 1));
      ASSERT_EQ(std::memcmp(mine.view().data, theirs.view().data,
                            static_cast<size_t>(BytesOf(pruned.dtype(), columns))),
                0)
          << "position " << p << " of kv head " << head;
    }
  }
}

inline bool IsSubset(const Positions& inner, const Positions& outer) {
  return std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

inline bool Has(const Positions& set, int32_t position) {
  return std::binary_search(set.begin(), set.end(), position);
}

}  // namespace coppice
