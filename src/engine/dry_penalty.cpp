#include "engine/dry_penalty.h"

#include <algorithm>
#include <cmath>

namespace coppice {

namespace {

// For each suffix of `text`, the number of tokens that it has in common with the whole, from the beginning on
// (the Z function).
std::vector<int64_t> CommonWithWhole(std::span<const int32_t> text) {
  const auto count = std::ssize(text);
  std::vector<int64_t> common(text.size(), 0);
  int64_t begin = 0;
  int64_t end = 0;  // of the known match that reaches furthest
  for (int64_t i = 1; i < count; ++i) {
    int64_t& length = common[static_cast<size_t>(i)];
    if (i < end) length = std::min(end - i, common[static_cast<size_t>(i - begin)]);
    while (i + length < count && text[static_cast<size_t>(length)] == text[static_cast<size_t>(i + length)])
      ++length;
    if (i + length > end) {
      begin = i;
      end = i + length;
    }
  }
  return common;
}

}  // namespace

std::unordered_map<int32_t, double> DryPenalties(const DryOptions& o, std::span<const int32_t> history) {
  std::unordered_map<int32_t, double> penalties;
  if (o.multiplier == 0) return penalties;
  const size_t seen = o.last_n < 0 ? history.size() : std::min(history.size(), static_cast<size_t>(o.last_n));
  const std::vector<int32_t> backwards(history.rbegin(),
                                       history.rbegin() + static_cast<std::ptrdiff_t>(seen));
  const auto is_breaker = [&](int32_t id) { return std::ranges::binary_search(o.breakers, id); };
  const auto longest = std::ranges::find_if(backwards, is_breaker) - backwards.begin();
  if (longest < o.allowed_length) return penalties;
  // backwards[i...] repeats the last tokens, and backwards[i - 1] followed it.
  const std::vector<int64_t> common = CommonWithWhole(backwards);
  std::unordered_map<int32_t, int64_t> lengths;
  for (size_t i = 1; i < common.size(); ++i) {
    const int64_t length = std::min<int64_t>(common[i], longest);
    const int32_t next = backwards[i - 1];
    if (length < o.allowed_length || is_breaker(next)) continue;
    int64_t& most = lengths[next];
    most = std::max(most, length);
  }
  for (const auto& [next, length] : lengths) {
    // No power beyond this changes what is sampled.
    const double power = std::pow(o.base, static_cast<double>(length - o.allowed_length));
    penalties[next] = o.multiplier * std::min(power, 1e6);
  }
  return penalties;
}

std::vector<int32_t> TokensWith(const Tokenizer& tokenizer, std::span<const std::string> texts) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string piece = tokenizer.Piece(id, true);
    const auto holds = [&](const std::string& text) { return piece.find(text) != piece.npos; };
    if (std::ranges::any_of(texts, holds)) ids.push_back(id);
  }
  return ids;
}

const std::vector<std::string>& DefaultDryBreakers() {
  static const std::vector<std::string> breakers = {"\n", ":", "\"", "*"};  // llama.cpp's
  return breakers;
}

}  // namespace coppice
