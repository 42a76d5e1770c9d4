// The interface between the model and the pruning methods. A policy answers questions with sets of rows and
// changes nothing but its own state; the layer asks, and applies the answers.
//
//   point            question                                                    phase
//   Input            which prompt tokens enter the model at all                  before prefill
//   BeforeLayer      which rows take part in layer l (and all later ones)        prefill
//   RunAttention     which rows attend in this layer, and are stored in its      prefill
//                    cache; the rest keep their residual
//   Pattern          which keys each block of queries looks at                   both
//   Retain           which keys and values stay in this layer's cache            both
//   AfterAttention   which rows stay in the stream from this FFN on              prefill
//   RunFfn           which rows run this layer's FFN; the rest keep their        prefill
//                    residual, or get the mean FFN output of some rows (FillFrom)
//   Attend           which tokens the rest of a step attends, and so which       decode
//                    parked ones must return
//
// Rows are rows of the current stream, not positions; `Observation::positions` maps one to the other. A
// policy declares what it must observe at a layer, and the layer computes only that.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"
#include "tensor/tensor.h"
#include "tensor/token_set.h"

namespace coppice {

enum class Phase { kPrefill, kDecode };

// The scores that a policy wants to see after the attention of one layer. They are lists, because each of
// several composed methods may want its own (LazyLLM one query, FTP fifty).
struct Needs {
  static constexpr int64_t kAllQueries = std::numeric_limits<int64_t>::max();

  // The softmax mass that queries give to each key. In decode the only query is the current token's.
  struct Mass {
    int64_t queries = 0;       // number of last rows (all rows if there are fewer), or kAllQueries
    bool per_kv_head = false;  // one list per kv head, pooled over its query heads; else one over all heads
    float last_weight = 1;     // the queries have the weights linspace(1, last_weight)
    MassPool pool = MassPool::kSum;
    // Keys at positions below this score 0, and the softmax is over the other keys. A head that gives nearly
    // all its mass to the prompt's first token then counts as much as any other head.
    int32_t sink = 0;
    // Prefill: the queries are the last `queries` rows at these positions, rotated by RoPE to the prompt's
    // end, so that they see the tokens that follow them. Empty, or no such row left: the last rows of all.
    std::vector<PositionSpan> of = {};
    friend bool operator==(const Mass&, const Mass&) = default;
  };
  struct Units {
    int queries = 0;  // number of last queries, averaged; in decode they reach back into the prompt
    int unit = 0;     // number of keys that are pooled into a unit
    KeyPool pool = KeyPool::kMean;
    friend bool operator==(const Units&, const Units&) = default;
  };
  std::vector<Mass> masses;
  std::vector<Units> unit_scores;

  void Merge(const Needs& other);
  bool empty() const { return masses.empty() && unit_scores.empty(); }
};

// What a policy may look at. The scores are those of the attention of layer `layer`; in BeforeLayer, and in
// Attend before a layer, those of layer `layer` - 1.
class Observation {
 public:
  Phase phase = Phase::kPrefill;
  int layer = 0;
  int layers = 0;
  int64_t prompt_tokens = 0;  // N: positions below it are the prompt's
  // Ascending. Prefill: the position of each row of the stream. Decode: the positions that were attended when
  // the scores were taken, the current token's last.
  std::span<const int32_t> positions;
  // [rows, d] fp32: the current stream. Prefill only; if several processes compute it, only in BeforeLayer
  // of the layers where ReadsHidden returns true.
  TensorView hidden;
  // RunControl::Pause, to be called between tiles by an answer that computes for more than some tenths of a
  // second; it throws if the run was cancelled. May be empty.
  std::function<void()> pause = {};
  // The positions of the prompt's tokens that entered the model, ascending; empty: all of them. Shares of the
  // prompt are shares of these.
  std::span<const int32_t> entered;

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  int64_t entered_tokens() const {
    return entered.empty() ? prompt_tokens : static_cast<int64_t>(entered.size());
  }
  // The position of the first of the last `count` prompt tokens that entered.
  int64_t LastEntered(int64_t count) const;

