// Each scanner implements its regular expression, alternative by alternative, in order. Where the expression
// would backtrack (\s+(?!\S), \s*[\r\n]+, Tekken's two letter classes), the scanner remembers the final
// position while moving forward. It looks at every character a bounded number of times: O(n).
#include "text/tokenizer/scanner.h"

#include <array>
#include <cstdint>
#include <utility>

#include "text/unicode/unicode.h"

namespace coppice {
namespace {

constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloomRegex = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
// The text in bloom's tokenizer.json: a class inside a class, which regex engines interpret differently.
constexpr std::string_view kBloomNestedRegex = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";

constexpr std::array<std::pair<std::string_view, Pattern>, 6> kRegexes{{
    {kGpt2Regex, Pattern::kGpt2},
    {kLlama3Regex, Pattern::kLlama3},
    {kQwen2Regex, Pattern::kQwen2},
    {kTekkenRegex, Pattern::kTekken},
    {kBloomRegex, Pattern::kBloom},
    {kBloomNestedRegex, Pattern::kBloom},
}};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Char At(size_t position) const { return CharAt(text_, position); }

  // The end of the run of characters that have any class of `mask`.
  size_t Run(size_t position, int mask) const {
    for (Char c = At(position); c.size != 0 && c.Is(mask); c = At(position)) position += c.size;
    return position;
  }

  // [^\s\p{L}\p{N}]+; returns `position` if it does not match.
  size_t Others(size_t position) const {
    for (Char c = At(position); c.size != 0 && !c.Is(kSpace | kLetter | kNumber); c = At(position)) {
      position += c.size;
    }
    return position;
  }

  size_t AnyOf(size_t position, std::string_view ascii) const {
    while (position < text_.size() && ascii.find(text_[position]) != std::string_view::npos) ++position;
    return position;
  }

