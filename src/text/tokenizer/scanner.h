// Hand-written scanners for the pre-tokenizer patterns of known model families: linear in the text, without
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

// The published regular expression that the scanner of `pattern` implements.
std::string_view RegexOf(Pattern pattern);

// The scanner for a regular expression with exactly this text; nullopt if unknown.
std::optional<Pattern> FindPattern(std::string_view regex);

// Appends every match, in the order of a regex engine. Text between two matches (only with kBloom) belongs to
// no match.
void Scan(Pattern pattern, std::string_view text, std::vector<TextRange>& matches);

}  // namespace coppice
