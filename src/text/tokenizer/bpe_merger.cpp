// Merges ids by rank. A pair is one 64-bit key, so a step takes one look-up and one heap operation: O(n log
// n) for any piece of n symbols.
#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <optional>

#include "base/error.h"
#include "text/tokenizer/merger.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

struct Merge {
  int32_t rank = 0;
  int32_t merged = 0;
};

constexpr uint32_t kSpaceMark = 0x2581;  // SentencePiece's

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

class BpeMerger final : public Merger {
 public:
  BpeMerger(const Vocabulary& vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
            const BpeOptions& options, const std::string& source);

  void Encode(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const override;

 private:
  bool MayBeWhole(std::string_view piece) const;
  bool EncodeWhole(std::string_view piece, std::vector<int32_t>& ids) const;
  void FindJoins(const std::vector<std::pair<std::string, std::string>>& merges);
  size_t WordEnd(std::string_view piece) const;
  void EncodeWord(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const;
  void Split(std::string_view piece, std::vector<MergeSymbol>& symbols) const;
  void AddUnknown(std::vector<MergeSymbol>& symbols, bool& unknown_before) const;
  void PushPair(MergeScratch& scratch, int32_t left) const;

  const Vocabulary& vocabulary_;
  const BpeOptions options_;
  std::array<int32_t, 256> bytes_{};  // the token of each single byte, or -1
  boost::unordered_flat_map<uint64_t, Merge> merges_;
  // Where U+2581 follows any other character than these, no merge reaches over the place, so the words before
  // and behind it can be merged one after the other: the symbols and candidates of a text without line breaks
  // take 45 times its memory.
  boost::unordered_flat_set<uint32_t> joins_space_;
  bool words_are_separate_ = false;
};

BpeMerger::BpeMerger(const Vocabulary& vocabulary,
                     const std::vector<std::pair<std::string, std::string>>& merges,
                     const BpeOptions& options, const std::string& source)
    : vocabulary_(vocabulary), options_(options) {
  for (size_t byte = 0; byte < 256; ++byte) bytes_[byte] = vocabulary.FindOrdinary(ByteLevelAlphabet()[byte]);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const std::optional<int32_t> left_id = vocabulary.Find(left);
    const std::optional<int32_t> right_id = vocabulary.Find(right);
    const std::optional<int32_t> merged = vocabulary.Find(left + right);
    // Both parts are non-empty, so every merge makes a longer text, and no chain of merges can be cyclic.
    if (left.empty() || right.empty() || !left_id || !right_id || !merged) {
      throw Error("[tokenizer] {}: merge {} ('{}' + '{}') names a token that is not in the vocabulary",
                  source, rank, left, right);
    }
    merges_.try_emplace(PairKey(*left_id, *right_id), Merge{static_cast<int32_t>(rank), *merged});
  }
  FindJoins(merges);
}

void BpeMerger::FindJoins(const std::vector<std::pair<std::string, std::string>>& merges) {
  const auto ordinary = [this](const std::string& text) { return vocabulary_.FindOrdinary(text) >= 0; };
  std::string mark;
  AppendUtf8(kSpaceMark, mark);
  // The name of a byte token says nothing of the character that it stands for.
  words_are_separate_ =
      !options_.byte_level && ordinary(mark) &&
      std::ranges::all_of(merges, [&](const auto& m) { return ordinary(m.first) && ordinary(m.second); });
  for (size_t i = 0; words_are_separate_ && i < merges.size(); ++i) {
    const std::string text = merges[i].first + merges[i].second;
    uint32_t before = kSpaceMark;
    for (size_t at = 0; at < text.size();) {
      const Char c = DecodeUtf8(text, at);
      if (c.code == kSpaceMark && before != kSpaceMark) joins_space_.insert(before);
      before = c.code;
      at += c.size;
    }
  }
}

// Where the next word begins, or the end.
size_t BpeMerger::WordEnd(std::string_view piece) const {
  uint32_t before = kSpaceMark;
  for (size_t at = 0; words_are_separate_ && at < piece.size();) {
    const Char c = DecodeUtf8(piece, at);
    if (c.code == kSpaceMark && before != kSpaceMark && !joins_space_.contains(before)) return at;
    before = c.code;
    at += c.size;
  }
  return piece.size();
}

bool BpeMerger::MayBeWhole(std::string_view piece) const {
  if (options_.whole == WholePieces::kNewlines)
    return piece.find_first_not_of('\n') == std::string_view::npos;
  return options_.whole == WholePieces::kAll;
}

bool BpeMerger::EncodeWhole(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() > vocabulary_.longest()) return false;
  int32_t id = -1;
  if (options_.byte_level) {
    std::string mapped;
    for (const char c : piece) mapped += ByteLevelAlphabet()[static_cast<uint8_t>(c)];
    id = vocabulary_.FindOrdinary(mapped);
  } else {
    id = vocabulary_.FindOrdinary(piece);
  }
  if (id >= 0) ids.push_back(id);
  return id >= 0;
}

