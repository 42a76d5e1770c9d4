// The seam where pruning methods plug in. A policy answers questions with row sets and changes nothing: the
// layer asks, and applies the answers.
//
//   point            question                                              asked by
//   BeforeLayer      which rows take part in layer l (and all later ones)  Layer::Forward
//   AfterAttention   which rows stay in the stream from this FFN on        Layer::Forward
//   RunFfn           which rows run this layer's FFN; the rest keep        Layer::Forward
//                    their residual
//
// Rows are rows of the current stream, not positions; `Observation::positions` maps one to the other. A
// policy declares what it must observe at a layer, and only that is computed.
#pragma once

#include <cstdint>
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
  struct Units {
    int queries = 0;  // mean of the last this many queries
    int unit = 0;     // mean of the keys in units of this many rows
    friend bool operator==(const Units&, const Units&) = default;
  };
  std::vector<int> mass_queries;  // for each w here: the softmax mass that the last w rows give to each row
  std::vector<Units> unit_scores;

  void Merge(const Needs& other);
  bool empty() const { return mass_queries.empty() && unit_scores.empty(); }
};

// What a policy may look at. Scores belong to the attention of layer `layer` (in BeforeLayer: of `layer` -
// 1), and follow the rows when some leave the stream.
class Observation {
 public:
  Phase phase = Phase::kPrefill;
  int layer = 0;
  int layers = 0;
  int64_t prompt_tokens = 0;           // N, before anything was pruned
  std::span<const int32_t> positions;  // [rows] of each row of the stream, ascending

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }

  // [1, rows] fp32, summed over heads and the last `queries` rows. Only what NeedsAt declared for this layer
  // exists.
  TensorView AttentionMass(int queries) const;
  // [1, ceil(rows / unit)] fp32 (Backend::UnitScores).
  TensorView UnitScores(Needs::Units units) const;
  bool HasUnitScores(Needs::Units units) const;

  // For the layer: forgets all scores; adds one and returns it for filling; follows rows that left. Unit
  // scores do not survive a loss of rows, because the units would no longer be whole.
  void ClearScores();
  MutableTensorView AddMass(int queries);
  MutableTensorView AddUnitScores(Needs::Units units);
  void KeepRows(const TokenSet& kept, Backend& be);

 private:
  struct Mass {
    int queries;
    Tensor score;  // [1, rows]
  };
  struct UnitScore {
    Needs::Units units;
    Tensor score;  // [1, ceil(rows / unit)]
  };
  std::vector<Mass> masses_;
  std::vector<UnitScore> unit_scores_;
};

// One method, for one sequence. The default answers are those of the dense policy: all rows, nothing
// observed.
class TokenPolicy {
 public:
  virtual ~TokenPolicy() = default;

  // What the policy must see after the attention of `layer`, in prefill.
  virtual Needs NeedsAt(int layer) const;
  virtual TokenSet BeforeLayer(const Observation& seen, Backend& be);
  virtual TokenSet AfterAttention(const Observation& seen, Backend& be);
  virtual TokenSet RunFfn(const Observation& seen, Backend& be);
};

}  // namespace coppice
