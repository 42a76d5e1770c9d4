// The attention patterns of MInference, one for each query head, and the file that holds them.
//
// `coppice tune --head-patterns` writes the file (eval/tune/head_search.h). It is JSON:
//
//   {"format": "coppice head patterns", "version": 1, "model": "m.gguf", "tokens": 6000, "budget": 1024,
//    "heads": [[["vertical_slash", 100, 600], ["a_shape", 205, 819], ["block_sparse", 24], ...], ...]}
//
// "heads" has a list for each layer of the model, with an entry for each query head. No run reads the last
// layer's, because a prefill computes one row there. "model", "tokens" and "budget" say where the patterns
// come from; nothing depends on them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_shape.h"
#include "policies/pattern.h"

namespace coppice {

enum class PatternKind { kVerticalSlash, kBlockSparse, kAShape };
inline constexpr std::array<std::string_view, 3> kPatternNames = {"vertical_slash", "block_sparse",
                                                                  "a_shape"};

// What one query head reads. Sizes are tokens, except for block_sparse.
struct HeadPattern {
  PatternKind kind = PatternKind::kVerticalSlash;
  int64_t first =
      0;  // vertical_slash: columns; block_sparse: key blocks per query block; a_shape: first keys
  int64_t second = 0;  // vertical_slash: diagonals; a_shape: nearest keys; block_sparse: 0

  static constexpr int64_t kSinkColumns = 30;
  static constexpr int64_t kLocalDiagonals = 100;
  static constexpr int kBlock = 64;
  static constexpr int64_t kLastQueries = 64;

  // The pattern covers all, or nearly all, of a prompt of up to this many tokens.
  int64_t Reach() const { return kind == PatternKind::kBlockSparse ? first * kBlock : first + second; }
  friend bool operator==(const HeadPattern&, const HeadPattern&) = default;
};

// The least sizes of a kind; the most is kManyTokens.
HeadPattern LeastPattern(PatternKind kind);

struct HeadPatterns {
  std::string model;
  int64_t tokens = 0;                           // of the reference prompt
  int64_t budget = 0;                           // the FLOPs of an A-shape of this many tokens
  std::vector<std::vector<HeadPattern>> heads;  // [layers][heads]

  int64_t LeastReach() const;
};

// Throws Error, naming `source` and the place, for anything that is not a file of patterns for `shape`.
HeadPatterns ParseHeadPatterns(std::string_view text, const std::string& source, const ModelShape& shape);
// Reads the file at each call, because it is small: 40 KB for 32 layers of 32 heads. Throws Error.
std::shared_ptr<const HeadPatterns> ReadHeadPatterns(const std::string& path, const ModelShape& shape);
// The file's text, a line for each layer.
std::string TextOf(const HeadPatterns& patterns);

// The keys that a head reads, on a grid of blocks of HeadPattern::kBlock. The equations are those of
// minference.cpp.
SparsePattern::Head VerticalSlashHead(LineMass mass, int64_t columns, int64_t diagonals,
                                      const BlockGrid& grid, Backend& be);
// `map`: PooledMap of the head.
SparsePattern::Head BlockSparseHead(Tensor map, int64_t blocks, const BlockGrid& grid, Backend& be);
SparsePattern::Head AShapeHead(int64_t first, int64_t nearest, const BlockGrid& grid);
SparsePattern::Head DenseHead(const BlockGrid& grid);

}  // namespace coppice