void BpeMerger::AddUnknown(std::vector<MergeSymbol>& symbols, bool& unknown_before) const {
  if (options_.unknown >= 0 && !(options_.fuse_unknown && unknown_before))
    symbols.push_back({.id = options_.unknown});
  unknown_before = true;
}

void BpeMerger::Split(std::string_view piece, std::vector<MergeSymbol>& symbols) const {
  symbols.clear();
  bool unknown_before = false;
  for (size_t at = 0; at < piece.size();) {
    const size_t size = options_.byte_level ? 1 : DecodeUtf8(piece, at).size;
    const std::string_view text = piece.substr(at, size);
    at += size;
    const int32_t id =
        options_.byte_level ? bytes_[static_cast<uint8_t>(text[0])] : vocabulary_.FindOrdinary(text);
    if (id >= 0) {
      symbols.push_back({.id = id});
      unknown_before = false;
      continue;
    }
    const auto has_token = [this](char c) { return vocabulary_.ByteToken(static_cast<uint8_t>(c)) >= 0; };
    if (options_.byte_fallback && std::all_of(text.begin(), text.end(), has_token)) {
      for (const char c : text) symbols.push_back({.id = vocabulary_.ByteToken(static_cast<uint8_t>(c))});
      unknown_before = false;
    } else {
      AddUnknown(symbols, unknown_before);
    }
  }
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].prev = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1;
  }
}

void BpeMerger::PushPair(MergeScratch& scratch, int32_t left) const {
  const MergeSymbol& a = scratch.symbols[static_cast<size_t>(left)];
  if (a.next < 0) return;
  const int32_t right_id = scratch.symbols[static_cast<size_t>(a.next)].id;
  const auto found = merges_.find(PairKey(a.id, right_id));
  if (found == merges_.end()) return;
  const Merge& merge = found->second;
  scratch.heap.push_back({static_cast<double>(merge.rank), left, a.id, right_id, merge.merged});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), MergesAfter);
}

void BpeMerger::Encode(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const {
  if (MayBeWhole(piece) && EncodeWhole(piece, ids)) return;
  while (!piece.empty()) {
    const std::string_view word = piece.substr(0, WordEnd(piece));
    EncodeWord(word, scratch, ids);
    piece.remove_prefix(word.size());
  }
}

void BpeMerger::EncodeWord(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const {
  std::vector<MergeSymbol>& symbols = scratch.symbols;
  Split(piece, symbols);
  scratch.heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    ThrowIfCancelled(scratch.cancelled);
    PushPair(scratch, static_cast<int32_t>(i));
  }
  while (!scratch.heap.empty()) {
    ThrowIfCancelled(scratch.cancelled);
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), MergesAfter);
    const MergeCandidate best = scratch.heap.back();
    scratch.heap.pop_back();
    MergeSymbol& left = symbols[static_cast<size_t>(best.left)];
    if (left.id != best.left_id || left.next < 0) continue;  // one of the two has been merged since
    MergeSymbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != best.right_id) continue;
    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].prev = best.left;
    if (left.prev >= 0) PushPair(scratch, left.prev);
    PushPair(scratch, best.left);
  }
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    ids.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace

std::unique_ptr<Merger> MakeBpeMerger(const Vocabulary& vocabulary,
                                      const std::vector<std::pair<std::string, std::string>>& merges,
                                      const BpeOptions& options, const std::string& source) {
  return std::make_unique<BpeMerger>(vocabulary, merges, options, source);
}

}  // namespace coppice