  // [1, rows] fp32, or [kv_heads, rows] per kv head. NeedsAt must have declared it for this layer.
  TensorView AttentionMass(const Needs::Mass& mass) const;
  bool HasMass(const Needs::Mass& mass) const;  // whether the last layer observed it
  // Prefill: [1, ceil(rows / unit)] fp32, in units of rows. Decode: [1, ceil(N / unit)], in units of
  // positions, over the prompt's tokens that have keys in this layer, in memory or in the cold tier; -inf for
  // a unit without keys.
  TensorView UnitScores(const Needs::Units& units) const;

  // The same without the rows at positions below `front`, and without unit scores. `entered_behind`:
  // the positions of the prompt's tokens from there on.
  Observation Behind(int64_t front, std::span<const int32_t> entered_behind) const;

  // For the layer: forget all scores; add one, which the caller fills in; drop the scores of dropped rows.
  // Dropping rows also drops all unit scores, because their units are no longer whole.
  void ClearScores();
  MutableTensorView AddMass(const Needs::Mass& mass, int64_t lists);  // [lists, rows]
  MutableTensorView AddUnitScores(const Needs::Units& units, int64_t count);
  void KeepRows(const TokenSet& kept);

 private:
  struct Mass {
    Needs::Mass of;
    Tensor score;  // [1 or kv_heads, rows]
  };
  struct UnitScore {
    Needs::Units of;
    Tensor score;  // [1, units]
  };
  std::vector<Mass> masses_;
  std::vector<UnitScore> unit_scores_;
};

// What a method of sparse attention sees before a layer's attention.
struct AttentionScene {
  Phase phase = Phase::kPrefill;
  int layer = 0;
  bool pruned = false;  // tokens were dropped before this layer
  // All queries of the layer and all keys that they may see; values may be empty. Queries are the last rows.
  AttentionInput in;
  // Decode, if PolicyFacts::page_size is set: for each page of positions the smallest and the largest key, by
  // channel. A page's bounds may include keys that are not attended. [pages, kv_heads * head_dim] fp32.
  TensorView page_min;
  TensorView page_max;
  // RunControl::Pause, to be called between heads: others may compute meanwhile, and it throws if the run was
  // cancelled. May be empty.
  std::function<void()> pause = {};

  void Pause() const {
    if (pause) pause();
  }
};

// What a method that evicts sees of one layer's cache.
struct CacheScene {
  int64_t rows = 0;                                 // in every kv head
  std::vector<std::span<const int32_t>> positions;  // of the rows: one list for all kv heads, or [kv_heads]
  // The rows that must stay; as many lists as `positions`. Compose fills this in.
  std::vector<TokenSet> pinned;
};

struct Retained {
  // One set of cache rows for all kv heads, or one per kv head, all of the same size.
  std::vector<TokenSet> rows;
  // Close the gap in the positions (StreamingLLM): the rows before it move up to the rows after it, and their
  // keys are rotated to the new positions.
  bool close_gap = false;
};

// In decode: the tokens that the policy may choose to attend from here on.
struct Candidates {
  // Tokens that have keys in the next layers, or are parked at this point; ascending, the current token last.
  std::span<const int32_t> positions;
  std::span<const uint8_t> parked;  // [positions.size()] 1: the token would be computed from here on
};

// A point between two steps of a prefill: before a layer, or between its attention and its FFN.
struct LayerPoint {
  int layer = 0;
  bool after_attention = false;
  friend auto operator<=>(const LayerPoint&, const LayerPoint&) = default;
};
// After the last layer of every model.
inline constexpr LayerPoint kNoPoint{std::numeric_limits<int>::max(), false};

enum class DecodePoint { kNone, kBeforeLayer, kAfterAttention };

// What returned tokens see: every attended token, later ones too, as if they were appended (LazyLLM's text),
// or only the tokens before them.
enum class ReviveMask { kAppend, kCausal };

// What stays the same for the whole life of a policy.
struct PolicyFacts {
  bool compact_positions = false;  // the tokens that enter take positions 0, 1, ... instead of their own
  bool parks = false;              // dropped tokens are parked, so that Attend may bring them back
  ReviveMask revive_mask = ReviveMask::kAppend;
  int page_size = 0;      // positions per page in AttentionScene; 0: no pages
  int offload_block = 0;  // above 0: keys that Attend leaves out are offloaded, in blocks of this size
  bool fills = false;     // FillFrom may name rows, whose FFN outputs are then needed
  // Why several processes cannot compute the prefill together, or "". What follows from NeedsAt need not be
  // told.
  std::string_view one_process = {};
};

// One method, for one sequence. The default answers are those of the dense policy: all rows, nothing
// observed.
class TokenPolicy {
 public:
  virtual ~TokenPolicy() = default;

