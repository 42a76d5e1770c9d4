// The one tokenizer behind every file format: added tokens, normalizer, pre-tokenizer, merger; and back.
//
// A SentencePiece model is the pipeline with the normalizer "prepend a space, then write spaces as U+2581"
// and no pre-tokenizer; a byte-level model has no normalizer and cuts words before it merges.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/merger.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace coppice {

struct TokenizerParts {
  std::string kind;
  std::string source;  // the file, for messages
  std::unique_ptr<const Vocabulary> vocabulary;
  AddedTokenMatcher raw_added;                  // searched in the text as it comes
  AddedTokenMatcher normalized_added;           // searched in the normalised text
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<Merger> merger;               // refers to *vocabulary
  std::unique_ptr<Decoder> decoder;             // may be null
  bool byte_level = false;                      // ordinary tokens are in GPT-2's byte alphabet
  std::string unknown_surface;                  // how the unknown token decodes; empty: as any other
  std::vector<int32_t> prefix;                  // added by add_special
  std::vector<int32_t> suffix;
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::vector<int32_t> ends;  // more tokens that end a generation
  std::string chat_template;
};

// Adds the well-known end-of-turn tokens to `parts.ends`, where the vocabulary has them as control tokens.
std::unique_ptr<Tokenizer> MakePipelineTokenizer(TokenizerParts parts);

// What SentencePiece models share, GGUF or not: decoder and normalizer. U+2581 stands for a space.
inline constexpr const char* kSpmSpace = "\xE2\x96\x81";
void SetSpmText(TokenizerParts& parts, bool add_space_prefix, bool trim_spaces);

// Control and user-defined tokens, searched for in the raw text.
AddedTokenMatcher MatcherFromTypes(const Vocabulary& vocabulary, bool spm, const std::string& source);

}  // namespace coppice
