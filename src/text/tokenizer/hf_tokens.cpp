#include "text/tokenizer/hf_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/limits.h"
#include "text/tokenizer/end_tokens.h"
#include "text/tokenizer/text_json.h"

namespace coppice {
namespace {

constexpr size_t kMaxHoles = 65536;

}  // namespace

void HfTokens::Add(int32_t id, const std::string& text, TokenType type) {
  entries_of_[text] = entries_.size();
  entries_.push_back({id, text, type});
}

void HfTokens::AddAdded(HfAddedToken& added) {
  const TokenType type = added.token.special ? TokenType::kControl : TokenType::kUserDefined;
  if (Contains(added.token.content)) {
    added.token.id = IdOf(added.token.content);
    SetType(added.token.content, type);
  } else {
    Add(added.token.id, added.token.content, type);
  }
}

std::unique_ptr<const Vocabulary> HfTokens::Build() const {
  size_t size = 0;
  for (const Entry& entry : entries_) size = std::max(size, static_cast<size_t>(entry.id) + 1);
  if (size > 2 * entries_.size() + kMaxHoles) {
    throw Error("[tokenizer] {}: {} tokens with ids up to {}", source_, entries_.size(), size - 1);
  }
  std::vector<std::string> texts(size);
  std::vector<TokenType> types(size, TokenType::kUnused);
  std::vector<bool> taken(size, false);
  for (const Entry& entry : entries_) {
    const auto index = static_cast<size_t>(entry.id);
    if (taken[index] && texts[index] != entry.text) {
      throw Error("[tokenizer] {}: id {} is given to '{}' and to '{}'", source_, entry.id, texts[index],
                  entry.text);
    }
    texts[index] = entry.text;
    types[index] = entry.type;
    taken[index] = true;
  }
  return std::make_unique<Vocabulary>(std::move(texts), std::move(types), source_);
}

HfAddedToken AddedTokenFromJson(int32_t id, const nlohmann::json& object, const std::string& source) {
  HfAddedToken added;
  added.token.id = id;
  added.token.content = StringField(object, "content", source);
  added.token.special = BoolField(object, "special", source, false) || IsEndName(added.token.content);
  added.token.lstrip = BoolField(object, "lstrip", source, false);
  added.token.rstrip = BoolField(object, "rstrip", source, false);
  added.token.single_word = BoolField(object, "single_word", source, false);
  added.normalized = BoolField(object, "normalized", source, !added.token.special);
  return added;
}

std::pair<std::string, std::string> MergeFromText(std::string_view merge, size_t rank,
                                                  const std::string& source) {
  const size_t space = merge.find(' ', 1);
  if (space == std::string_view::npos) {
    throw Error("[tokenizer] {}: merge {} ('{}') is not two tokens", source, rank, merge);
  }
  return {std::string(merge.substr(0, space)), std::string(merge.substr(space + 1))};
}

void SetAddedTokens(const std::vector<HfAddedToken>& added, TokenizerParts& parts) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  if (added.size() > static_cast<size_t>(limits::kMaxAddedTokens)) {
    throw Error("[tokenizer] {}: {} added tokens, at most {} are supported", parts.source, added.size(),
                limits::kMaxAddedTokens);
  }
  for (const HfAddedToken& one : added) {
    if (one.token.content.empty()) continue;  // Hugging Face's tokenizers ignores these too
    AddedToken token = one.token;
    if (one.normalized && parts.normalizer != nullptr) token.content = parts.normalizer->Apply(token.content);
    (one.normalized ? normalized : raw).push_back(std::move(token));
  }
  parts.raw_added = AddedTokenMatcher(std::move(raw), parts.source);
  parts.normalized_added = AddedTokenMatcher(std::move(normalized), parts.source);
}

}  // namespace coppice
