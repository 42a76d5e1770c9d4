#include "text/tokenizer/encoder_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "base/mmap.h"
#include "formats/json.h"
#include "formats/printable.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/text_json.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr size_t kMaxMissingIds = 65536;  // ids without a text, beside as many as there are tokens

// The part of a (possibly nested) normalizer or pre-tokenizer that has the type; null if none has.
const json* PartOfType(const json* part, std::string_view list, std::string_view type) {
  if (part == nullptr || !part->is_object()) return nullptr;
  const json* own = FindField(*part, "type");
  if (own != nullptr && own->is_string() && own->get_ref<const std::string&>() == type) return part;
  const json* parts = FindField(*part, list);
  if (parts == nullptr || !parts->is_array()) return nullptr;
  for (const json& inner : *parts) {
    if (const json* found = PartOfType(&inner, list, type)) return found;
  }
  return nullptr;
}

void RefuseLowercase(bool lowercase, const std::string& source) {
  if (lowercase)
    throw Error("[tokenizer] {}: a WordPiece that lowers case is not supported: only cased models", source);
}

// The texts of an object {text: id} by id. Ids without a text have an empty one.
std::vector<std::string> TokensById(const json& vocab, const std::string& source) {
  std::vector<std::string> tokens;
  for (const auto& [text, value] : vocab.items()) {
    const auto id = static_cast<size_t>(TokenIdFrom(value, "a token's id", source));
    // A small file cannot make a large table.
    if (id >= 2 * vocab.size() + kMaxMissingIds)
      throw Error("[tokenizer] {}: {} tokens, and one has the id {}", source, vocab.size(), id);
    tokens.resize(std::max(tokens.size(), id + 1));
    if (!tokens[id].empty())
      throw Error("[tokenizer] {}: id {} is given to '{}' and to '{}'", source, id, Printable(tokens[id]),
                  Printable(text));
    tokens[id] = text;
  }
  return tokens;
}

std::unique_ptr<EncoderTokenizer> WordPieceOf(const json& file, const json& model,
                                              const std::string& source) {
  const json* normalizer = PartOfType(FindField(file, "normalizer"), "normalizers", "BertNormalizer");
  if (normalizer == nullptr ||
      PartOfType(FindField(file, "pre_tokenizer"), "pretokenizers", "BertPreTokenizer") == nullptr)
    throw Error("[tokenizer] {}: a WordPiece without BertNormalizer and BertPreTokenizer", source);
  RefuseLowercase(BoolField(*normalizer, "lowercase", source, true), source);
  if (BoolField(*normalizer, "strip_accents", source, false))
    throw Error("[tokenizer] {}: strip_accents is not supported", source);
  if (StringField(model, "continuing_subword_prefix", source, "##") != "##" ||
      StringField(model, "unk_token", source, "[UNK]") != "[UNK]")
    throw Error("[tokenizer] {}: a WordPiece with other marks than ## and [UNK]", source);
  const json* vocab = FindField(model, "vocab");
  if (vocab == nullptr || !vocab->is_object() || vocab->empty())
    throw Error("[tokenizer] {}: vocab is no object of tokens", source);
  WordPieceParts parts{.tokens = TokensById(*vocab, source), .source = source};
  parts.split_chinese = BoolField(*normalizer, "handle_chinese_chars", source, true);
  return MakeWordPiece(std::move(parts));
}

std::unique_ptr<EncoderTokenizer> UnigramOf(const json& file, const json& model, const std::string& source) {
  const json* space = PartOfType(FindField(file, "pre_tokenizer"), "pretokenizers", "Metaspace");
  if (space == nullptr) throw Error("[tokenizer] {}: a Unigram without Metaspace", source);
  UnigramParts parts;
  parts.source = source;
  const json* unknown = FindField(model, "unk_id");
  if (unknown == nullptr) throw Error("[tokenizer] {}: a Unigram without unk_id", source);
  parts.unknown = TokenIdFrom(*unknown, "unk_id", source);
  for (const json& entry : ArrayField(model, "vocab", source)) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      throw Error("[tokenizer] {}: vocab has an entry that is not [text, log probability]", source);
    parts.tokens.emplace_back(entry[0].get<std::string>(), entry[1].get<double>());
  }
  if (parts.tokens.size() > static_cast<size_t>(limits::kMaxVocab))
    throw Error("[tokenizer] {}: {} tokens, at most {}", source, parts.tokens.size(), limits::kMaxVocab);
  if (const json* precompiled = PartOfType(FindField(file, "normalizer"), "normalizers", "Precompiled"))
    parts.charsmap = FromBase64(StringField(*precompiled, "precompiled_charsmap", source), source);
  return MakeUnigram(std::move(parts));
}

std::unique_ptr<EncoderTokenizer> FromVocabText(const std::string& path, const std::string& config) {
  const MappedFile file(path);
  if (file.size() > limits::kMaxJsonFileBytes)
    throw Error("[tokenizer] {}: {} bytes, at most {}", path, file.size(), limits::kMaxJsonFileBytes);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  WordPieceParts parts{.tokens = {}, .source = path};
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (parts.tokens.size() == static_cast<size_t>(limits::kMaxVocab))
      throw Error("[tokenizer] {}: more than {} lines", path, limits::kMaxVocab);
    std::string_view line = rest.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    parts.tokens.emplace_back(line);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::error_code ignored;
  const bool has_config = std::filesystem::is_regular_file(config, ignored);
  RefuseLowercase(!has_config || BoolField(ReadJsonFile(config), "do_lower_case", config, true), path);
  return MakeWordPiece(std::move(parts));
}

}  // namespace

std::unique_ptr<EncoderTokenizer> EncoderTokenizer::FromHfFolder(const std::string& path) {
  const auto file = [&](const char* name) { return (std::filesystem::path(path) / name).string(); };
  const auto has = [](const std::string& name) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(name, ignored);
  };
  const std::string source = file("tokenizer.json");
  if (!has(source)) {
    if (has(file("vocab.txt"))) return FromVocabText(file("vocab.txt"), file("tokenizer_config.json"));
    throw Error("[tokenizer] {}: has neither tokenizer.json nor vocab.txt", path);
  }
  const json whole = ReadJsonFile(source);
  const json* model = FindField(whole, "model");
  if (model == nullptr || !model->is_object()) throw Error("[tokenizer] {}: has no model", source);
  const std::string type =
      StringField(*model, "type", source, model->contains("unk_id") ? "Unigram" : "WordPiece");
  if (type == "WordPiece") return WordPieceOf(whole, *model, source);
  if (type == "Unigram") return UnigramOf(whole, *model, source);
  throw Error("[tokenizer] {}: model '{}' is no WordPiece or Unigram", source, Printable(type));
}

}  // namespace coppice
