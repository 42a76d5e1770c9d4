// The tokens of a tokenizer: their stored texts and types, and the ids of texts.
#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// The values of tokenizer.ggml.token_type and of SentencePiece's Type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  Vocabulary(const Vocabulary&) = delete;  // ids_ refers to texts_
  Vocabulary& operator=(const Vocabulary&) = delete;

  // The id of a token is its position. `source` names the file in messages. Throws Error for more than
  // limits::kMaxVocab tokens, and for a byte token other than <0x00> to <0xFF>. Of equal texts the last one
  // gets the id.
  Vocabulary(std::vector<std::string> texts, std::vector<TokenType> types, const std::string& source);

  int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  const std::string& text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  TokenType type(int32_t id) const { return types_[static_cast<size_t>(id)]; }
  bool Contains(int64_t id) const { return id >= 0 && id < size(); }
  size_t longest() const { return longest_; }  // bytes of the longest text

  // Any token with this text.
  std::optional<int32_t> Find(std::string_view text) const;
  // A token for ordinary text with this text: not control, unknown or byte. -1 if there is none.
  int32_t FindOrdinary(std::string_view text) const;
  // The byte token of `byte`; -1 if there is none.
  int32_t ByteToken(uint8_t byte) const { return byte_tokens_[byte]; }

 private:
  std::vector<std::string> texts_;
  std::vector<TokenType> types_;
  boost::unordered_flat_map<std::string_view, int32_t, std::hash<std::string_view>> ids_;
  std::vector<int32_t> byte_tokens_ = std::vector<int32_t>(256, -1);
  size_t longest_ = 0;
};

// "<0x4A>" -> 0x4A; nullopt for anything else.
std::optional<uint8_t> ParseByteToken(std::string_view text);

}  // namespace coppice
