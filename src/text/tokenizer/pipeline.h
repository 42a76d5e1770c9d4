// The tokenizer behind every file format: added tokens, normalizer, pre-tokenizer, merger; and the decoder
// for the way back.
//
// A SentencePiece model is the pipeline with the normalizer "prepend a space, then write spaces as U+2581"
// and without a pre-tokenizer. A byte-level model has no normalizer and splits words before it merges.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/merger.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/vocabulary.h"

namespace coppice {

struct TokenizerParts {
  std::string kind;
  std::string source;  // the file, for messages
  std::unique_ptr<const Vocabulary> vocabulary;
  AddedTokenMatcher raw_added;                  // matched in the raw text
  AddedTokenMatcher normalized_added;           // matched in the normalised text
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  std::unique_ptr<Merger> merger;               // refers to *vocabulary
  std::unique_ptr<Decoder> decoder;             // may be null
  bool byte_level = false;                      // ordinary tokens use GPT-2's byte alphabet
  std::string unknown_surface;                  // text of the unknown token; empty: decoded like any other
  std::vector<int32_t> prefix;                  // added if EncodeOptions::add_special is set
  std::vector<int32_t> suffix;
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::vector<int32_t> ends;  // further tokens that end a generation
  std::string chat_template;
  std::string tool_template;  // for chats with tools; may be empty
  std::string note;           // Tokenizer::note()
};

// Adds the tokens of NamedEnds() to `parts.ends`.
std::unique_ptr<Tokenizer> MakePipelineTokenizer(TokenizerParts parts);

// The decoder and normalizer shared by all SentencePiece models, GGUF or not. U+2581 represents a space.
inline constexpr const char* kSpmSpace = "\xE2\x96\x81";
void SetSpmText(TokenizerParts& parts, bool add_space_prefix, bool trim_spaces);

// Control and user-defined tokens, to be matched in the raw text.
AddedTokenMatcher MatcherFromTypes(const Vocabulary& vocabulary, bool spm, const std::string& source);

}  // namespace coppice
