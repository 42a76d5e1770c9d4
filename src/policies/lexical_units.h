// Text cut into the units that input compression keeps or drops whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coppice {

enum class LexicalUnit { kToken, kPhrase, kSentence };

// The unit of each token, counted from 0, never falling. `pieces` are the tokens' bytes, in order; a token belongs
// to the unit in which its first byte lies that is no white space, and white space to the unit before it.
//
// A sentence ends after . ! ? and white space, after their CJK forms, and at an empty line. A phrase ends there, at
// every line's end and at , ; : and brackets; and inside such a stretch it is as many function words as come,
// then as many other words as come ("chinks 'n chunks", Liberman and Church 1992), which finds near enough what a
// parser would call a noun phrase: "in the garden | of Mrs. Price | was found". Function words are English ones;
// other languages are cut at punctuation and after kPhraseWords words.
std::vector<int32_t> LexicalUnits(std::span<const std::string> pieces, LexicalUnit unit);

inline constexpr int kPhraseWords = 8;

}  // namespace coppice
