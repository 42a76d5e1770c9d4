// Tokenizers of Hugging Face folders. The files present decide the format; tokenizer_config.json and
// generation_config.json add the special tokens and the chat template.
#include <algorithm>
#include <filesystem>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "base/mmap.h"
#include "formats/json.h"
#include "text/tokenizer/hf_tokens.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/text_json.h"

namespace coppice {
namespace {

using nlohmann::json;

struct Folder {
  explicit Folder(const std::string& folder) : path(folder) {}

  std::string File(const char* name) const { return (std::filesystem::path(path) / name).string(); }
  bool Has(const char* name) const {
    std::error_code ignored;
    return std::filesystem::is_regular_file(File(name), ignored);
  }
  // Null JSON if the file is absent.
  json Read(const char* name) const { return Has(name) ? ReadPythonJsonFile(File(name)) : json(); }

  std::string path;
};

std::string ReadText(const std::string& path) {
  const MappedFile file(path);
  if (file.size() > limits::kMaxJsonFileBytes) {
    throw Error("[tokenizer] {}: {} bytes, at most {} are supported", path, file.size(),
                limits::kMaxJsonFileBytes);
  }
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// A special token of tokenizer_config.json: a string, or an object with its content. Empty if absent.
std::string SpecialName(const json& config, std::string_view key, const std::string& source) {
  const json* field = FindField(config, key);
  if (field == nullptr) return "";
  return field->is_object() ? StringField(*field, "content", source) : StringField(config, key, source);
}

std::vector<HfAddedToken> ReadAddedTokens(const Folder& folder, const json& config) {
  std::vector<HfAddedToken> added;
  const std::string source = folder.File("tokenizer_config.json");
  if (const json* decoder = FindField(config, "added_tokens_decoder")) {
    for (const auto& [key, object] : decoder->items()) {
      const bool digits =
          !key.empty() && key.size() < 9 && key.find_first_not_of("0123456789") == std::string::npos;
      if (!digits)
        throw Error("[tokenizer] {}: added_tokens_decoder has the key '{}', expected an id", source, key);
      added.push_back(AddedTokenFromJson(TokenIdFrom(json(std::stol(key)), "an added token's id", source),
                                         object, source));
    }
  }
  const std::string other = folder.File("added_tokens.json");
  const json more = folder.Read("added_tokens.json");
  if (more.is_null()) return added;
  std::unordered_set<std::string> known;
  for (const HfAddedToken& one : added) known.insert(one.token.content);
  for (const auto& [text, id] : more.items()) {
    if (known.contains(text)) continue;
    HfAddedToken token{
        {.id = TokenIdFrom(id, "an added token's id", other), .content = text, .special = true}, false};
    added.push_back(std::move(token));
  }
  return added;
}

// Turns tokens that tokenizer_config.json names as special into control tokens.
void MarkSpecialNames(const json& config, const std::string& source, HfTokens& tokens,
                      std::vector<HfAddedToken>& added) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    const std::string name = SpecialName(config, key, source);
    const auto same = [&](const HfAddedToken& one) { return one.token.content == name; };
    if (name.empty() || !tokens.Contains(name) || std::any_of(added.begin(), added.end(), same)) continue;
    added.push_back({{.id = tokens.IdOf(name), .content = name, .special = true}, false});
    tokens.SetType(name, TokenType::kControl);
  }
}

MergeList ReadMergesFile(const std::string& path) {
  MergeList merges;
  const std::string text = ReadText(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool heading = begin == 0 && line.starts_with("#version");
    if (!line.empty() && !heading) merges.push_back(MergeFromText(line, merges.size(), path));
    begin = end + 1;
  }
  return merges;
}

TokenizerParts PartsFromVocabJson(const Folder& folder, const json& config) {
  const std::string source = folder.File("vocab.json");
  const std::string config_source = folder.File("tokenizer_config.json");
  std::string type = StringField(config, "tokenizer_class", config_source, "GPT2Tokenizer");
  if (type.ends_with("Fast")) type.resize(type.size() - 4);
  if (type != "Qwen2Tokenizer" && type != "GPT2Tokenizer") {
    throw Error("[tokenizer] {}: tokenizer_class '{}' is not supported without a tokenizer.json",
                config_source, type);
  }
  const bool qwen = type == "Qwen2Tokenizer";
  TokenizerParts parts;
  parts.kind = "bpe";
  parts.source = source;
  parts.byte_level = true;
  if (qwen) parts.normalizer = MakeNfc();
  std::vector<std::unique_ptr<PreTokenizer>> pieces;
  pieces.push_back(MakeByteLevel(BoolField(config, "add_prefix_space", config_source, false), false));
  pieces.push_back(MakeKnownSplit(qwen ? kQwen2Regex : kGpt2Regex));
  parts.pre_tokenizer = MakePreTokenizerSequence(std::move(pieces));
  parts.decoder = MakeByteLevelDecoder();

  const json vocab = ReadJsonFile(source);
  if (!vocab.is_object()) throw Error("[tokenizer] {}: must be an object of token ids", source);
  HfTokens tokens(source);
  for (const auto& [text, id] : vocab.items()) {
    tokens.Add(TokenIdFrom(id, "a token id", source), text, TokenType::kNormal);
  }
  std::vector<HfAddedToken> added = ReadAddedTokens(folder, config);
  for (HfAddedToken& one : added) tokens.AddAdded(one);
  MarkSpecialNames(config, config_source, tokens, added);
  parts.vocabulary = tokens.Build();
  const std::string merges = folder.File("merges.txt");
  parts.merger = MakeBpeMerger(*parts.vocabulary, ReadMergesFile(merges), {.byte_level = true}, merges);
  SetAddedTokens(added, parts);
  return parts;
}

std::optional<int32_t> CheckedId(int64_t id, const char* what, const TokenizerParts& parts) {
  if (id == -1) return std::nullopt;
  if (!parts.vocabulary->Contains(id)) {
    throw Error("[tokenizer] {}: {} is {}, but there are {} tokens", parts.source, what, id,
                parts.vocabulary->size());
  }
  return static_cast<int32_t>(id);
}

TokenizerParts PartsFromSentencePiece(const Folder& folder, const json& config) {
  TokenizerParts parts;
  parts.kind = "spm";
  parts.source = folder.File("tokenizer.model");
  SentencePieceModel model = ParseSentencePiece(MappedFile(parts.source).bytes(), parts.source);
  HfTokens tokens(parts.source);
  for (size_t i = 0; i < model.texts.size(); ++i) {
    tokens.Add(static_cast<int32_t>(i), model.texts[i], model.types[i]);
  }
  // Most entries repeat pieces of the model with their types; the rest extend it.
  for (HfAddedToken& one : ReadAddedTokens(folder, config)) {
    if (!tokens.Contains(one.token.content)) tokens.AddAdded(one);
  }
  parts.vocabulary = tokens.Build();
  parts.raw_added = MatcherFromTypes(*parts.vocabulary, true, parts.source);
  SetSpmText(parts, model.add_space_prefix, model.trim_spaces);
  parts.unknown_surface = model.unknown_surface;
  parts.bos = CheckedId(model.bos, "bos_id", parts);
  parts.eos = CheckedId(model.eos, "eos_id", parts);
  model.scores.resize(static_cast<size_t>(parts.vocabulary->size()), 0.0f);
  parts.merger = MakeSpmMerger(*parts.vocabulary, std::move(model.scores),
                               CheckedId(model.unknown, "unk_id", parts).value_or(-1));
  if (parts.bos) parts.prefix = {*parts.bos};
  return parts;
}

// The ids of "eos_token_id", a number or a list. They may exceed the tokenizer's vocabulary, because models
// can have more rows than tokens.
std::vector<int32_t> EosIds(const json& config, const std::string& source) {
  std::vector<int32_t> ids;
  const json* field = FindField(config, "eos_token_id");
  if (field == nullptr) return ids;
  if (!field->is_array()) return {TokenIdFrom(*field, "eos_token_id", source)};
  for (const json& id : *field) ids.push_back(TokenIdFrom(id, "eos_token_id", source));
  return ids;
}

void SetSpecialTokens(const Folder& folder, const json& config, TokenizerParts& parts) {
  const std::string source = folder.File("tokenizer_config.json");
  const auto by_name = [&](const char* key, std::optional<int32_t>& id) {
    const std::string name = SpecialName(config, key, source);
    if (!name.empty()) id = parts.vocabulary->Find(name);
  };
  by_name("bos_token", parts.bos);
  by_name("eos_token", parts.eos);

  const json model = folder.Read("config.json");
  if (const json* bos = FindField(model, "bos_token_id"); bos != nullptr && config.is_null() && !parts.bos) {
    const std::string model_source = folder.File("config.json");
    const int32_t id = TokenIdFrom(*bos, "bos_token_id", model_source);
    parts.bos = CheckedId(id, "bos_token_id of config.json", parts);
  }
  const json generation = folder.Read("generation_config.json");
  for (const auto& [file, name] :
       {std::pair{&generation, "generation_config.json"}, {&model, "config.json"}}) {
    for (const int32_t id : EosIds(*file, folder.File(name))) {
      parts.ends.push_back(id);
      if (!parts.eos && parts.vocabulary->Contains(id)) parts.eos = id;
    }
  }

  // Only Llama's and Gemma's classes use these fields; for others, the post-processor of tokenizer.json
  // decides.
  const std::string type = StringField(config, "tokenizer_class", source, "");
  const bool honoured =
      type.starts_with("Llama") || type.starts_with("CodeLlama") || type.starts_with("Gemma");
  if (!honoured && parts.kind != "spm") return;
  if (FindField(config, "add_bos_token") != nullptr) {
    parts.prefix.clear();
    if (BoolField(config, "add_bos_token", source, true) && parts.bos) parts.prefix = {*parts.bos};
  }
  if (FindField(config, "add_eos_token") != nullptr) {
    parts.suffix.clear();
    if (BoolField(config, "add_eos_token", source, false) && parts.eos) parts.suffix = {*parts.eos};
  }
}

// The template named `name` of tokenizer_config.json, whose chat_template is a string, which is the default
// one, or a list of {"name", "template"}. Empty if there is none.
std::string NamedTemplate(const json& config, std::string_view name, const std::string& source) {
  const json* field = FindField(config, "chat_template");
  if (field == nullptr) return "";
  if (!field->is_array()) return name == "default" ? StringField(config, "chat_template", source) : "";
  for (const json& named : *field) {
    if (StringField(named, "name", source) == name) return StringField(named, "template", source);
  }
  return "";
}

// Files with templates take precedence over tokenizer_config.json, as in transformers.
void ReadChatTemplates(const Folder& folder, const json& config, TokenizerParts& parts) {
  constexpr const char* kDefault = "chat_template.jinja";
  constexpr const char* kToolUse = "additional_chat_templates/tool_use.jinja";
  const bool has_files = folder.Has(kDefault) || folder.Has(kToolUse);
  const std::string source = folder.File("tokenizer_config.json");
  const auto read = [&](const char* file, std::string_view name) {
    if (folder.Has(file)) return ReadText(folder.File(file));
    return has_files && name != "default" ? std::string() : NamedTemplate(config, name, source);
  };
  parts.chat_template = read(kDefault, "default");
  parts.tool_template = read(kToolUse, "tool_use");
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::FromHfFolder(const std::string& path) {
  const Folder folder(path);
  const json config = folder.Read("tokenizer_config.json");
  TokenizerParts parts;
  if (folder.Has("tokenizer.json")) {
    const std::string file = folder.File("tokenizer.json");
    parts = PartsFromTokenizerJson(ReadJsonFile(file), file);
  } else if (folder.Has("vocab.json") && folder.Has("merges.txt")) {
    parts = PartsFromVocabJson(folder, config);
  } else if (folder.Has("tokenizer.model")) {
    parts = PartsFromSentencePiece(folder, config);
  } else {
    return nullptr;
  }
  SetSpecialTokens(folder, config, parts);
  ReadChatTemplates(folder, config, parts);
  return MakePipelineTokenizer(std::move(parts));
}

}  // namespace coppice
