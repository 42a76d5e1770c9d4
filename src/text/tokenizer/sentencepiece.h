// Parses SentencePiece's tokenizer.model: the protobuf fields that a BPE model needs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace coppice {

struct SentencePieceModel {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<TokenType> types;
  int64_t unknown = 0;  // -1: none; also for bos and eos
  int64_t bos = 1;
  int64_t eos = 2;
  std::string unknown_surface = " \xE2\x81\x87 ";
  bool add_space_prefix = true;
  bool trim_spaces = true;
};

// `source` names the file in messages. Throws Error, naming the offset, if the bytes are not such a message;
// also for unsupported features: models other than BPE, a normalisation table, spaces as suffixes, or spaces
// that are not escaped.
SentencePieceModel ParseSentencePiece(std::span<const std::byte> bytes, const std::string& source);

}  // namespace coppice
