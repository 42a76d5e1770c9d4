// A bounded record of recent prompts and their answers, as tokens. A server compares each prompt with it to
// tell the client what it could have reused, and where the prompt differs from an earlier one.
//
// A prompt is compared only with prompts of its own owner. Each API key has a part of the record for itself,
// so what one key sends never changes what another one is told.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/documents/prompt_sketch.h"
#include "model/prefix.h"

namespace coppice {

// Why the document cache kept nothing of a prompt, or only a part.
enum class NotKept {
  kKept,
  kReading,    // the request has not ended
  kCancelled,  // the request failed, or its client left
  kFewNew,     // it had too few new tokens for an entry (DocumentCache::Wants)
  kTooLarge,   // its states are larger than the cache
  kMethod,     // the method's states depend on the whole prompt
  kAnswer,     // the prompt is there, its answer is not
};

struct EarlierPrompt {
  std::string request;                                 // its id
  std::shared_ptr<const std::vector<int32_t>> tokens;  // the prompt, and its answer once that has ended
  int64_t prompt_tokens = 0;                           // those of the prompt
  int64_t kept = 0;                                    // of these, what the cache had when the answer ended
  NotKept why = NotKept::kReading;                     // if that is not all
  std::chrono::steady_clock::time_point read = {};     // when the prompt began to be read
  PromptSketch sketch = {};                            // of the prompt

  int64_t size() const { return static_cast<int64_t>(tokens->size()); }
};

struct PromptHistoryOptions {
  int64_t keys = 1;                   // API keys; each gets an equal part of the tokens
  int64_t tokens = int64_t{8} << 20;  // of all keys together; four bytes each
  int64_t prompts = 64;               // of one owner
  int64_t prompts_of_key = 256;       // of all owners with one key
};

// Thread-safe.
class PromptHistory {
 public:
  explicit PromptHistory(PromptHistoryOptions options) : options_(options) {}

  struct Comparison {
    int64_t shared = 0;  // the longest beginning in common with an earlier prompt and its answer
    // The earlier prompt that this one goes on, or was to go on: the one with the longest beginning in
    // common, or another one in which much more of this prompt's text stands. Of equal ones the latest.
    std::optional<EarlierPrompt> earlier;
    int64_t common = 0;  // the beginning in common with that one
  };
  Comparison Compare(std::span<const int32_t> tokens, const PromptSketch& sketch,
                     const PrefixOwner& owner) const;

  // Adds a prompt that is being read; replaces those that are its beginning with their answers. Returns its
  // number.
  uint64_t Add(const PrefixOwner& owner, EarlierPrompt prompt);
  // The request has ended. `answer`: its tokens. No effect if the record no longer has the prompt.
  void End(uint64_t number, const PrefixOwner& owner, std::span<const int32_t> answer, int64_t kept,
           NotKept why);

  int64_t tokens() const;   // of all
  int64_t prompts() const;  // of all

 private:
  struct Record {
    uint64_t number = 0;
    uint64_t salt = 0;
    EarlierPrompt prompt;
  };
  struct Share {                // of a key
    std::list<Record> records;  // the oldest first
    int64_t tokens = 0;
  };

  std::vector<EarlierPrompt> Of(const PrefixOwner& owner) const;
  int64_t MostTokens() const { return options_.tokens / std::max<int64_t>(options_.keys, 1); }
  static void Erase(Share& share, std::list<Record>::iterator record);
  void Trim(Share& share, uint64_t salt) const;

  const PromptHistoryOptions options_;
  mutable std::mutex mutex_;  // guards the members below; not held while prompts are compared
  std::map<uint64_t, Share> shares_;
  uint64_t last_number_ = 0;
};

}  // namespace coppice