  // '(?:s|t|re|ve|m|ll|d) at an apostrophe; returns `position` if it does not match. Ignoring case, U+017F
  // folds to s.
  size_t Contraction(size_t position, bool ignore_case) const {
    const auto letter = [&](size_t at) -> char {
      if (at >= text_.size()) return 0;
      const char c = text_[at];
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char a = letter(position + 1);
    const char b = letter(position + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return position + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return position + 3;
    const Char folded = At(position + 1);
    if (ignore_case && folded.code == 0x17F) return position + 1 + folded.size;
    return position;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+ at white space; without `lines`, the first alternative is omitted.
  size_t WhiteSpace(size_t position, bool lines) const {
    size_t end = position;
    size_t last_begin = position;
    size_t after_newline = 0;
    for (Char c = At(end); c.size != 0 && c.Is(kSpace); c = At(end)) {
      last_begin = end;
      end += c.size;
      if (c.code == '\r' || c.code == '\n') after_newline = end;
    }
    if (lines && after_newline != 0) return after_newline;
    if (end == text_.size() || last_begin == position) return end;
    return last_begin;  // the last space belongs to the next word
  }

 private:
  std::string_view text_;
};

size_t NextGpt2(const Scanner& scan, size_t at) {
  const Char c = scan.At(at);
  if (c.code == '\'') {
    const size_t end = scan.Contraction(at, false);
    if (end != at) return end;
  }
  const size_t body = c.code == ' ' ? at + 1 : at;
  const Char first = scan.At(body);
  if (first.Is(kLetter)) return scan.Run(body, kLetter);
  if (first.Is(kNumber)) return scan.Run(body, kNumber);
  const size_t others = scan.Others(body);
  return others != body ? others : scan.WhiteSpace(at, false);
}

// The alternatives after the letters, shared by Llama 3, Qwen 2 and Tekken.
size_t NextAfterLetters(const Scanner& scan, size_t at, int digits, std::string_view trailing) {
  const Char c = scan.At(at);
  if (c.Is(kNumber)) {
    size_t end = at;
    for (Char d = c; digits > 0 && d.size != 0 && d.Is(kNumber); d = scan.At(end), --digits) end += d.size;
    return end;
  }
  const size_t body = c.code == ' ' ? at + 1 : at;
  const size_t others = scan.Others(body);
  if (others != body) return scan.AnyOf(others, trailing);
  return scan.WhiteSpace(at, true);
}

// [^\r\n\p{L}\p{N}]
bool MayLead(const Char& c) {
  return c.size != 0 && c.code != '\r' && c.code != '\n' && !c.Is(kLetter | kNumber);
}

size_t NextCl100k(const Scanner& scan, size_t at, int digits) {
  const Char c = scan.At(at);
  if (c.code == '\'') {
    const size_t end = scan.Contraction(at, true);
    if (end != at) return end;
  }
  const size_t body = MayLead(c) ? at + c.size : at;
  if (scan.At(body).Is(kLetter)) return scan.Run(body, kLetter);
  return NextAfterLetters(scan, at, digits, "\r\n");
}

// U*L+ (upper-like, then lower-like). Greedy U* gives back characters until L+ has one, the last of the run
// that is both. Returns `at` if it does not match.
size_t UppersThenLower(const Scanner& scan, size_t at) {
  size_t end = at;
  size_t after_both = at;
  for (Char c = scan.At(end); c.size != 0 && c.Is(kUpperLike); c = scan.At(end)) {
    end += c.size;
    if (c.Is(kLowerLike)) after_both = end;
  }
  const size_t lower_end = scan.Run(end, kLowerLike);
  return lower_end != end ? lower_end : after_both;
}

// U+L*
size_t UpperThenLowers(const Scanner& scan, size_t at) {
  const size_t end = scan.Run(at, kUpperLike);
  return end == at ? at : scan.Run(end, kLowerLike);
}

size_t NextTekken(const Scanner& scan, size_t at) {
  const Char c = scan.At(at);
  const size_t body = MayLead(c) ? at + c.size : at;
  for (const auto letters : {UppersThenLower, UpperThenLowers}) {
    const size_t led = letters(scan, body);
    if (led != body) return led;
    const size_t plain = body == at ? at : letters(scan, at);
    if (plain != at) return plain;
  }
  return NextAfterLetters(scan, at, 1, "\r\n/");
}

bool StopsBloom(const Char& c) {
  if (c.size == 0 || c.Is(kSpace)) return true;
  switch (c.code) {
    case '(':
    case ')':
    case '|':
    case '.':
    case ',':
    case '!':
    case '?':
    case 0x2026:
    case 0x3002:
    case 0xFF0C:
    case 0x3001:
    case 0x0964:
    case 0x06D4:
    case 0x060C:
      return true;
    default:
      return false;
  }
}

void ScanBloom(const Scanner& scan, size_t size, std::vector<TextRange>& matches) {
  for (size_t at = 0; at < size;) {
    const Char c = scan.At(at);
    size_t end = c.code == ' ' ? at + 1 : at;
    const size_t body = end;
    for (Char d = scan.At(end); !StopsBloom(d); d = scan.At(end)) end += d.size;
    if (end == body) {
      at += c.size;
      continue;
    }
    matches.push_back({at, end});
    at = end;
  }
}

}  // namespace

std::string_view RegexOf(Pattern pattern) {
  for (const auto& [regex, known] : kRegexes) {
    if (known == pattern) return regex;
  }
  return {};
}

std::optional<Pattern> FindPattern(std::string_view regex) {
  for (const auto& [known, pattern] : kRegexes) {
    if (known == regex) return pattern;
  }
  return std::nullopt;
}

void Scan(Pattern pattern, std::string_view text, std::vector<TextRange>& matches) {
  const Scanner scan(text);
  if (pattern == Pattern::kBloom) return ScanBloom(scan, text.size(), matches);
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    switch (pattern) {
      case Pattern::kGpt2:
        end = NextGpt2(scan, at);
        break;
      case Pattern::kLlama3:
        end = NextCl100k(scan, at, 3);
        break;
      case Pattern::kQwen2:
        end = NextCl100k(scan, at, 1);
        break;
      case Pattern::kTekken:
        end = NextTekken(scan, at);
        break;
      case Pattern::kBloom:
        break;
    }
    matches.push_back({at, end});
    at = end;
  }
}

}  // namespace coppice
