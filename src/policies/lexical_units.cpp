#include "policies/lexical_units.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace coppice {

namespace {

// Articles, pronouns, prepositions, conjunctions, auxiliaries. Sorted.
constexpr std::string_view kFunctionWords[] = {
    "a",       "about",   "above",   "after",  "against", "all",   "although", "am",    "among",  "an",
    "and",     "any",     "are",     "as",     "at",      "be",    "because",  "been",  "before", "being",
    "below",   "between", "both",    "but",    "by",      "can",   "could",    "did",   "do",     "does",
    "during",  "each",    "either",  "every",  "few",     "for",   "from",     "had",   "has",    "have",
    "he",      "her",     "here",    "him",    "his",     "how",   "i",        "if",    "in",     "into",
    "is",      "it",      "its",     "may",    "me",      "might", "more",     "most",  "must",   "my",
    "neither", "no",      "nor",     "not",    "of",      "off",   "on",       "or",    "our",    "out",
    "over",    "shall",   "she",     "should", "since",   "so",    "some",     "such",  "than",   "that",
    "the",     "their",   "them",    "then",   "there",   "these", "they",     "this",  "those",  "though",
    "through", "to",      "under",   "until",  "up",      "upon",  "us",       "was",   "we",     "were",
    "what",    "when",    "where",   "which",  "while",   "who",   "whom",     "whose", "why",    "will",
    "with",    "within",  "without", "would",  "yet",     "you",   "your",
};
static_assert(std::is_sorted(std::begin(kFunctionWords), std::end(kFunctionWords)));

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// Letters, digits, every byte of a non-ASCII character, and characters that join words: "don't",
// "well-known".
bool IsWord(char c) {
  const auto u = static_cast<unsigned char>(c);
  return u >= 0x80 || (u >= '0' && u <= '9') || ((u | 0x20) >= 'a' && (u | 0x20) <= 'z') || u == '\'' ||
         u == '-' || u == '_';
}

bool IsFunctionWord(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return std::binary_search(std::begin(kFunctionWords), std::end(kFunctionWords), std::string_view(lower));
}

// Cuts a text at byte offsets.
class Cutter {
 public:
  Cutter(std::string_view text, LexicalUnit unit) : text_(text), phrases_(unit == LexicalUnit::kPhrase) {}

  // The offsets at which a unit ends and the next may begin, ascending.
  std::vector<size_t> Cuts() {
    for (size_t i = 0; i < text_.size();) {
      if (const size_t mark = CjkMark(i); mark > 0) {
        Cut(i += mark);
      } else if (IsWord(text_[i])) {
        i = Word(i);
      } else {
        Mark(i++);
      }
    }
    return std::move(cuts_);
  }

 private:
  void Cut(size_t at) {
    if (cuts_.empty() || cuts_.back() < at) cuts_.push_back(at);
    words_ = 0;
    content_ = false;
  }

  // The length of a full-width punctuation mark that ends a unit, or 0.
  size_t CjkMark(size_t i) const {
    const std::string_view mark = text_.substr(i, 3);
    for (const std::string_view end : {"\u3002", "\uff01", "\uff1f"}) {
      if (mark == end) return 3;
    }
    for (const std::string_view pause : {"\uff0c", "\u3001", "\uff1b", "\uff1a"}) {
      if (phrases_ && mark == pause) return 3;
    }
    return 0;
  }

  size_t Word(size_t begin) {
    size_t end = begin;
    while (end < text_.size() && IsWord(text_[end]) && CjkMark(end) == 0) ++end;
    if (!phrases_) return end;
    const bool function = IsFunctionWord(text_.substr(begin, end - begin));
    if ((function && content_) || words_ == kPhraseWords) Cut(begin);
    ++words_;
    content_ = content_ || !function;
    return end;
  }

  void Mark(size_t i) {
    const char c = text_[i];
    const bool last = i + 1 == text_.size();
    const auto any_of = [&](std::string_view set) { return set.find(c) != std::string_view::npos; };
    if (c == '\n') {
      // A sentence continues over a line break, but not over an empty line.
      size_t next = i + 1;
      while (next < text_.size() && (text_[next] == ' ' || text_[next] == '\t' || text_[next] == '\r'))
        ++next;
      if (phrases_ || (next < text_.size() && text_[next] == '\n')) Cut(i + 1);
    } else if (any_of(phrases_ ? ".!?,;:)]}\"" : ".!?")) {
      if (last || IsSpace(text_[i + 1])) Cut(i + 1);  // not in 3.14, and not in e.g.
    } else if (phrases_ && any_of("([{") && i > 0) {
      Cut(i);
    }
  }

  std::string_view text_;
  bool phrases_;
  int words_ = 0;         // of the current phrase
  bool content_ = false;  // it has a word that is not a function word
  std::vector<size_t> cuts_;
};

}  // namespace

std::vector<int32_t> LexicalUnits(std::span<const std::string> pieces, LexicalUnit unit) {
  std::vector<int32_t> units;
  units.reserve(pieces.size());
  if (unit == LexicalUnit::kToken) {
    for (size_t i = 0; i < pieces.size(); ++i) units.push_back(static_cast<int32_t>(i));
    return units;
  }
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  const std::vector<size_t> cuts = Cutter(text, unit).Cuts();
  auto cut = cuts.begin();
  size_t offset = 0;
  int32_t current = 0;
  for (const std::string& piece : pieces) {
    const size_t lead =
        static_cast<size_t>(std::find_if_not(piece.begin(), piece.end(), IsSpace) - piece.begin());
    if (lead < piece.size()) {
      const auto passed = std::upper_bound(cut, cuts.end(), offset + lead);
      // Several cuts inside one token count once, so that every unit has tokens.
      if (passed != cut && !units.empty()) ++current;
      cut = passed;
    }
    units.push_back(current);
    offset += piece.size();
  }
  return units;
}

}  // namespace coppice
