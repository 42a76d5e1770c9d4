// tokenizer.json: the serialised pipeline of Hugging Face's tokenizers library, with a BPE model.
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "text/tokenizer/hf_tokens.h"
#include "text/tokenizer/text_json.h"

namespace coppice {
namespace {

using nlohmann::json;

const json& NullJson() {
  static const json null;
  return null;
}

const json& FieldOrNull(const json& object, std::string_view key) {
  const json* field = FindField(object, key);
  return field == nullptr ? NullJson() : *field;
}

void CheckModel(const json& model, const std::string& source) {
  const std::string type = StringField(model, "type", source, "BPE");  // files from before 2020 omit it
  if (type != "BPE") throw Error("[tokenizer] {}: model '{}' is not supported; expected 'BPE'", source, type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!StringField(model, key, source, "").empty())
      throw Error("[tokenizer] {}: '{}' is not supported", source, key);
  }
}

MergeList ReadMerges(const json& model, const std::string& source) {
  MergeList merges;
  for (const json& merge : ArrayField(model, "merges", source)) {
    if (merge.is_string()) {
      merges.push_back(MergeFromText(merge.get_ref<const std::string&>(), merges.size(), source));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      throw Error("[tokenizer] {}: merge {} is not two tokens", source, merges.size());
    }
  }
  return merges;
}

HfTokens ReadTokens(const json& model, bool byte_fallback, const std::string& source) {
  const json* vocab = FindField(model, "vocab");
  if (vocab == nullptr || !vocab->is_object())
    throw Error("[tokenizer] {}: 'vocab' must be an object", source);
  HfTokens tokens(source);
  for (const auto& [text, id] : vocab->items()) {
    const bool byte = byte_fallback && ParseByteToken(text);
    tokens.Add(TokenIdFrom(id, "a token id", source), text, byte ? TokenType::kByte : TokenType::kNormal);
  }
  return tokens;
}

std::vector<HfAddedToken> ReadAdded(const json& root, const std::string& source) {
  std::vector<HfAddedToken> added;
  if (FindField(root, "added_tokens") == nullptr) return added;
  const json& list = ArrayField(root, "added_tokens", source);
  if (list.size() > static_cast<size_t>(limits::kMaxAddedTokens)) {
    throw Error("[tokenizer] {}: {} added tokens, at most {} are supported", source, list.size(),
                limits::kMaxAddedTokens);
  }
  for (const json& object : list) {
    const int32_t id = TokenIdFrom(FieldOrNull(object, "id"), "the id of an added token", source);
    added.push_back(AddedTokenFromJson(id, object, source));
  }
  return added;
}

// The "single" template of TemplateProcessing: ids before and after the sequence.
void ReadTemplate(const json& object, TokenizerParts& parts) {
  bool after = false;
  const json& specials = FieldOrNull(object, "special_tokens");
  for (const json& item : ArrayField(object, "single", parts.source)) {
    if (FindField(item, "Sequence") != nullptr) {
      after = true;
      continue;
    }
    const std::string name = StringField(FieldOrNull(item, "SpecialToken"), "id", parts.source);
    for (const json& id : ArrayField(FieldOrNull(specials, name), "ids", parts.source)) {
      const int32_t token = TokenIdFrom(id, "an id of post_processor", parts.source);
      if (!parts.vocabulary->Contains(token)) {
        throw Error("[tokenizer] {}: post_processor adds token {}, but there are {} tokens", parts.source,
                    token, parts.vocabulary->size());
      }
      (after ? parts.suffix : parts.prefix).push_back(token);
    }
  }
}

void ReadPostProcessor(const json& object, TokenizerParts& parts) {
  if (object.is_null()) return;
  const std::string type = StringField(object, "type", parts.source);
  if (type == "ByteLevel") return;  // it only changes offsets
  if (type == "TemplateProcessing") return ReadTemplate(object, parts);
  if (type == "Sequence") {
    for (const json& part : ArrayField(object, "processors", parts.source)) ReadPostProcessor(part, parts);
    return;
  }
  throw Error("[tokenizer] {}: post-processor '{}' is not supported", parts.source, type);
}

}  // namespace

TokenizerParts PartsFromTokenizerJson(const json& root, const std::string& source) {
  const json& model = FieldOrNull(root, "model");
  if (!model.is_object()) throw Error("[tokenizer] {}: 'model' must be an object", source);
  CheckModel(model, source);
  TokenizerParts parts;
  parts.kind = "bpe";
  parts.source = source;
  parts.normalizer = NormalizerFromJson(FieldOrNull(root, "normalizer"), source);
  parts.pre_tokenizer = PreTokenizerFromJson(FieldOrNull(root, "pre_tokenizer"), source);
  parts.decoder = DecoderFromJson(FieldOrNull(root, "decoder"), source);
  const bool cut = parts.pre_tokenizer != nullptr;
  const ByteAlphabet alphabet = cut ? parts.pre_tokenizer->Alphabet() : ByteAlphabet::kNone;
  parts.byte_level = alphabet != ByteAlphabet::kNone;

  BpeOptions options{
      .byte_level = alphabet == ByteAlphabet::kImplied,
      .byte_fallback = BoolField(model, "byte_fallback", source, false),
      .fuse_unknown = BoolField(model, "fuse_unk", source, false),
      .whole = BoolField(model, "ignore_merges", source, false) ? WholePieces::kAll : WholePieces::kNone,
  };
  HfTokens tokens = ReadTokens(model, options.byte_fallback, source);
  std::vector<HfAddedToken> added = ReadAdded(root, source);
  for (HfAddedToken& one : added) tokens.AddAdded(one);
  const std::string unknown = StringField(model, "unk_token", source, "");
  if (!unknown.empty()) {
    if (!tokens.Contains(unknown))
      throw Error("[tokenizer] {}: unk_token '{}' is not in the vocabulary", source, unknown);
    options.unknown = tokens.IdOf(unknown);
  }
  parts.vocabulary = tokens.Build();
  parts.merger = MakeBpeMerger(*parts.vocabulary, ReadMerges(model, source), options, source);
  SetAddedTokens(added, parts);
  ReadPostProcessor(FieldOrNull(root, "post_processor"), parts);
  return parts;
}

}  // namespace coppice
