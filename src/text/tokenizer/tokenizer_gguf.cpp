// Tokenizers from tokenizer.ggml.* keys: "llama" (SentencePiece BPE), "gpt2" (BPE, of bytes unless "pre" says
// otherwise) and "gemma4" (the same with its own "pre"). Key names:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; "pre" and the add_* keys as in llama.cpp.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "formats/printable.h"
#include "text/tokenizer/end_tokens.h"
#include "text/tokenizer/pipeline.h"

namespace coppice {
namespace {

constexpr int64_t kNoToken = 0xFFFFFFFF;  // some converters write it for a missing id

std::optional<int32_t> TokenId(const GgufMetadata& metadata, const std::string& key,
                               const Vocabulary& vocabulary) {
  const std::optional<int64_t> id = metadata.Integer(key);
  if (!id || *id == kNoToken || *id == -1) return std::nullopt;
  if (!vocabulary.Contains(*id)) {
    throw Error("[tokenizer] {}: {} is {}, but there are {} tokens", metadata.path(), key, *id,
                vocabulary.size());
  }
  return static_cast<int32_t>(*id);
}

// Whether a name such as <0x0A> makes a token a byte token.
enum class ByteNames {
  kNone,
  kUntyped,  // in a file without types
  kAlways,  // also where the file calls it normal: some converters do for BPE, and llama.cpp goes by the name
};

// For files without types, which some small tools write: byte tokens are recognised by their names.
std::vector<TokenType> TypesByName(const std::vector<std::string>& texts) {
  std::vector<TokenType> types;
  for (const std::string& text : texts)
    types.push_back(ParseByteToken(text) ? TokenType::kByte : TokenType::kNormal);
  return types;
}

// `texts` with the types that the file gives them, but for tokens that end an answer.
std::vector<TokenType> ReadTypes(const GgufMetadata& metadata, const std::vector<std::string>& texts,
                                 ByteNames bytes) {
  const std::optional<std::vector<int64_t>> stored = metadata.Integers("tokenizer.ggml.token_type");
  std::vector<TokenType> types = bytes == ByteNames::kNone
                                     ? std::vector<TokenType>(texts.size(), TokenType::kNormal)
                                     : TypesByName(texts);
  if (stored && stored->size() != texts.size()) {
    throw Error("[tokenizer] {}: tokenizer.ggml.token_type has {} entries for {} tokens", metadata.path(),
                stored->size(), texts.size());
  }
  for (size_t i = 0; stored && i < stored->size(); ++i) {
    const int64_t type = (*stored)[i];
    if (type < 0 || type > 6) {
      throw Error("[tokenizer] {}: tokenizer.ggml.token_type of token {} is {}, expected 1 to 6",
                  metadata.path(), i, type);
    }
    const bool known_byte = bytes == ByteNames::kAlways && types[i] == TokenType::kByte && type <= 1;
    if (!known_byte) types[i] = type == 0 ? TokenType::kNormal : static_cast<TokenType>(type);
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    if (IsEndName(texts[i])) types[i] = TokenType::kControl;
  }
  return types;
}

std::vector<float> ReadScores(const GgufMetadata& metadata, size_t tokens) {
  const std::optional<std::vector<double>> stored = metadata.Floats("tokenizer.ggml.scores");
  if (!stored) return std::vector<float>(tokens, 0.0f);
  if (stored->size() != tokens) {
    throw Error("[tokenizer] {}: tokenizer.ggml.scores has {} entries for {} tokens", metadata.path(),
                stored->size(), tokens);
  }
  std::vector<float> scores;
  scores.reserve(tokens);
  for (const double score : *stored) {
    if (score != score) throw Error("[tokenizer] {}: score {} is NaN", metadata.path(), scores.size());
    scores.push_back(static_cast<float>(score));
  }
  return scores;
}

std::vector<std::pair<std::string, std::string>> ReadMerges(const GgufMetadata& metadata) {
  const std::vector<std::string>* stored = metadata.Strings("tokenizer.ggml.merges");
  if (stored == nullptr) throw Error("[tokenizer] {}: tokenizer.ggml.merges is missing", metadata.path());
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(stored->size());
  for (const std::string& merge : *stored) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos) {
      throw Error("[tokenizer] {}: merge {} ('{}') is not two tokens", metadata.path(), merges.size(), merge);
    }
    merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return merges;
}

void SetSpm(const GgufMetadata& metadata, TokenizerParts& parts) {
  const Vocabulary& vocabulary = *parts.vocabulary;
  // SentencePiece's default ids, for files without them.
  const auto id_or = [&](const char* name, int32_t fallback) -> std::optional<int32_t> {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    if (metadata.Has(key)) return TokenId(metadata, key, vocabulary);
    return vocabulary.Contains(fallback) ? std::optional<int32_t>(fallback) : std::nullopt;
  };
  parts.kind = "spm";
  parts.bos = id_or("bos", 1);
  parts.eos = id_or("eos", 2);
  SetSpmText(parts, metadata.Bool("tokenizer.ggml.add_space_prefix").value_or(true),
             metadata.Bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false));
  const std::vector<float> scores = ReadScores(metadata, static_cast<size_t>(vocabulary.size()));
  parts.merger = MakeSpmMerger(vocabulary, scores, id_or("unknown", 0).value_or(-1));
}

