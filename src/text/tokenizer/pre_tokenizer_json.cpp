// Pre-tokenizers from tokenizer.json, and from the names that GGUF uses for them.
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/text_json.h"

namespace coppice {
namespace {

using nlohmann::json;

SplitBehavior BehaviorFromJson(const json& object, const std::string& source) {
  const std::string name = StringField(object, "behavior", source, "Isolated");
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw Error("[tokenizer] {}: split behavior '{}' is not supported", source, name);
}

std::unique_ptr<PreTokenizer> SplitFromJson(const json& object, const std::string& source) {
  const json* pattern = FindField(object, "pattern");
  if (pattern == nullptr) throw Error("[tokenizer] {}: pre-tokenizer 'Split' has no pattern", source);
  const bool is_regex = FindField(*pattern, "Regex") != nullptr;
  const SplitPattern split{StringField(*pattern, is_regex ? "Regex" : "String", source), is_regex};
  if (split.text.empty()) throw Error("[tokenizer] {}: pre-tokenizer 'Split' has an empty pattern", source);
  return MakeSplit(split, BehaviorFromJson(object, source), BoolField(object, "invert", source, false),
                   source);
}

// The meaning of each name in tokenizer.ggml.pre but "default", as in llama.cpp. `digits`: each digit is
// split off first.
// `whole`: a piece that is a token is not merged, and BOS is added unless the file says otherwise.
struct GgufName {
  std::string_view name;
  std::string_view regex;
  bool digits = false;
  bool whole = false;
};

constexpr std::array kGgufNames = std::to_array<GgufName>({
    {"gpt-2", kGpt2Regex},
    {"gpt2", kGpt2Regex},
    {"xgen", kGpt2Regex},
    {"mpt", kGpt2Regex},
    {"olmo", kGpt2Regex},
    {"jais", kGpt2Regex},
    {"phi-2", kGpt2Regex},
    {"gigachat", kGpt2Regex},
    {"a.x-4.0", kGpt2Regex},
    {"mellum", kGpt2Regex},
    {"exaone4", kGpt2Regex},
    {"trillion", kGpt2Regex},
    {"granite-docling", kGpt2Regex},
    {"starcoder", kGpt2Regex, true},
    {"refact", kGpt2Regex, true},
    {"command-r", kGpt2Regex, true},
    {"smollm", kGpt2Regex, true},
    {"codeshell", kGpt2Regex, true},
    {"exaone", kGpt2Regex, true},
    {"minerva-7b", kGpt2Regex, true},
    {"mellum2", kGpt2Regex, true},
    {"llama-bpe", kLlama3Regex, false, true},
    {"llama3", kLlama3Regex, false, true},
    {"llama-v3", kLlama3Regex, false, true},
    {"falcon3", kLlama3Regex, false, true},
    {"falcon-h1", kLlama3Regex, false, true},
    {"midm-2.0", kLlama3Regex, false, true},
    {"lfm2", kLlama3Regex, false, true},
    {"pixtral", kLlama3Regex, false, true},
    {"dbrx", kLlama3Regex},
    {"smaug-bpe", kLlama3Regex},
    {"chatglm-bpe", kLlama3Regex},
    {"glm4", kLlama3Regex},
    {"qwen2", kQwen2Regex},
    {"stablelm2", kQwen2Regex},
    {"deepseek-r1-qwen", kQwen2Regex},
    {"megrez", kQwen2Regex},
    {"hunyuan", kQwen2Regex},
    {"kormo", kQwen2Regex},
    {"solar-open", kQwen2Regex},
    {"grok-2", kQwen2Regex},
    {"tekken", kTekkenRegex, false, true},
    {"gpt-4o", kGpt4oRegex},
    {"llama4", kGpt4oRegex},
    {"kanana2", kGpt4oRegex},
    {"minimax-m2", kGpt4oRegex},
    {"qwen35", kQwen35Regex},
    {"bloom", kBloomRegex},
    {"gpt3-finnish", kBloomRegex},
    {"poro-chat", kBloomRegex},
});

}  // namespace

PrependScheme PrependSchemeFromJson(const json& object, const std::string& source) {
  if (FindField(object, "prepend_scheme") == nullptr) {
    return BoolField(object, "add_prefix_space", source, true) ? PrependScheme::kAlways
                                                               : PrependScheme::kNever;
  }
  const std::string name = StringField(object, "prepend_scheme", source);
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  throw Error("[tokenizer] {}: prepend_scheme '{}' is not supported", source, name);
}

std::unique_ptr<PreTokenizer> PreTokenizerFromJson(const json& object, const std::string& source, bool last) {
  if (object.is_null()) return nullptr;
  const std::string type = StringField(object, "type", source);
  if (type == "Split") return SplitFromJson(object, source);
  if (type == "Digits") return MakeDigits(BoolField(object, "individual_digits", source, false));
  if (type == "Punctuation") return MakePunctuation(BehaviorFromJson(object, source));
  if (type == "ByteLevel") {
    return MakeByteLevel(BoolField(object, "add_prefix_space", source, true),
                         BoolField(object, "use_regex", source, true),
                         last ? ByteAlphabet::kImplied : ByteAlphabet::kWritten);
  }
  if (type == "Metaspace") {
    const std::string replacement = StringField(object, "replacement", source);
    if (replacement.empty())
      throw Error("[tokenizer] {}: pre-tokenizer 'Metaspace' has no replacement", source);
    return MakeMetaspace(replacement, PrependSchemeFromJson(object, source),
                         BoolField(object, "split", source, true));
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    const json& list = ArrayField(object, "pretokenizers", source);
    for (size_t i = 0; i < list.size(); ++i) {
      std::unique_ptr<PreTokenizer> made =
          PreTokenizerFromJson(list[i], source, last && i + 1 == list.size());
      if (made != nullptr) parts.push_back(std::move(made));
    }
    return MakePreTokenizerSequence(std::move(parts));
  }
  throw Error("[tokenizer] {}: pre-tokenizer '{}' is not supported", source, type);
}

GgufPreTokenizer DefaultGgufPreTokenizer() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  for (const std::string_view regex : {kSymbolsRegex, kGpt2Regex, kNumberRegex, kThreeDigitsRegex})
    parts.push_back(MakeKnownSplit(regex));
  parts.push_back(MakeByteLevel(false, false));
  return {MakePreTokenizerSequence(std::move(parts))};
}

std::optional<GgufPreTokenizer> PreTokenizerFromGgufName(std::string_view name) {
  if (name == "default") return DefaultGgufPreTokenizer();
  const auto* known =
      std::find_if(kGgufNames.begin(), kGgufNames.end(), [&](const GgufName& n) { return n.name == name; });
  if (known == kGgufNames.end()) return std::nullopt;
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  if (known->digits) parts.push_back(MakeDigits(true));
  parts.push_back(MakeKnownSplit(known->regex));
  parts.push_back(MakeByteLevel(false, false));
  return GgufPreTokenizer{MakePreTokenizerSequence(std::move(parts)), known->whole, known->whole};
}

}  // namespace coppice
