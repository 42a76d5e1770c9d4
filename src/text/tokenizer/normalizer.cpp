#include "text/tokenizer/normalizer.h"

#include <utility>

#include "base/error.h"
#include "text/tokenizer/text_json.h"
#include "text/unicode/unicode.h"

namespace coppice {
namespace {

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string Apply(std::string text) const override { return text.empty() ? text : prefix_ + text; }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string Apply(std::string text) const override { return ReplaceAll(text, pattern_, content_); }

 private:
  std::string pattern_;
  std::string content_;
};

class Nfc final : public Normalizer {
 public:
  std::string Apply(std::string text) const override { return NormalizeNfc(text); }
};

class TrimSpaces final : public Normalizer {
 public:
  std::string Apply(std::string text) const override {
    std::string out;
    for (const char c : text) {
      if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
    }
    if (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
  }
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  std::string Apply(std::string text) const override {
    for (const auto& part : parts_) text = part->Apply(std::move(text));
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

std::unique_ptr<Normalizer> MakePrepend(std::string prefix) {
  return std::make_unique<Prepend>(std::move(prefix));
}
std::unique_ptr<Normalizer> MakeReplace(std::string pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
std::unique_ptr<Normalizer> MakeNfc() { return std::make_unique<Nfc>(); }
std::unique_ptr<Normalizer> MakeTrimSpaces() { return std::make_unique<TrimSpaces>(); }
std::unique_ptr<Normalizer> MakeNormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) {
  return std::make_unique<NormalizerSequence>(std::move(parts));
}

std::unique_ptr<Normalizer> NormalizerFromJson(const nlohmann::json& json, const std::string& source) {
  if (json.is_null()) return nullptr;
  const std::string type = StringField(json, "type", source);
  if (type == "Prepend") return MakePrepend(StringField(json, "prepend", source));
  if (type == "NFC") return MakeNfc();
  if (type == "Replace") {
    const nlohmann::json* pattern = FindField(json, "pattern");
    if (pattern == nullptr || FindField(*pattern, "String") == nullptr) {
      throw Error("[tokenizer] {}: normalizer 'Replace' is supported with a 'String' pattern only", source);
    }
    const std::string text = StringField(*pattern, "String", source);
    if (text.empty()) throw Error("[tokenizer] {}: normalizer 'Replace' has an empty pattern", source);
    return MakeReplace(text, StringField(json, "content", source));
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (const nlohmann::json& part : ArrayField(json, "normalizers", source)) {
      std::unique_ptr<Normalizer> made = NormalizerFromJson(part, source);
      if (made != nullptr) parts.push_back(std::move(made));
    }
    return MakeNormalizerSequence(std::move(parts));
  }
  throw Error("[tokenizer] {}: normalizer '{}' is not supported", source, type);
}

}  // namespace coppice
