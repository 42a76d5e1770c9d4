// Converts text to token ids and back: SentencePiece-style and byte-level BPE, from GGUF metadata or
// tokenizer.json.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"

namespace coppice {

struct EncodeOptions {
  bool add_special = true;    // BOS (and EOS) according to the model's tokenizer
  bool parse_special = true;  // control tokens in written form ("<|im_start|>") become their ids
  // Ascending offsets of bytes that are part of no control token, whatever parse_special says
  // (ControlStarts()). The data must outlive the call.
  std::span<const size_t> plain = {};
  const std::atomic<bool>* cancelled = nullptr;  // may be null; once it is set, Encode() throws Cancelled
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // From the tokenizer.ggml.* keys of a GGUF file. Null if it has none. Throws Error if they are invalid.
  static std::unique_ptr<Tokenizer> FromGguf(const GgufMetadata& metadata);
  // From a folder's tokenizer.json (with tokenizer_config.json and generation_config.json if present), or
  // vocab.json and merges.txt, or a SentencePiece tokenizer.model. Null if the folder has none of them.
  static std::unique_ptr<Tokenizer> FromHfFolder(const std::string& folder);

  virtual std::string_view kind() const = 0;  // "spm" or "bpe", for inspect
  virtual int32_t vocab_size() const = 0;

  // Linear in text.size() (up to a logarithmic factor) for any text. Invalid UTF-8 becomes byte tokens if the
  // vocabulary has them, else the unknown token.
  virtual std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  // Where a control token in written form begins in `text`, or may begin if more follows `text`, with or
  // without the white space at its end. With these offsets as EncodeOptions::plain, nothing of `text` is a
  // control token.
  virtual std::vector<size_t> ControlStarts(std::string_view text) const = 0;

  // The bytes of one token within a stream: the rule for a leading space does not apply, and control tokens
  // are empty unless `special` is set. "" for ids outside the vocabulary.
  virtual std::string Piece(int32_t id, bool special = false) const = 0;
  // The text of a whole sequence, with the tokenizer's rule for a leading space. May contain invalid UTF-8 if
  // the ids split a character.
  virtual std::string Decode(std::span<const int32_t> ids, bool special = false) const = 0;

  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
  virtual bool EndsGeneration(int32_t id) const = 0;  // EOS, EOT and similar tokens
  virtual bool IsControl(int32_t id) const = 0;
  // The id of the token with exactly this text, including control tokens.
  virtual std::optional<int32_t> Find(std::string_view token) const = 0;
  // The Jinja source, or empty.
  virtual const std::string& chat_template() const = 0;
  // The one for chats with tools, which some models have beside it, under the name "tool_use"; or empty.
  virtual const std::string& tool_template() const { return kNoText; }
  // Replaces both. Not thread-safe.
  virtual void SetChatTemplate(std::string jinja) = 0;
  // What a user should know about how the model's files were read, in a line; or empty.
  virtual const std::string& note() const { return kNoText; }

 private:
  inline static const std::string kNoText;
};

// The bytes of each token of a sequence. Their concatenation is Decode(ids).
std::vector<std::string> PiecesOf(const Tokenizer& tokenizer, std::span<const int32_t> ids);

// Turns pieces into a stream of text; holds back the bytes of an incomplete UTF-8 character.
class Utf8Stream {
 public:
  // Returns the complete characters; invalid bytes become U+FFFD.
  std::string Push(std::string_view bytes);
  // Returns the rest, at the end.
  std::string Flush();

 private:
  std::string held_;
};

}  // namespace coppice