  virtual PolicyFacts Facts() const { return {}; }

  // Which of the prompt's `tokens` enter the model; the last must be among them.
  virtual TokenSet Input(int64_t tokens, Backend& be);

  // The first point of prefill at which an answer may leave rows out. Up to there the rows of a prompt's
  // beginning do not depend on what follows, and a later prompt may reuse them (model/prefix.h). Retain does
  // not count, because no hidden state depends on it; NeedsAt and ChoosesPattern are checked separately.
  virtual LayerPoint FirstChoice() const { return kNoPoint; }

  // The positions of the prompt's `tokens` that every answer keeps, whatever the scores are: protected ones.
  // Ascending, without overlaps.
  virtual std::vector<PositionSpan> AlwaysStay(int64_t tokens) const;

  // The scores that the policy needs after the attention of `layer`, or before it (ProbesAttention).
  virtual Needs NeedsAt(Phase phase, int layer) const;

  // Whether BeforeLayer of `layer` reads Observation::hidden. Several processes gather it only there, and a
  // prompt whose first rows came without hidden states (model/prefix.h) has none.
  virtual bool ReadsHidden(int layer) const;
  virtual TokenSet BeforeLayer(const Observation& seen, Backend& be);
  virtual TokenSet AfterAttention(const Observation& seen, Backend& be);
  virtual TokenSet RunFfn(const Observation& seen, Backend& be);
  // Prefill: the layer calls RunAttention, if ProbesAttention returns true, before its attention and with the
  // scores that NeedsAt declares for it; sums over all queries (kAllQueries) are not among them. For the
  // scores it has computed the keys of all rows, and the queries of those that score. The rows of the answer
  // attend to each other, and their keys and values alone enter the layer's cache.
  virtual bool ProbesAttention(int layer) const;
  virtual TokenSet RunAttention(const Observation& seen, Backend& be);
  // A subset of `ran`, the rows that run the FFN: their mean output is added to the rows that skip it. None:
  // nothing is.
  virtual TokenSet FillFrom(const Observation& seen, const TokenSet& ran);

  // The layer calls Pattern if ChoosesPattern returns true, and then holds all its queries at once. An empty
  // pattern means dense attention.
  virtual bool ChoosesPattern(Phase phase, int layer) const;
  virtual SparsePattern Pattern(const AttentionScene& scene, Backend& be);

  // The layer calls Retain after its attention, before rows are dropped, if RetainsAt returns true. nullopt
  // keeps all rows. The scores' rows are the cache's rows; in decode the current token is the last.
  virtual bool RetainsAt(Phase phase, int layer) const;
  virtual std::optional<Retained> Retain(const Observation& seen, const CacheScene& cache, Backend& be);

  // Returns a set over candidates.positions: the tokens that the layers attend from here until the next
  // answer. Each decode step begins with every token.
  virtual DecodePoint AttendsAt(int layer) const;
  virtual TokenSet Attend(const Observation& seen, const Candidates& candidates, Backend& be);
};

}  // namespace coppice