// The pre-tokenizer of a BPE model; where its name is missing or unknown, "default" and a note in `parts`.
GgufPreTokenizer ReadPreTokenizer(const GgufMetadata& metadata, TokenizerParts& parts) {
  // Most converters call a model that they do not know "default", and old ones write no name.
  const bool gemma = metadata.String("tokenizer.ggml.model") == "gemma4";
  const std::string name = gemma ? "gemma4" : metadata.String("tokenizer.ggml.pre").value_or("");
  if (std::optional<GgufPreTokenizer> pre = PreTokenizerFromGgufName(name)) return std::move(*pre);
  parts.note = fmt::format(
      "{}: tokenizer.ggml.pre is {}, so texts are split as for \"default\": GPT-2's way, with punctuation "
      "and "
      "digits apart; answers may be worse than the model's",
      metadata.path(), name.empty() ? "missing" : fmt::format("\"{}\", which is not known", Printable(name)));
  return DefaultGgufPreTokenizer();
}

void SetBpe(const GgufMetadata& metadata, GgufPreTokenizer pre, TokenizerParts& parts) {
  const Vocabulary& vocabulary = *parts.vocabulary;
  parts.kind = "bpe";
  parts.byte_level = pre.text == GgufText::kBytes;
  parts.bos = TokenId(metadata, "tokenizer.ggml.bos_token_id", vocabulary);
  parts.eos = TokenId(metadata, "tokenizer.ggml.eos_token_id", vocabulary);
  parts.pre_tokenizer = std::move(pre.pre_tokenizer);
  if (parts.byte_level) {
    parts.decoder = MakeByteLevelDecoder();
  } else {
    SetSpmText(parts, false, false);
  }
  const BpeOptions options{
      .byte_level = parts.byte_level,
      .byte_fallback = !parts.byte_level,
      .whole = pre.whole,
      .unknown = TokenId(metadata, "tokenizer.ggml.unknown_token_id", vocabulary).value_or(-1),
  };
  parts.merger = MakeBpeMerger(vocabulary, ReadMerges(metadata), options, metadata.path());
}

// Further ends, from a list that Ollama's converter writes. Ids outside the vocabulary stand for nothing.
void AddEosIds(const GgufMetadata& metadata, TokenizerParts& parts) {
  for (const int64_t id :
       metadata.Integers("tokenizer.ggml.eos_token_ids").value_or(std::vector<int64_t>())) {
    if (!parts.vocabulary->Contains(id)) continue;
    parts.ends.push_back(static_cast<int32_t>(id));
    if (!parts.eos) parts.eos = static_cast<int32_t>(id);
  }
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::FromGguf(const GgufMetadata& metadata) {
  const std::vector<std::string>* texts = metadata.Strings("tokenizer.ggml.tokens");
  const std::optional<std::string> model = metadata.String("tokenizer.ggml.model");
  if (texts == nullptr && (!model || *model == "no_vocab" || *model == "none")) return nullptr;
  if (texts == nullptr) throw Error("[tokenizer] {}: tokenizer.ggml.tokens is missing", metadata.path());
  if (!model || (*model != "llama" && *model != "gpt2" && *model != "gemma4")) {
    throw Error(
        "[tokenizer] {}: tokenizer.ggml.model '{}' is not supported; expected 'llama', 'gpt2' or 'gemma4'",
        metadata.path(), model.value_or(""));
  }
  const bool spm = *model == "llama";
  TokenizerParts parts;
  parts.source = metadata.path();
  GgufPreTokenizer pre;
  if (!spm) pre = ReadPreTokenizer(metadata, parts);
  const GgufBos add_bos = spm ? GgufBos::kYes : pre.add_bos;
  const ByteNames bytes = spm                                 ? ByteNames::kUntyped
                          : pre.text == GgufText::kCharacters ? ByteNames::kAlways
                                                              : ByteNames::kNone;
  parts.vocabulary =
      std::make_unique<Vocabulary>(*texts, ReadTypes(metadata, *texts, bytes), metadata.path());
  parts.raw_added = MatcherFromTypes(*parts.vocabulary, spm, metadata.path());
  if (spm) {
    SetSpm(metadata, parts);
  } else {
    SetBpe(metadata, std::move(pre), parts);
  }
  const bool with_bos = metadata.Bool("tokenizer.ggml.add_bos_token").value_or(add_bos == GgufBos::kYes);
  if ((with_bos || add_bos == GgufBos::kAlways) && parts.bos) parts.prefix = {*parts.bos};
  if (metadata.Bool("tokenizer.ggml.add_eos_token").value_or(false) && parts.eos) parts.suffix = {*parts.eos};
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const std::optional<int32_t> id = TokenId(metadata, key, *parts.vocabulary))
      parts.ends.push_back(*id);
  }
  AddEosIds(metadata, parts);
  parts.chat_template = metadata.String("tokenizer.chat_template").value_or("");
  parts.tool_template = metadata.String("tokenizer.chat_template.tool_use").value_or("");
  return MakePipelineTokenizer(std::move(parts));
}

}  // namespace coppice
