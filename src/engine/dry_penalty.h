// DRY ("don't repeat yourself"): a penalty on tokens that would continue a repetition, as llama.cpp has it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace coppice {

// If the last L tokens of the history stood there before, followed by token t, and L is at least
// allowed_length, the logit of t falls by multiplier * base^(L - allowed_length), with the longest such L.
struct DryOptions {
  double multiplier = 0;  // 0: no penalty
  double base = 1.75;
  int64_t allowed_length = 2;
  int64_t last_n = -1;            // tokens it looks back; -1: all
  std::vector<int32_t> breakers;  // ascending ids of tokens that no repetition spans
};

// The penalties by token. Linear in the tokens it looks back.
std::unordered_map<int32_t, double> DryPenalties(const DryOptions& options, std::span<const int32_t> history);

// The ids of the tokens whose text holds one of these texts, ascending: looks at the whole vocabulary.
std::vector<int32_t> TokensWith(const Tokenizer& tokenizer, std::span<const std::string> texts);

// The texts that end a repetition where nobody names others.
const std::vector<std::string>& DefaultDryBreakers();

}  // namespace coppice
