// What the tokenizer files of a Hugging Face folder share. For tokenizer_hf.cpp and tokenizer_json.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/pipeline.h"

namespace coppice {

using MergeList = std::vector<std::pair<std::string, std::string>>;

// An entry of "added_tokens" or "added_tokens_decoder".
struct HfAddedToken {
  AddedToken token;
  bool normalized = false;  // looked for in the normalised text
};

// Tokens while they are gathered from several files.
class HfTokens {
 public:
  explicit HfTokens(std::string source) : source_(std::move(source)) {}

  void Add(int32_t id, const std::string& text, TokenType type);
  // A text that is a token already keeps its id, which replaces the one in `added`.
  void AddAdded(HfAddedToken& added);
  bool Contains(const std::string& text) const { return entries_of_.contains(text); }
  int32_t IdOf(const std::string& text) const { return entries_[entries_of_.at(text)].id; }
  void SetType(const std::string& text, TokenType type) { entries_[entries_of_.at(text)].type = type; }

  // Ids that nobody named become unused tokens without text. Throws Error where two texts have one id, and
  // where ids reach so far beyond the number of tokens that the table would be mostly such.
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

// `object` has content, special, lstrip, rstrip, single_word, normalized.
HfAddedToken AddedTokenFromJson(int32_t id, const nlohmann::json& object, const std::string& source);

// "a b". Throws Error for anything else; `rank` names the merge.
std::pair<std::string, std::string> MergeFromText(std::string_view merge, size_t rank,
                                                  const std::string& source);

// Both matchers of `parts`, whose normalizer is set.
void SetAddedTokens(const std::vector<HfAddedToken>& added, TokenizerParts& parts);

// From the contents of a tokenizer.json: all but bos, eos, ends and the chat template, which other files
// have.
TokenizerParts PartsFromTokenizerJson(const nlohmann::json& json, const std::string& source);

}  // namespace coppice
