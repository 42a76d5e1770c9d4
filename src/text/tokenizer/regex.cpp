// PCRE2 with UTF, Unicode properties, and limits on steps and time: a pattern from a file must not decide how
// long a prompt takes. Its JIT compiler makes the known patterns about five times as fast; where the system
// forbids writing machine code, PCRE2 interprets them.
#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <chrono>

#include "base/error.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

// A run of 60 million characters of one class stays below it.
constexpr uint32_t kMatchLimit = 200'000'000;
// The match limit applies to a single match. A pattern whose matches all stay below it can still take time
// quadratic in the text. Real patterns take well under 0.1 us per byte.
constexpr double kSecondsAtLeast = 10;
constexpr double kSecondsPerByte = 1e-6;
// A look at the clock takes as long as a short match, so short matches share one.
constexpr size_t kMatchesPerLook = 16;
constexpr std::chrono::milliseconds kShort{1};  // for kMatchesPerLook matches
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

// PCRE2 takes UTF-8 only, and counts U+180E as white space, which it was before Unicode 6.3. Such bytes and
// characters are replaced, in `copy`, by others of the same length that no pattern treats specially.
std::string_view Matchable(std::string_view text, std::string& copy) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Char c = DecodeUtf8(text, at);
    const bool invalid = c.code == kInvalidByte;
    if (invalid || c.code == 0x180E) {
      if (copy.empty()) copy = text;
      copy.replace(at, c.size, invalid ? "\x01" : "\u200B");
    }
    at += c.size;
  }
  return copy.empty() ? text : copy;
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

  int Match(std::string_view text, size_t at, pcre2_match_data* data) const;
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
  pcre2_jit_compile(impl_->code.get(), PCRE2_JIT_COMPLETE);
  impl_->context.reset(pcre2_match_context_create(nullptr));
  if (!impl_->context) throw Error("[tokenizer] {}: out of memory for a regex", source);
  pcre2_set_match_limit(impl_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(impl_->context.get(), kHeapLimitKib);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

int Regex::Impl::Match(std::string_view text, size_t at, pcre2_match_data* data) const {
  const auto match = [&](uint32_t option) {
    return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                       PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | option, data, context.get());
  };
  // The JIT's stack has a fixed size; the interpreter's is on the heap.
  const int found = match(0);
  return found == PCRE2_ERROR_JIT_STACKLIMIT ? match(PCRE2_NO_JIT) : found;
}

void Regex::FindAll(std::string_view text, std::vector<TextRange>& matches,
                    const std::atomic<bool>* cancelled) const {
  if (text.empty()) return;
  const auto& [pattern, source, code, context] = *impl_;
  std::string copy;
  text = Matchable(text, copy);
  const std::unique_ptr<pcre2_match_data, DataDeleter> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr));
  if (!data) throw Error("[tokenizer] {}: out of memory for a regex", source);
  using Clock = std::chrono::steady_clock;
  const std::chrono::duration<double> allowed(kSecondsAtLeast +
                                              kSecondsPerByte * static_cast<double>(text.size()));
  const Clock::time_point start = Clock::now();
  Clock::time_point last_look = start;
  size_t next_look = 0;
  size_t step = 0;
  for (size_t at = 0; at < text.size(); ++step) {
    if (step == next_look) {
      ThrowIfCancelled(cancelled);
      const Clock::time_point now = Clock::now();
      if (now - start > allowed)
        throw Error("[tokenizer] {}: regex '{}' takes too long on this text", source, pattern);
      next_look += now - last_look < kShort ? kMatchesPerLook : 1;
      last_look = now;
    }
    const int found = impl_->Match(text, at, data.get());
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) throw Error("[tokenizer] {}: regex '{}': {}", source, pattern, MessageOf(found));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    if (range[1] <= at || range[0] > range[1]) {  // \K in a look-behind can end a match before its start
      throw Error("[tokenizer] {}: regex '{}' matches backwards", source, pattern);
    }
    matches.push_back({range[0], range[1]});
    at = range[1];
  }
}

}  // namespace coppice
