// What two prompts have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace coppice {

// The number of tokens that both begin with.
inline int64_t InCommon(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto count = static_cast<ptrdiff_t>(std::min(a.size(), b.size()));
  return std::mismatch(a.begin(), a.begin() + count, b.begin()).first - a.begin();
}

// Tokens at a prompt's end that the next turn may write otherwise: what begins the answer.
inline constexpr int64_t kAnswerHead = 16;

inline std::span<const int32_t> WithoutAnswerHead(std::span<const int32_t> tokens) {
  return std::ssize(tokens) > 2 * kAnswerHead ? tokens.first(tokens.size() - kAnswerHead) : tokens;
}

// Returns true if `shared` tokens are nearly all of a prompt's: the rest costs little, however it is read.
inline bool IsMost(int64_t shared, int64_t tokens) { return tokens - shared <= tokens / 8; }

}  // namespace coppice
