// Pre-tokenizers from tokenizer.json.
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

}  // namespace coppice
