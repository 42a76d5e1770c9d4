// The seam where pruning methods plug in. A policy answers questions with row sets and changes nothing but its
// own state: the layer asks, and applies the answers.
//
//   point            question                                                    phase
//   Input            which prompt tokens enter the model at all                  before prefill
//   BeforeLayer      which rows take part in layer l (and all later ones)        prefill
//   Pattern          which keys each block of queries looks at                   both
//   Retain           which keys and values stay in this layer's cache            both
//   AfterAttention   which rows stay in the stream from this FFN on              prefill
//   RunFfn           which rows run this layer's FFN; the rest keep their        prefill
//                    residual, or get the mean FFN output of some rows (FillFrom)
//   Attend           which tokens the rest of a step attends, and so which       decode
//                    parked ones must come back
//
// Rows are rows of the current stream, not positions; `Observation::positions` maps one to the other. A
// policy declares what it must observe at a layer, and only that is computed.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tensor/tensor.h"
#include "tensor/token_set.h"

namespace coppice {

enum class Phase { kPrefill, kDecode };

// Scores that a policy wants to see after the attention of one layer. Lists, because composed methods may
// each want their own (LazyLLM one query, FTP fifty).
struct Needs {
  static constexpr int64_t kAllQueries = std::numeric_limits<int64_t>::max();

  // The softmax mass that queries give to each key. In decode the one query is the current token's.
  struct Mass {
    int64_t queries = 0;       // the last this many rows (fewer where there are fewer), or kAllQueries
    bool per_kv_head = false;  // one list per kv head, pooled over its query heads; else one over all heads
    float last_weight = 1;     // the queries weigh linspace(1, last_weight)
    MassPool pool = MassPool::kSum;
    // Keys at positions below this score 0, and the softmax is over the others: a head that gives nearly all to the
    // prompt's first token counts as much as any other.
    int32_t sink = 0;
    // Prefill: the queries are the last `queries` rows at these positions, asked as if they stood at the prompt's end
    // (RoPE moves them there), so that they see what follows them. Empty, or none of them left: of all rows.
    std::vector<PositionSpan> of = {};
    friend bool operator==(const Mass&, const Mass&) = default;
  };
  struct Units {
    int queries = 0;  // mean of the last this many queries; in decode they reach back into the prompt
    int unit = 0;     // keys pooled in units of this many
    KeyPool pool = KeyPool::kMean;
    friend bool operator==(const Units&, const Units&) = default;
  };
  std::vector<Mass> masses;
  std::vector<Units> unit_scores;

  void Merge(const Needs& other);
  bool empty() const { return masses.empty() && unit_scores.empty(); }
};

// What a policy may look at. Scores belong to the attention of layer `layer` (in BeforeLayer, and in Attend
// before a layer: of `layer` - 1).
class Observation {
 public:
  Phase phase = Phase::kPrefill;
  int layer = 0;
  int layers = 0;
  int64_t prompt_tokens = 0;  // N: positions below it are the prompt's
  // Prefill: the position of each row of the stream. Decode: of each token that was attended where the scores
  // come from, the current one last. Ascending.
  std::span<const int32_t> positions;
  TensorView hidden;  // [rows, d] fp32: the stream as it is. Prefill only.

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }

  // [1, rows] fp32, or [kv_heads, rows] per kv head. Only what NeedsAt declared for this layer exists.
  TensorView AttentionMass(const Needs::Mass& mass) const;
  // Prefill: [1, ceil(rows / unit)] fp32, units of rows. Decode: [1, ceil(N / unit)], units of positions over
  // the prompt's tokens that have keys in this layer, wherever these are kept; -inf where a unit has none.
  TensorView UnitScores(const Needs::Units& units) const;

  // For the layer: forgets all scores; adds one and returns it for filling; follows rows that left. Unit
  // scores do not survive a loss of rows, because the units would no longer be whole.
  void ClearScores();
  MutableTensorView AddMass(const Needs::Mass& mass, int64_t lists);  // [lists, rows]
  MutableTensorView AddUnitScores(const Needs::Units& units, int64_t count);
  void KeepRows(const TokenSet& kept, Backend& be);

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

// Before a layer's attention, for methods of sparse attention.
struct AttentionScene {
  Phase phase = Phase::kPrefill;
  int layer = 0;
  bool pruned = false;  // tokens have left the stream before this layer
  // All queries of the layer and all keys that they may see; values may be empty. Queries are the last rows.
  AttentionInput in;
  // Decode, where the policy asked for pages: by channel the smallest and the largest key of each page of
  // positions; a page's bounds may include keys that are not attended. [pages, kv_heads * head_dim] fp32.
  TensorView page_min;
  TensorView page_max;
  // To be called between heads: others may compute meanwhile, and it throws where the run was cancelled. May be empty.
  std::function<void()> pause = {};

