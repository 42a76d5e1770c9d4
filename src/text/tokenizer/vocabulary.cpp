#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/limits.h"

namespace coppice {

std::optional<uint8_t> ParseByteToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const bool upper = c >= 'A' && c <= 'F';
    const bool lower = c >= 'a' && c <= 'f';
    if (!upper && !lower && !(c >= '0' && c <= '9')) return std::nullopt;
    value = value * 16 + (upper ? c - 'A' + 10 : lower ? c - 'a' + 10 : c - '0');
  }
  return static_cast<uint8_t>(value);
}

Vocabulary::Vocabulary(std::vector<std::string> texts, std::vector<TokenType> types,
                       const std::string& source)
    : texts_(std::move(texts)), types_(std::move(types)) {
  COPPICE_CHECK(texts_.size() == types_.size());
  if (texts_.empty() || texts_.size() > static_cast<size_t>(limits::kMaxVocab)) {
    throw Error("[tokenizer] {}: {} tokens, expected 1 to {}", source, texts_.size(), limits::kMaxVocab);
  }
  ids_.reserve(texts_.size());
  for (int32_t id = 0; id < size(); ++id) {
    longest_ = std::max(longest_, text(id).size());
    ids_[text(id)] = id;
    if (type(id) != TokenType::kByte) continue;
    const std::optional<uint8_t> byte = ParseByteToken(text(id));
    if (!byte) {
      throw Error("[tokenizer] {}: token {} is marked as a byte, but '{}' is not <0x00> to <0xFF>", source,
                  id, text(id));
    }
    byte_tokens_[*byte] = id;
  }
}

std::optional<int32_t> Vocabulary::Find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional<int32_t>(found->second);
}

int32_t Vocabulary::FindOrdinary(std::string_view text) const {
  if (text.size() > longest_) return -1;  // hashing a long text for every candidate pair would not be linear
  const auto found = ids_.find(text);
  if (found == ids_.end()) return -1;
  const TokenType kind = type(found->second);
  const bool ordinary =
      kind == TokenType::kNormal || kind == TokenType::kUserDefined || kind == TokenType::kUnused;
  return ordinary ? found->second : -1;
}

}  // namespace coppice
