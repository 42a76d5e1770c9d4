// Merges neighbouring symbols of a piece of text into tokens, best pair first: BPE and SentencePiece.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace coppice {

// A symbol of the piece during merging: an element of a doubly linked list in an array.
struct MergeSymbol {
  int32_t id = -1;  // -1: no token (SPM), or merged into its left neighbour
  int32_t prev = -1;
  int32_t next = -1;
  uint32_t begin = 0;  // SPM: offset of the symbol's `size` bytes in the piece; size is 0 once merged
  uint32_t size = 0;
};

struct MergeCandidate {
  double priority = 0;  // lowest first
  int32_t left = 0;     // then leftmost first
  int32_t left_id = 0;  // BPE: the pair's ids when it was found; SPM: bytes of both
  int32_t right_id = 0;
  int32_t merged = 0;
};

// The order of a heap whose top is the next pair to merge.
inline bool MergesAfter(const MergeCandidate& a, const MergeCandidate& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.left > b.left;
}

// Buffers that one Encode call reuses for all its pieces.
struct MergeScratch {
  std::vector<MergeSymbol> symbols;
  std::vector<MergeCandidate> heap;
  const std::atomic<bool>* cancelled = nullptr;  // EncodeOptions'
};

class Merger {
 public:
  virtual ~Merger() = default;
  // Appends the tokens of `piece` (normalised, at most 2^31 - 1 bytes). O(n log n). Throws Cancelled.
  virtual void Encode(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const = 0;
};

// Which pieces that are tokens are not merged.
enum class WholePieces { kNone, kNewlines, kAll };  // kNewlines: those of nothing but newlines

struct BpeOptions {
  bool byte_level = false;     // symbols are letters of GPT-2's byte alphabet; else characters
  bool byte_fallback = false;  // characters without a token become byte tokens
  bool fuse_unknown = false;
  WholePieces whole = WholePieces::kNone;
  int32_t unknown = -1;  // -1: text without a token is dropped
};

// Byte-pair encoding (Sennrich et al. 2016): merges the pair with the lowest index in `merges` first.
// `vocabulary` must outlive the merger. Throws Error for a merge whose parts or result are not tokens.
std::unique_ptr<Merger> MakeBpeMerger(const Vocabulary& vocabulary,
                                      const std::vector<std::pair<std::string, std::string>>& merges,
                                      const BpeOptions& options, const std::string& source);

// SentencePiece's BPE: merges the pair whose joined text is the token with the highest score first. `scores`
// has one entry per token, none of them NaN. Text without a token becomes byte tokens, or else one `unknown`
// per run.
std::unique_ptr<Merger> MakeSpmMerger(const Vocabulary& vocabulary, std::vector<float> scores,
                                      int32_t unknown);

// GPT-2's mapping of bytes to printable characters, in UTF-8, and its inverse. The inverse returns a text
// with any other character unchanged.
const std::array<std::string, 256>& ByteLevelAlphabet();
std::string FromByteLevel(std::string_view text);

}  // namespace coppice