  void Pause() const {
    if (pause) pause();
  }
};

// The cache of one layer, for methods that evict.
struct CacheScene {
  int64_t rows = 0;                                 // in every kv head
  std::vector<std::span<const int32_t>> positions;  // of the rows: one list for all kv heads, or [kv_heads]
  // Rows that must stay, as many lists as `positions`. Compose fills it.
  std::vector<TokenSet> pinned;
};

struct Retained {
  // One set of cache rows for all kv heads, or one per kv head, all of the same size.
  std::vector<TokenSet> rows;
  // Positions are slots from now on: rows before the first gap move up against the rows after it, their keys
  // rotated to where they then stand (StreamingLLM).
  bool close_gap = false;
};

// In decode: the tokens that may take part from here on.
struct Candidates {
  // Tokens that have keys in the layers to come, or are parked just here; ascending, the current one last.
  std::span<const int32_t> positions;
  std::span<const uint8_t> parked;  // [positions.size()] 1: would have to be computed from here on
};

// A place between two steps of a layer: before it, or after its attention, its FFN still to come.
struct LayerPoint {
  int layer = 0;
  bool after_attention = false;
  friend auto operator<=>(const LayerPoint&, const LayerPoint&) = default;
};
// Behind every layer of every model.
inline constexpr LayerPoint kNoPoint{std::numeric_limits<int>::max(), false};

enum class DecodePoint { kNone, kBeforeLayer, kAfterAttention };

// Who sees whom when parked tokens come back: at the end of the sequence as LazyLLM's text has it (every
// attended token, later ones too), or by position.
enum class ReviveMask { kAppend, kCausal };

// One method, for one sequence. The default answers are those of the dense policy: all rows, nothing
// observed.
class TokenPolicy {
 public:
  virtual ~TokenPolicy() = default;

  // Which of the prompt's `tokens` enter the model; the last must be among them.
  virtual TokenSet Input(int64_t tokens, Backend& be);
  // Whether the tokens that entered take positions 0, 1, ... or keep their own.
  virtual bool CompactPositions() const { return false; }

  // The first point of prefill at which an answer may leave rows out. Up to there the rows of a prompt's beginning
  // depend on nothing that follows them, and a later prompt may take them over (model/prefix.h). Not part of it: Retain,
  // which no hidden state depends on, and what NeedsAt and ChoosesPattern tell.
  virtual LayerPoint FirstChoice() const { return kNoPoint; }

  // What the policy must see after the attention of `layer`.
  virtual Needs NeedsAt(Phase phase, int layer) const;

  virtual TokenSet BeforeLayer(const Observation& seen, Backend& be);
  virtual TokenSet AfterAttention(const Observation& seen, Backend& be);
  virtual TokenSet RunFfn(const Observation& seen, Backend& be);
  // Of the rows that run the FFN (`ran`) those whose mean output is added to the rows that skip it; none: nothing is.
  virtual TokenSet FillFrom(const Observation& seen, const TokenSet& ran);
  // Whether tokens that leave the stream are parked, so that Attend may bring them back.
  virtual bool Parks() const { return false; }

  // Pattern is asked where ChoosesPattern says so: the layer must then hold all its queries at once. An empty
  // pattern is dense attention. PageSize: positions per page in AttentionScene, 0 for none.
  virtual bool ChoosesPattern(Phase phase, int layer) const;
  virtual SparsePattern Pattern(const AttentionScene& scene, Backend& be);
  virtual int PageSize() const { return 0; }

  // Asked after the attention of every layer where RetainsAt says so, before rows leave the stream; nullopt
  // keeps all rows. In prefill the scores' rows are the cache's rows; in decode too, the current token last.
  virtual bool RetainsAt(Phase phase, int layer) const;
  virtual std::optional<Retained> Retain(const Observation& seen, const CacheScene& cache, Backend& be);

  // A set over candidates.positions: what later layers attend, until the next answer. Each decode step begins
  // with every token.
  virtual DecodePoint AttendsAt(int layer) const;
  virtual TokenSet Attend(const Observation& seen, const Candidates& candidates, Backend& be);
  virtual ReviveMask revive_mask() const { return ReviveMask::kAppend; }
  // Above 0: what Attend leaves out gives up its hot memory, in blocks of this many positions.
  virtual int OffloadBlock() const { return 0; }
};

}  // namespace coppice
