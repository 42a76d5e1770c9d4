// Text cut into the units that input compression keeps or drops whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coppice {

enum class LexicalUnit { kPhrase, kSentence, kToken };

// The unit of each token, ascending from 0. `pieces` are the tokens' bytes, in order. A token belongs to the
// unit of its first byte that is not white space; white space belongs to the unit before it.
//
// A sentence ends after . ! ? and white space, after their CJK forms, and at an empty line. A phrase also
// ends at every line's end and at , ; : and brackets. Between these a phrase is a run of function words and
// the run of other words after it ("chinks 'n chunks", Liberman and Church 1992), which is close to a
// parser's noun phrase: "in the garden | of Mrs. Price | was found". Function words are English; text in
// other languages is cut at punctuation and after kPhraseWords words.
std::vector<int32_t> LexicalUnits(std::span<const std::string> pieces, LexicalUnit unit);

inline constexpr int kPhraseWords = 8;

}  // namespace coppice
