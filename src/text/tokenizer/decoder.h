// Turns the texts of tokens into the decoded text: the components of "decoder" in tokenizer.json.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/tokenizer/pre_tokenizer.h"

namespace coppice {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Changes the texts of a whole sequence of tokens. Their final concatenation is the decoded text.
  virtual void Apply(std::vector<std::string>& texts) const = 0;
  // The part of Apply that needs no neighbouring tokens: the text of one token in the middle of a stream.
  virtual std::string Piece(std::string text) const = 0;
  // True if Apply only applies Piece to each token.
  virtual bool IsLocal() const { return false; }
};

std::unique_ptr<Decoder> MakeByteLevelDecoder();
std::unique_ptr<Decoder> MakeByteFallbackDecoder();  // turns "<0x4A>" into that byte
std::unique_ptr<Decoder> MakeReplaceDecoder(std::string pattern, std::string content);
std::unique_ptr<Decoder> MakeMetaspaceDecoder(std::string replacement, PrependScheme scheme);
std::unique_ptr<Decoder> MakeFuseDecoder();
std::unique_ptr<Decoder> MakeStripDecoder(std::string content, size_t start, size_t stop);
std::unique_ptr<Decoder> MakeDecoderSequence(std::vector<std::unique_ptr<Decoder>> parts);

// Supports the components above; null stays null. Throws Error naming any other component.
std::unique_ptr<Decoder> DecoderFromJson(const nlohmann::json& json, const std::string& source);

}  // namespace coppice
