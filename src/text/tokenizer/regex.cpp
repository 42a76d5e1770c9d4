// PCRE2 with UTF, Unicode properties, and limits on steps and time: a pattern from a file must not decide how
// long a prompt takes.
#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <chrono>
#include <optional>

#include "base/error.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;  // a run of millions of characters of one class stays below it
// The match limit applies to a single match. A pattern whose matches all stay below it can still take time
// quadratic in the text. Real patterns take well under 0.1 us per byte.
constexpr double kSecondsAtLeast = 10;
constexpr double kSecondsPerByte = 20e-6;
constexpr uint32_t kHeapLimitKib = 256 * 1024;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct DataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string MessageOf(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

// Oniguruma interprets "[a[bc]]" as a union and "&&" as an intersection; PCRE2 silently takes both literally.
bool HasNestedClass(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\') {
      ++i;
    } else if (!in_class) {
      in_class = c == '[';
    } else if ((c == '[' && next != ':') || (c == '&' && next == '&')) {
      return true;
    } else if (c == '[') {
      i = pattern.find(":]", i + 2);
      if (i == std::string_view::npos) return false;  // the compiler will report the error
      ++i;
    } else if (c == ']') {
      in_class = false;
    }
  }
  return false;
}

}  // namespace

struct Regex::Impl {
  std::string pattern;
  std::string source;
  std::unique_ptr<pcre2_code, CodeDeleter> code;
  std::unique_ptr<pcre2_match_context, ContextDeleter> context;

  void FindInValid(std::string_view text, size_t offset, std::vector<TextRange>& matches) const;
};

Regex::Regex(const std::string& pattern, const std::string& source) : impl_(std::make_unique<Impl>()) {
  impl_->pattern = pattern;
  impl_->source = source;
  if (HasNestedClass(pattern)) {
    throw Error("[tokenizer] {}: regex '{}' nests character classes, which is not supported", source,
                pattern);
  }
  int code = 0;
  PCRE2_SIZE offset = 0;
  impl_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr));
  if (!impl_->code) {
    throw Error("[tokenizer] {}: regex '{}': {} at offset {}", source, pattern, MessageOf(code), offset);
  }
  impl_->context.reset(pcre2_match_context_create(nullptr));
  if (!impl_->context) throw Error("[tokenizer] {}: out of memory for a regex", source);
  pcre2_set_match_limit(impl_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(impl_->context.get(), kHeapLimitKib);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

void Regex::FindAll(std::string_view text, std::vector<TextRange>& matches) const {
  // Matches each valid range separately, so that PCRE2 need not validate the whole text again for every
  // match.
  size_t valid_from = 0;
  for (size_t at = 0; at < text.size();) {
    const Char c = DecodeUtf8(text, at);
    if (c.code == kInvalidByte) {
      impl_->FindInValid(text.substr(valid_from, at - valid_from), valid_from, matches);
      valid_from = at + 1;
    }
    at += c.size;
  }
  impl_->FindInValid(text.substr(valid_from), valid_from, matches);
}

void Regex::Impl::FindInValid(std::string_view text, size_t offset, std::vector<TextRange>& matches) const {
  if (text.empty()) return;
  const std::unique_ptr<pcre2_match_data, DataDeleter> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr));
  if (!data) throw Error("[tokenizer] {}: out of memory for a regex", source);
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> allowed(kSecondsAtLeast +
                                              kSecondsPerByte * static_cast<double>(text.size()));
  const Clock::time_point start = Clock::now();
  for (size_t at = 0; at < text.size();) {
    if (Clock::now() - start > allowed) {
      throw Error("[tokenizer] {}: regex '{}' takes too long on this text", source, pattern);
    }
    const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data.get(), context.get());
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) throw Error("[tokenizer] {}: regex '{}': {}", source, pattern, MessageOf(found));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    if (range[1] <= at || range[0] > range[1]) {  // \K in a look-behind can end a match before its start
      throw Error("[tokenizer] {}: regex '{}' matches backwards", source, pattern);
    }
    matches.push_back({offset + range[0], offset + range[1]});
    at = range[1];
  }
}

}  // namespace coppice
