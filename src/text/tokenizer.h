// Text to token ids and back: SentencePiece-style and byte-level BPE, from GGUF metadata or tokenizer.json.
#pragma once

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
  bool add_special = true;    // BOS (and EOS) as the model's tokenizer says
  bool parse_special = true;  // control tokens written out in the text ("<|im_start|>") become their ids
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // From a GGUF file's tokenizer.ggml.* keys. Null where it has none. Throws Error for an invalid one.
  static std::unique_ptr<Tokenizer> FromGguf(const GgufMetadata& metadata);
  // From a folder's tokenizer.json (with tokenizer_config.json and generation_config.json where present), or
  // vocab.json and merges.txt, or a SentencePiece tokenizer.model. Null where it has none of them.
  static std::unique_ptr<Tokenizer> FromHfFolder(const std::string& folder);

  virtual std::string_view kind() const = 0;  // "spm" or "bpe", for inspect
  virtual int32_t vocab_size() const = 0;

  // Linear in text.size() (up to a log), whatever the text. Invalid UTF-8 is tokenised byte by byte where the
  // vocabulary can, else as the unknown token.
  virtual std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  // The bytes of one token, as decoding a stream needs them: no leading-space rule, control tokens are empty
  // unless `special`. Ids outside the vocabulary give "".
  virtual std::string Piece(int32_t id, bool special = false) const = 0;
  // The text of a whole sequence, with the tokenizer's rule for the first space; may hold invalid UTF-8 where
  // the ids cut a character.
  virtual std::string Decode(std::span<const int32_t> ids, bool special = false) const = 0;

  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
  virtual bool EndsGeneration(int32_t id) const = 0;  // EOS, EOT and their kin
  virtual bool IsControl(int32_t id) const = 0;
  // The id of a token written exactly so, control tokens included.
  virtual std::optional<int32_t> Find(std::string_view token) const = 0;
  // Jinja source, or empty.
  virtual const std::string& chat_template() const = 0;
};

// The bytes of each token of a sequence; together they are Decode(ids), the rule for the first space obeyed.
std::vector<std::string> PiecesOf(const Tokenizer& tokenizer, std::span<const int32_t> ids);

// Turns pieces into text for a stream: holds back the bytes of an unfinished UTF-8 character.
class Utf8Stream {
 public:
  // Returns what is complete; invalid bytes become U+FFFD.
  std::string Push(std::string_view bytes);
  // What is left, at the end.
  std::string Flush();

 private:
  std::string held_;
};

}  // namespace coppice
