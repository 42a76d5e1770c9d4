// A tokenizer of one token per byte, and the control token <s> (256), for tests of chats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace coppice {

class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(std::string chat_template) : template_(std::move(chat_template)) {}
  std::string_view kind() const override { return "bytes"; }
  int32_t vocab_size() const override { return 257; }
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special) ids.push_back(256);
    for (size_t at = 0; at < text.size(); ++at) {
      const bool is_plain = std::ranges::find(options.plain, at) != options.plain.end();
      const bool is_control = options.parse_special && !is_plain && text.substr(at).starts_with("<s>");
      ids.push_back(is_control ? 256 : static_cast<uint8_t>(text[at]));
      at += is_control ? 2 : 0;
    }
    return ids;
  }
  std::vector<size_t> ControlStarts(std::string_view text) const override {
    std::vector<size_t> starts;
    for (size_t at = text.find("<s>"); at != text.npos; at = text.find("<s>", at + 1)) starts.push_back(at);
    return starts;
  }
  std::string Piece(int32_t id, bool special) const override {
    if (id == 256) return special ? "<s>" : "";
    return {static_cast<char>(id)};
  }
  std::string Decode(std::span<const int32_t> ids, bool special) const override {
    std::string text;
    for (const int32_t id : ids) text += Piece(id, special);
    return text;
  }
  std::optional<int32_t> bos() const override { return 256; }
  std::optional<int32_t> eos() const override { return std::nullopt; }
  bool EndsGeneration(int32_t) const override { return false; }
  bool IsControl(int32_t id) const override { return id == 256; }
  std::optional<int32_t> Find(std::string_view) const override { return std::nullopt; }
  const std::string& chat_template() const override { return template_; }
  void SetChatTemplate(std::string) override {}

 private:
  std::string template_;
};

}  // namespace coppice
