#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

// Limits the work per byte of text; real tokens have fewer than 50 bytes.
constexpr size_t kMaxContentBytes = 1024;

// The character that ends at `position`, which must be greater than 0.
Char CharBefore(std::string_view text, size_t position) {
  size_t start = position - 1;
  while (start > 0 && position - start < 4 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  const Char c = DecodeUtf8(text, start);
  return start + c.size == position ? c : Char{kInvalidByte, 1};
}

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && IsWordPart(CharBefore(text, begin).code)) || IsWordPart(DecodeUtf8(text, end).code);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens, const std::string& source)
    : tokens_(std::move(tokens)), accepts_(1, -1) {
  if (tokens_.size() > static_cast<size_t>(limits::kMaxAddedTokens)) {
    throw Error("[tokenizer] {}: {} added tokens, at most {} are supported", source, tokens_.size(),
                limits::kMaxAddedTokens);
  }
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (content.empty() || content.size() > kMaxContentBytes) {
      throw Error("[tokenizer] {}: added token {} has {} bytes, expected 1 to {}", source, tokens_[i].id,
                  content.size(), kMaxContentBytes);
    }
    starts_[static_cast<uint8_t>(content[0])] = true;
    uint32_t node = 0;
    for (const char c : content) {
      const uint64_t edge = static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
      const auto [child, added] = children_.try_emplace(edge, static_cast<uint32_t>(accepts_.size()));
      if (added) accepts_.push_back(-1);
      node = child->second;
    }
    if (accepts_[node] < 0) accepts_[node] = static_cast<int32_t>(i);
  }
}

const AddedToken* AddedTokenMatcher::LongestAt(std::string_view text, size_t position,
                                               size_t special_end) const {
  if (!starts_[static_cast<uint8_t>(text[position])]) return nullptr;
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (size_t at = position; at < text.size(); ++at) {
    const auto child = children_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[at]));
    if (child == children_.end()) break;
    node = child->second;
    if (accepts_[node] < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(accepts_[node])];
    if (!token.special || at < special_end) longest = &token;
  }
  return longest;
}

std::vector<Fragment> AddedTokenMatcher::Split(std::string_view text, bool parse_special,
                                               std::span<const size_t> plain) const {
  std::vector<Fragment> fragments;
  size_t done = 0;
  size_t at = 0;
  while (!empty() && at < text.size()) {
    while (!plain.empty() && plain.front() < at) plain = plain.subspan(1);
    const size_t special_end = !parse_special ? 0 : plain.empty() ? text.size() : plain.front();
    const AddedToken* token = LongestAt(text, at, special_end);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + token->content.size();
    at = end;
    if (token->single_word && TouchesWord(text, begin, end)) continue;
    if (token->lstrip) {
      while (begin > done && IsWhiteSpace(CharBefore(text, begin).code))
        begin -= CharBefore(text, begin).size;
      begin = std::max(begin, done);
    }
    if (token->rstrip) {
      for (Char c = DecodeUtf8(text, end); IsWhiteSpace(c.code); c = DecodeUtf8(text, end)) end += c.size;
    }
    if (done < begin) fragments.push_back({done, begin, -1});
    fragments.push_back({begin, end, token->id});
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) fragments.push_back({done, text.size(), -1});
  return fragments;
}

void AddedTokenMatcher::AddSpecialStarts(std::string_view text, std::vector<size_t>& starts) const {
  const size_t trimmed = text.find_last_not_of(" \t\r\n") + 1;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(text[at]));
      if (child == children_.end()) break;
      node = child->second;
      const bool is_special = accepts_[node] >= 0 && tokens_[static_cast<size_t>(accepts_[node])].special;
      if (!is_special && at + 1 != trimmed && at + 1 != text.size()) continue;
      starts.push_back(begin);
      break;
    }
  }
}

}  // namespace coppice
