// The known word that a misspelt one was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace coppice {

// The word of `known` that takes the fewest letters inserted, left out, replaced or swapped with the next
// one, upper and lower case alike; or one that `word` begins, from three letters on. Empty if none is
// near: one letter of up to 4 may differ, two of up to 7, three of more. Equal words are not near.
std::string Nearest(std::string_view word, std::span<const std::string> known);

}  // namespace coppice
