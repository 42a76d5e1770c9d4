// Shared by the readers of the tokenizer files of a Hugging Face folder: tokenizer_hf.cpp and
// tokenizer_json.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer/pipeline.h"

namespace coppice {

using MergeList = std::vector<std::pair<std::string, std::string>>;

// An entry of "added_tokens" or "added_tokens_decoder".
struct HfAddedToken {
  AddedToken token;
  bool normalized = false;  // matched in the normalised text
};

// Collects tokens from several files.
class HfTokens {
 public:
  explicit HfTokens(std::string source) : source_(std::move(source)) {}

  void Add(int32_t id, const std::string& text, TokenType type);
  // If the text is a token already, that token keeps its id, which replaces the id in `added`.
  void AddAdded(HfAddedToken& added);
  bool Contains(const std::string& text) const { return entries_of_.contains(text); }
  int32_t IdOf(const std::string& text) const { return entries_[entries_of_.at(text)].id; }
  void SetType(const std::string& text, TokenType type) { entries_[entries_of_.at(text)].type = type; }

  // Ids without a text become unused tokens. Throws Error if two texts have the same id, and if ids exceed
  // the number of tokens so far that most of the table would be unused.
  std::unique_ptr<const Vocabulary> Build() const;

 private:
  struct Entry {
    int32_t id;
    std::string text;
    TokenType type;
  };
  std::string source_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> entries_of_;
};

// `object` has the fields content, special, lstrip, rstrip, single_word and normalized.
HfAddedToken AddedTokenFromJson(int32_t id, const nlohmann::json& object, const std::string& source);

// Splits "a b" into a pair. Throws Error for anything else; `rank` names the merge in messages.
std::pair<std::string, std::string> MergeFromText(std::string_view merge, size_t rank,
                                                  const std::string& source);

// Sets both matchers of `parts`, whose normalizer must be set.
void SetAddedTokens(const std::vector<HfAddedToken>& added, TokenizerParts& parts);

// The tokenizer in a tokenizer.json, without bos, eos, ends and the chat template, which are in other files.
TokenizerParts PartsFromTokenizerJson(const nlohmann::json& json, const std::string& source);

}  // namespace coppice
