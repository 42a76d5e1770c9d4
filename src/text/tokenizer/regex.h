// Regular expressions that split text into pieces, through PCRE2.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

struct TextRange {
  size_t begin;
  size_t end;
  bool operator==(const TextRange&) const = default;
};

class Regex {
 public:
  // `source` names the file in messages. Throws Error if PCRE2 cannot compile the pattern, or would interpret
  // it differently from the engine it was written for (a class inside a class).
  Regex(const std::string& pattern, const std::string& source);
  ~Regex();
  Regex(Regex&&) noexcept;

  // Appends every non-empty match, in order. A byte that is not UTF-8 is a character of its own, neither
  // letter, number nor white space. Throws Error if one match takes more than a fixed number of steps, or all
  // of them more than 10 s and 1 us per byte, and Cancelled once `cancelled`, which may be null, is set.
  void FindAll(std::string_view text, std::vector<TextRange>& matches,
               const std::atomic<bool>* cancelled = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The published expressions of known model families.
inline constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// llama.cpp's "default" splits at these before GPT-2's, and at the next two after it.
inline constexpr std::string_view kSymbolsRegex = R"([\p{P}\$\+<=>\^~\|]+)";
inline constexpr std::string_view kNumberRegex = R"(\p{N}+)";
inline constexpr std::string_view kThreeDigitsRegex = "[0-9][0-9][0-9]";
inline constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
inline constexpr std::string_view kTekkenRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Tekken's with contractions and numbers of up to three digits: the o200k vocabulary of GPT-4o and gpt-oss.
inline constexpr std::string_view kGpt4oRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Qwen 2's, where marks belong to words.
inline constexpr std::string_view kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kBloomRegex = R"( ?[^(\s|.,!?…。，、।۔،)]+)";

}  // namespace coppice
