// Cuts a stretch of text into the pieces that are merged one by one. The components of tokenizer.json's
// "pre_tokenizer", and the sequences that GGUF's tokenizer.ggml.pre names.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/scanner.h"

namespace coppice {

struct Pieces {
  std::string text;
  std::vector<TextRange> ranges;  // in order, not overlapping; what lies between them is dropped
  bool at_start = false;          // the text begins where the whole input does
};

// Whether the pieces are in GPT-2's byte alphabet.
enum class ByteAlphabet {
  kNone,
  kImplied,  // they are plain bytes still, and the merger reads each as its letter of the alphabet
  kWritten,  // they are rewritten, because a later pre-tokenizer looks at the letters
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void Apply(Pieces& pieces) const = 0;  // linear
  virtual ByteAlphabet Alphabet() const { return ByteAlphabet::kNone; }
};

enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kAlways, kFirst, kNever };

struct SplitPattern {
  std::string text;  // not empty
  bool is_regex = false;
};

// A regex that a scanner equals goes to the scanner, any other to PCRE2. `source` names the file in messages.
std::unique_ptr<PreTokenizer> MakeSplit(const SplitPattern& pattern, SplitBehavior behavior, bool invert,
                                        const std::string& source);
std::unique_ptr<PreTokenizer> MakeScan(Pattern pattern);
std::unique_ptr<PreTokenizer> MakeByteLevel(bool add_prefix_space, bool use_regex,
                                            ByteAlphabet alphabet = ByteAlphabet::kImplied);
std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, PrependScheme scheme, bool split);
std::unique_ptr<PreTokenizer> MakeDigits(bool individual);
std::unique_ptr<PreTokenizer> MakePunctuation(SplitBehavior behavior);
std::unique_ptr<PreTokenizer> MakePreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts);

// ByteLevel, Metaspace, Split, Digits, Punctuation and Sequence; null stays null. `last`: nothing
// follows it. Throws Error naming any other.
std::unique_ptr<PreTokenizer> PreTokenizerFromJson(const nlohmann::json& json, const std::string& source,
                                                   bool last = true);

// What tokenizer.ggml.pre stands for, besides the pieces: defaults that only the name tells.
struct GgufPreTokenizer {
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // byte level
  bool ignore_merges = false;
  bool add_bos = false;
};

// Throws Error for a name that is not known.
GgufPreTokenizer PreTokenizerFromGgufName(std::string_view name, const std::string& source);

// "prepend_scheme", or in old files "add_prefix_space"; always where both are absent.
PrependScheme PrependSchemeFromJson(const nlohmann::json& json, const std::string& source);

}  // namespace coppice
