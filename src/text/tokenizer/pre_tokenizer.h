// Splits text into the pieces that are merged separately: the components of "pre_tokenizer" in
// tokenizer.json, and the sequences named by tokenizer.ggml.pre in GGUF.
#pragma once

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/merger.h"
#include "text/tokenizer/regex.h"

namespace coppice {

struct Pieces {
  std::string text;
  std::vector<TextRange> ranges;                 // ascending, not overlapping; text between them is dropped
  bool at_start = false;                         // the text starts at the start of the whole input
  const std::atomic<bool>* cancelled = nullptr;  // EncodeOptions'
};

// Whether the pieces use GPT-2's byte alphabet.
enum class ByteAlphabet {
  kNone,
  kImplied,  // the pieces are still bytes; the merger maps each to its letter
  kWritten,  // the pieces are rewritten, because a later pre-tokenizer looks at the letters
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void Apply(Pieces& pieces) const = 0;  // linear time; throws Cancelled
  virtual ByteAlphabet Alphabet() const { return ByteAlphabet::kNone; }
};

enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kAlways, kFirst, kNever };

struct SplitPattern {
  std::string text;  // must not be empty
  bool is_regex = false;
};

// `source` names the file in messages.
std::unique_ptr<PreTokenizer> MakeSplit(const SplitPattern& pattern, SplitBehavior behavior, bool invert,
                                        const std::string& source);
// Every match of one of the known expressions, and the text between two matches, becomes a piece.
std::unique_ptr<PreTokenizer> MakeKnownSplit(std::string_view regex);
std::unique_ptr<PreTokenizer> MakeByteLevel(bool add_prefix_space, bool use_regex,
                                            ByteAlphabet alphabet = ByteAlphabet::kImplied);
std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, PrependScheme scheme, bool split);
std::unique_ptr<PreTokenizer> MakeDigits(bool individual);
std::unique_ptr<PreTokenizer> MakePunctuation(SplitBehavior behavior);
std::unique_ptr<PreTokenizer> MakePreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts);

// Supports ByteLevel, Metaspace, Split, Digits, Punctuation and Sequence; null stays null. `last` means that
// no pre-tokenizer follows. Throws Error naming any other component.
std::unique_ptr<PreTokenizer> PreTokenizerFromJson(const nlohmann::json& json, const std::string& source,
                                                   bool last = true);

// What the tokens of a GGUF file's BPE are made of.
enum class GgufText {
  kBytes,       // letters of GPT-2's byte alphabet
  kCharacters,  // UTF-8 with U+2581 for a space, and <0x00> to <0xFF> for characters without a token
};

enum class GgufBos { kNo, kYes, kAlways };  // kAlways: whatever the file says

// The pre-tokenizer that tokenizer.ggml.pre names, with defaults that depend on this name only.
struct GgufPreTokenizer {
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  WholePieces whole = WholePieces::kNone;
  GgufBos add_bos = GgufBos::kNo;
  GgufText text = GgufText::kBytes;
};

// Nothing for an unknown name.
std::optional<GgufPreTokenizer> PreTokenizerFromGgufName(std::string_view name);
// That of the name "default".
GgufPreTokenizer DefaultGgufPreTokenizer();

// Reads "prepend_scheme", or "add_prefix_space" in old files. kAlways if both are absent.
PrependScheme PrependSchemeFromJson(const nlohmann::json& json, const std::string& source);

}  // namespace coppice
