#include "grammar/schema_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace coppice {

namespace {

constexpr size_t kMaxPatternBytes = 16384;
constexpr size_t kMaxPatterns = 256;
constexpr uint32_t kMatchLimit = 200'000;   // some milliseconds; PCRE2 counts anew at each place of the text
constexpr size_t kAllMatches = 4'000'000;  // over all places of a text
constexpr uint32_t kLeastMatchLimit = 20;
constexpr uint32_t kHeapLimitKib = 16 * 1024;
constexpr std::chrono::milliseconds kMostTime{250};

// ECMA-262's WhiteSpace and LineTerminator, and its "." without the latter. PCRE2's differ.
constexpr const char* kSpaces = "\\t-\\r \u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF";
constexpr const char* kNoLineEnd = "[^\\n\\r\u2028\u2029]";

// PCRE2 knows the short names of Unicode's general categories, and scripts without "Script=".
std::string Property(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"Letter", "L"},
                                                                             {"Lowercase_Letter", "Ll"},
                                                                             {"Uppercase_Letter", "Lu"},
                                                                             {"Mark", "M"},
                                                                             {"Number", "N"},
                                                                             {"Decimal_Number", "Nd"},
                                                                             {"digit", "Nd"},
                                                                             {"Punctuation", "P"},
                                                                             {"punct", "P"},
                                                                             {"Symbol", "S"},
                                                                             {"Separator", "Z"},
                                                                             {"Space_Separator", "Zs"},
                                                                             {"Other", "C"},
                                                                             {"Control", "Cc"}};
  if (const size_t equals = name.find('='); equals != name.npos) name.remove_prefix(equals + 1);
  for (const auto& [long_name, short_name] : kNames) {
    if (name == long_name) return std::string(short_name);
  }
  return std::string(name);
}

std::string Translated(std::string_view pattern) {
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char kind = pattern[++i];
      if (kind == 's' || (kind == 'S' && !in_class)) {
        result += in_class ? kSpaces : std::string(kind == 's' ? "[" : "[^") + kSpaces + "]";
      } else if ((kind == 'p' || kind == 'P') && i + 1 < pattern.size() && pattern[i + 1] == '{') {
        const size_t end = std::min(pattern.find('}', i), pattern.size());
        result += std::string("\\") + kind + "{" + Property(pattern.substr(i + 2, end - i - 2)) + "}";
        i = end;
      } else if (kind == 'Z') {  // Python's end of the text
        result += "\\z";
      } else {
        result += c;
        result += kind;
      }
      continue;
    }
    if (c == '.' && !in_class) {
      result += kNoLineEnd;
      continue;
    }
    if (c == '[' && in_class) result += '\\';  // no POSIX class
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    result += c;
  }
  return result;
}

}  // namespace

struct SchemaPatterns::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;

  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
  }

  int Match(std::string_view text, size_t from, uint32_t options, uint32_t limit) const {
    pcre2_set_match_limit(context, limit);
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options, data,
                       context);
  }

  // Null if that takes too long. First with a limit that all places together can bear; where that is too low,
  // place by place, so that the clock is looked at between them.
  std::optional<bool> Finds(std::string_view text, std::chrono::steady_clock::time_point end) const {
    const auto at_each = static_cast<uint32_t>(
        std::clamp<size_t>(kAllMatches / (text.size() + 1), kLeastMatchLimit, kMatchLimit));
    const int found = Match(text, 0, 0, at_each);
    if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return found >= 0;
    if (found != PCRE2_ERROR_MATCHLIMIT || at_each == kMatchLimit) return std::nullopt;
    uint32_t options = 0;
    pcre2_pattern_info(code, PCRE2_INFO_ALLOPTIONS, &options);
    for (size_t i = 0; i <= text.size(); ++i) {
      if (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
      const int here = Match(text, i, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, kMatchLimit);
      if (here >= 0) return true;
      if (here != PCRE2_ERROR_NOMATCH || std::chrono::steady_clock::now() > end) return std::nullopt;
      if ((options & PCRE2_ANCHORED) != 0) break;
    }
    return false;
  }
};

SchemaPatterns::SchemaPatterns() = default;
SchemaPatterns::~SchemaPatterns() = default;

bool SchemaPatterns::Finds(const std::string& pattern, std::string_view text) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  std::unique_ptr<Compiled>& known = compiled_[pattern];
  if (!known) {
    if (pattern.size() > kMaxPatternBytes || compiled_.size() > kMaxPatterns || !IsUtf8(pattern))
      throw Error("pattern '{}' is too long, one of too many, or not UTF-8", pattern.substr(0, 100));
    auto made = std::make_unique<Compiled>();
    const std::string translated = Translated(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    made->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                               PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_ALT_BSUX | PCRE2_DOLLAR_ENDONLY |
                                   PCRE2_ALLOW_EMPTY_CLASS | PCRE2_MATCH_UNSET_BACKREF,
                               &error, &offset, nullptr);
    if (made->code == nullptr)
      throw Error("pattern '{}' is not a regular expression", pattern.substr(0, 100));
    made->data = pcre2_match_data_create_from_pattern(made->code, nullptr);
    made->context = pcre2_match_context_create(nullptr);
    if (made->data == nullptr || made->context == nullptr) throw std::bad_alloc();
    pcre2_set_heap_limit(made->context, kHeapLimitKib);
    known = std::move(made);
  }
  const std::optional<bool> found = known->Finds(text, start + kMostTime - spent_);
  spent_ += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
  if (!found || spent_ > kMostTime)
    throw Error("pattern '{}' takes too long on the text", pattern.substr(0, 100));
  return *found;
}

}  // namespace coppice
