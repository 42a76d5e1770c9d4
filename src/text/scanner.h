// The pre-tokenizer patterns of known model families as hand-written scanners: linear in the text, no
// backtracking.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace coppice {

enum class Pattern { kGpt2, kLlama3, kQwen2, kTekken, kBloom };

struct TextRange {
  size_t begin;
  size_t end;
  bool operator==(const TextRange&) const = default;
};

// The published regular expression that the scanner of `pattern` equals.
std::string_view RegexOf(Pattern pattern);

// The scanner for a regular expression, written exactly so; nullopt for an unknown one.
std::optional<Pattern> FindPattern(std::string_view regex);

// Appends every match, in order, as a regex engine would find them one after the other. Text between two
// matches (only kBloom leaves any) belongs to no match.
void Scan(Pattern pattern, std::string_view text, std::vector<TextRange>& matches);

}  // namespace coppice
