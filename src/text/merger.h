// The two ways a piece of text becomes tokens by merging neighbours, best pair first.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/flat_map.h"
#include "text/vocabulary.h"

namespace coppice {

// One piece of a word while it is merged: a doubly linked list in an array.
struct MergeSymbol {
  int32_t id = -1;  // -1: no token (SPM), or merged into its left neighbour
  int32_t prev = -1;
  int32_t next = -1;
  uint32_t begin = 0;  // SPM: bytes of the piece; 0 bytes once merged away
  uint32_t size = 0;
};

struct MergeCandidate {
  double priority = 0;  // lower first
  int32_t left = 0;     // then leftmost first
  int32_t left_id = 0;  // BPE: what the pair was when it was found; SPM: bytes of both
  int32_t right_id = 0;
  int32_t merged = 0;
};

// The order of a heap whose top is the pair to merge next.
inline bool MergesAfter(const MergeCandidate& a, const MergeCandidate& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.left > b.left;
}

// Buffers that one Encode call uses for all its pieces.
struct MergeScratch {
  std::vector<MergeSymbol> symbols;
  std::vector<MergeCandidate> heap;
};

class Merger {
 public:
  virtual ~Merger() = default;
  // Appends the tokens of `piece` (normalised, at most 2^31 - 1 bytes). O(n log n).
  virtual void Encode(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const = 0;
};

struct BpeOptions {
  bool byte_level = false;     // the alphabet is GPT-2's image of bytes; else characters
  bool byte_fallback = false;  // characters without a token become byte tokens
  bool fuse_unknown = false;
  bool ignore_merges = false;  // a piece that is a token is that token
  int32_t unknown = -1;        // -1: what has no token is left out
};

// Byte-pair encoding (Sennrich et al. 2016): the pair that stands first in the list of merges first.
// `vocabulary` must outlive it. Throws Error for a merge whose parts or result are no tokens.
std::unique_ptr<Merger> MakeBpeMerger(const Vocabulary& vocabulary,
                                      const std::vector<std::pair<std::string, std::string>>& merges,
                                      const BpeOptions& options, const std::string& source);

// SentencePiece's BPE: the pair whose joined text is the token of the highest score first. `scores` has one
// entry per token, none of them NaN. What has no token becomes byte tokens, or else one `unknown` per run.
std::unique_ptr<Merger> MakeSpmMerger(const Vocabulary& vocabulary, std::vector<float> scores,
                                      int32_t unknown);

// GPT-2's image of a byte as a printable character, in UTF-8, and back. The inverse of a text with other
// characters is the text itself.
const std::array<std::string, 256>& ByteLevelAlphabet();
std::string FromByteLevel(std::string_view text);

}  // namespace coppice
