#include "text/tokenizer/decoder.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/merger.h"
#include "text/tokenizer/text_json.h"
#include "text/tokenizer/vocabulary.h"

namespace coppice {
namespace {

// A decoder that treats each token independently.
class EachDecoder : public Decoder {
 public:
  void Apply(std::vector<std::string>& texts) const final {
    for (std::string& text : texts) text = Piece(std::move(text));
  }
  bool IsLocal() const final { return true; }
};

class ByteLevelDecoder final : public EachDecoder {
 public:
  std::string Piece(std::string text) const override { return FromByteLevel(text); }
};

class ByteFallbackDecoder final : public EachDecoder {
 public:
  std::string Piece(std::string text) const override {
    const std::optional<uint8_t> byte = ParseByteToken(text);
    return byte ? std::string(1, static_cast<char>(*byte)) : text;
  }
};

class ReplaceDecoder final : public EachDecoder {
 public:
  ReplaceDecoder(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string Piece(std::string text) const override { return ReplaceAll(text, pattern_, content_); }

 private:
  std::string pattern_;
  std::string content_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)), scheme_(scheme) {}
  void Apply(std::vector<std::string>& texts) const override {
    for (size_t i = 0; i < texts.size(); ++i) {
      const bool drop = i == 0 && scheme_ != PrependScheme::kNever;
      texts[i] = ReplaceAll(texts[i], replacement_, drop ? "" : " ");
    }
  }
  std::string Piece(std::string text) const override { return ReplaceAll(text, replacement_, " "); }

 private:
  std::string replacement_;
  PrependScheme scheme_;
};

class FuseDecoder final : public Decoder {
 public:
  void Apply(std::vector<std::string>& texts) const override {
    std::string all;
    for (const std::string& text : texts) all += text;
    texts.assign(1, std::move(all));
  }
  std::string Piece(std::string text) const override { return text; }
};

class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void Apply(std::vector<std::string>& texts) const override {
    for (std::string& text : texts) {
      std::string_view rest = text;
      for (size_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      text = std::string(rest);
    }
  }
  std::string Piece(std::string text) const override { return text; }

 private:
  std::string content_;
  size_t start_;
  size_t stop_;
};

class DecoderSequence final : public Decoder {
 public:
  explicit DecoderSequence(std::vector<std::unique_ptr<Decoder>> parts) : parts_(std::move(parts)) {}
  void Apply(std::vector<std::string>& texts) const override {
    for (const auto& part : parts_) part->Apply(texts);
  }
  std::string Piece(std::string text) const override {
    for (const auto& part : parts_) text = part->Piece(std::move(text));
    return text;
  }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

size_t CountField(const nlohmann::json& json, std::string_view key, const std::string& source) {
  const nlohmann::json* field = FindField(json, key);
  return field == nullptr ? 0 : static_cast<size_t>(TokenIdFrom(*field, key, source));
}

}  // namespace

std::unique_ptr<Decoder> MakeByteLevelDecoder() { return std::make_unique<ByteLevelDecoder>(); }
std::unique_ptr<Decoder> MakeByteFallbackDecoder() { return std::make_unique<ByteFallbackDecoder>(); }
std::unique_ptr<Decoder> MakeReplaceDecoder(std::string pattern, std::string content) {
  return std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(content));
}
std::unique_ptr<Decoder> MakeMetaspaceDecoder(std::string replacement, PrependScheme scheme) {
  return std::make_unique<MetaspaceDecoder>(std::move(replacement), scheme);
}
std::unique_ptr<Decoder> MakeFuseDecoder() { return std::make_unique<FuseDecoder>(); }
std::unique_ptr<Decoder> MakeStripDecoder(std::string content, size_t start, size_t stop) {
  return std::make_unique<StripDecoder>(std::move(content), start, stop);
}
std::unique_ptr<Decoder> MakeDecoderSequence(std::vector<std::unique_ptr<Decoder>> parts) {
  return std::make_unique<DecoderSequence>(std::move(parts));
}

std::unique_ptr<Decoder> DecoderFromJson(const nlohmann::json& json, const std::string& source) {
  if (json.is_null()) return nullptr;
  const std::string type = StringField(json, "type", source);
  if (type == "ByteLevel") return MakeByteLevelDecoder();
  if (type == "ByteFallback") return MakeByteFallbackDecoder();
  if (type == "Fuse") return MakeFuseDecoder();
  if (type == "Metaspace") {
    const std::string replacement = StringField(json, "replacement", source);
    if (replacement.empty()) throw Error("[tokenizer] {}: decoder 'Metaspace' has no replacement", source);
    return MakeMetaspaceDecoder(replacement, PrependSchemeFromJson(json, source));
  }
  if (type == "Replace") {
    const nlohmann::json* pattern = FindField(json, "pattern");
    const std::string text = pattern == nullptr ? "" : StringField(*pattern, "String", source, "");
    if (text.empty()) throw Error("[tokenizer] {}: decoder 'Replace' needs a 'String' pattern", source);
    return MakeReplaceDecoder(text, StringField(json, "content", source));
  }
  if (type == "Strip") {
    const std::string content = StringField(json, "content", source);
    if (content.empty()) throw Error("[tokenizer] {}: decoder 'Strip' has no content", source);
    return MakeStripDecoder(content, CountField(json, "start", source), CountField(json, "stop", source));
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Decoder>> parts;
    for (const nlohmann::json& part : ArrayField(json, "decoders", source)) {
      std::unique_ptr<Decoder> made = DecoderFromJson(part, source);
      if (made != nullptr) parts.push_back(std::move(made));
    }
    return MakeDecoderSequence(std::move(parts));
  }
  throw Error("[tokenizer] {}: decoder '{}' is not supported", source, type);
}

}  // namespace coppice
