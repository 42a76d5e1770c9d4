// Common English words for keys, lists and filler.
#pragma once

#include <span>
#include <string_view>

namespace coppice {

std::span<const std::string_view> Adjectives();
std::span<const std::string_view> Nouns();      // things one can see
std::span<const std::string_view> Verbs();      // base forms
std::span<const std::string_view> PastVerbs();  // what a person did to a thing
std::span<const std::string_view> People();

}  // namespace coppice
