// Merges spans of text by score. A joined text is looked up only if it is no longer than the longest token,
// so a step takes a bounded look-up and one heap operation: O(n log n). Source: SentencePiece, Kudo and
// Richardson 2018 (its BPE model, including unused pieces).
#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>

#include "base/check.h"
#include "base/error.h"
#include "text/tokenizer/merger.h"
#include "text/tokenizer/pipeline.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

constexpr std::string_view kSpace = kSpmSpace;

class SpmMerger final : public Merger {
 public:
  SpmMerger(const Vocabulary& vocabulary, std::vector<float> scores, int32_t unknown)
      : vocabulary_(vocabulary), scores_(std::move(scores)), unknown_(unknown) {
    COPPICE_CHECK(scores_.size() == static_cast<size_t>(vocabulary.size()));
    for (int32_t id = 0; id < vocabulary.size() && words_are_separate_; ++id) {
      words_are_separate_ =
          vocabulary.type(id) != TokenType::kUnused && WordEnd(vocabulary.text(id)) == std::string_view::npos;
    }
  }

  void Encode(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  // For each unused token that was merged: the bytes of its left part.
  using Origins = boost::unordered_flat_map<int32_t, uint32_t>;

  static size_t WordEnd(std::string_view text);
  void EncodeWord(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const;
  void Split(std::string_view piece, std::vector<MergeSymbol>& symbols) const;
  void PushPair(std::string_view piece, MergeScratch& scratch, int32_t left) const;
  void Emit(std::string_view text, int32_t id, const Origins& origins, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  const std::vector<float> scores_;
  const int32_t unknown_;
  // No token reaches from a word into the next, so words can be merged one after the other: the symbols and
  // candidates of a whole text take 45 times its memory. Unused tokens are split as they were merged first,
  // which may be in another word.
  bool words_are_separate_ = true;
};

// Where the next word begins: its space, behind another character. npos: nowhere.
size_t SpmMerger::WordEnd(std::string_view text) {
  size_t begin = 0;
  while (text.substr(begin).starts_with(kSpace)) begin += kSpace.size();
  return text.find(kSpace, begin);
}

void SpmMerger::Split(std::string_view piece, std::vector<MergeSymbol>& symbols) const {
  symbols.clear();
  symbols.reserve(piece.size());
  for (size_t at = 0; at < piece.size();) {
    const uint32_t size = DecodeUtf8(piece, at).size;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({vocabulary_.FindOrdinary(piece.substr(at, size)), index - 1, index + 1,
                       static_cast<uint32_t>(at), size});
    at += size;
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

void SpmMerger::PushPair(std::string_view piece, MergeScratch& scratch, int32_t left) const {
  const MergeSymbol& a = scratch.symbols[static_cast<size_t>(left)];
  if (a.next < 0) return;
  const uint32_t size = a.size + scratch.symbols[static_cast<size_t>(a.next)].size;
  const int32_t merged = vocabulary_.FindOrdinary(piece.substr(a.begin, size));
  if (merged < 0) return;
  const double priority = -static_cast<double>(scores_[static_cast<size_t>(merged)]);
  scratch.heap.push_back({priority, left, static_cast<int32_t>(size), 0, merged});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), MergesAfter);
}

// Unused tokens only serve as intermediate merges, so Emit replaces one by its parts. Each part is shorter,
// so the recursion is at most as deep as the token is long.
void SpmMerger::Emit(std::string_view text, int32_t id, const Origins& origins,
                     std::vector<int32_t>& ids) const {
  if (id >= 0 && vocabulary_.type(id) == TokenType::kUnused) {
    if (const auto left = origins.find(id); left != origins.end()) {
      const std::string_view parts[] = {text.substr(0, left->second), text.substr(left->second)};
      for (const std::string_view part : parts) Emit(part, vocabulary_.FindOrdinary(part), origins, ids);
      return;
    }
  }
  if (id >= 0) {
    ids.push_back(id);
    return;
  }
  const auto has_token = [this](char c) { return vocabulary_.ByteToken(static_cast<uint8_t>(c)) >= 0; };
  if (std::all_of(text.begin(), text.end(), has_token)) {
    for (const char c : text) ids.push_back(vocabulary_.ByteToken(static_cast<uint8_t>(c)));
  } else if (unknown_ >= 0 && (ids.empty() || ids.back() != unknown_)) {
    ids.push_back(unknown_);
  }
}

void SpmMerger::Encode(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const {
  while (words_are_separate_ && !piece.empty()) {
    const std::string_view word = piece.substr(0, WordEnd(piece));
    EncodeWord(word, scratch, ids);
    piece.remove_prefix(word.size());
  }
  if (!piece.empty()) EncodeWord(piece, scratch, ids);
}

void SpmMerger::EncodeWord(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const {
  std::vector<MergeSymbol>& symbols = scratch.symbols;
  Split(piece, symbols);
  scratch.heap.clear();
  Origins origins;
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    ThrowIfCancelled(scratch.cancelled);
    PushPair(piece, scratch, static_cast<int32_t>(i));
  }
  while (!scratch.heap.empty()) {
    ThrowIfCancelled(scratch.cancelled);
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), MergesAfter);
    const MergeCandidate best = scratch.heap.back();
    scratch.heap.pop_back();
    MergeSymbol& left = symbols[static_cast<size_t>(best.left)];
    if (left.size == 0 || left.next < 0) continue;
    MergeSymbol& right = symbols[static_cast<size_t>(left.next)];
    // Sizes only grow, so the same start and total size mean the same two symbols.
    if (left.size + right.size != static_cast<uint32_t>(best.left_id)) continue;
    if (vocabulary_.type(best.merged) == TokenType::kUnused) {
      origins.try_emplace(best.merged, left.size);
    }
    left.id = best.merged;
    left.size += right.size;
    left.next = right.next;
    right.size = 0;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].prev = best.left;
    if (left.prev >= 0) PushPair(piece, scratch, left.prev);
    PushPair(piece, scratch, best.left);
  }
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    const MergeSymbol& symbol = symbols[static_cast<size_t>(i)];
    Emit(piece.substr(symbol.begin, symbol.size), symbol.id, origins, ids);
  }
}

}  // namespace

std::unique_ptr<Merger> MakeSpmMerger(const Vocabulary& vocabulary, std::vector<float> scores,
                                      int32_t unknown) {
  return std::make_unique<SpmMerger>(vocabulary, std::move(scores), unknown);
}

}  // namespace coppice
