// The names of tokens that end an answer, whatever their type in a file.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace coppice {

// Whether a token with this text is a control token even where a file gives it another type: files of many
// converters call the token that ends a turn an ordinary one.
bool IsEndName(std::string_view text);

// The tokens of the vocabulary with such names that end an answer. Not all of them do: gpt-oss writes <|end|>
// after its thinking, and Gemma 4's </s> is a word.
std::vector<int32_t> NamedEnds(const Vocabulary& vocabulary);

}  // namespace coppice
