// What the registry knows about a method, and what a method may use when its policy is made.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/model_shape.h"
#include "policies/dropped_mass.h"
#include "policies/keys.h"
#include "policies/policy.h"
#include "policies/spec.h"

namespace coppice {

// Computes one number for each prompt token. May take as long as a prefill. Throws Cancelled.
using TokenScores = std::function<std::vector<float>()>;

// A word of the prompt's text, as a classifier of words reads it: LLMLingua-2's (methods/llmlingua2.cpp).
struct ReadWord {
  struct Part {
    size_t begin = 0;  // bytes of the prompt's text: its tokens' pieces, one behind the other
    size_t end = 0;
    float keep = 0;      // probability that the word should stay, by this part
    std::string text;    // as the classifier spells it: "1" for a wide digit
    bool digit = false;  // the text holds a decimal digit of any script
  };
  std::vector<Part> parts;  // not empty
  int chunk = 0;            // the classifier read the chunks one by one, from 0 on
  bool spaced = false;      // XLM-RoBERTa: the word follows white space
};
// Computes the words of the prompt. May take as long as a prefill. Throws Cancelled.
using WordReader = std::function<std::vector<ReadWord>()>;

// Computes the importance of each prompt token to a second model with the same tokens: (1) to (3) of
// methods/specprefill.cpp. May take as long as a prefill. Throws Cancelled.
using DraftScores = std::function<std::vector<float>(int look_ahead, int pool)>;

// Runs the prompt through this model's layers 0 to `layer`, and computes a score of each prompt token there:
// (1) of methods/gemfilter.cpp, in any unit. Takes as long as a prefill of these layers. Throws Cancelled.
using FilterScores = std::function<std::vector<float>(int layer)>;

struct Draft {
  DraftScores read = {};
  std::string reason = {};  // why it cannot read this prompt, or ""
};

// The prompt and the model that a policy is made for.
struct MethodContext {
  const ModelShape& shape;
  int64_t tokens = 0;                    // of the prompt
  std::span<const int32_t> prompt = {};  // token ids; may be empty if only the settings are wanted
  // Positions of the question in the prompt: ascending, disjoint, not empty. Its queries score the other
  // tokens. Empty if unknown: the prompt's last tokens are then used instead.
  std::span<const PositionSpan> question = {};
  // Positions of the text that holds the answer, ascending and disjoint; empty if unknown, as for users'
  // prompts. For probes only.
  std::span<const PositionSpan> evidence = {};
  // Bytes per token: of its parked hidden state, and of its key and value in each layer. 0 and empty:
  // unknown; numbers are then compared instead of bytes.
  int64_t parked_bytes = 0;
  std::vector<int64_t> layer_bytes = {};
  // Receives the share of attention on dropped tokens, if not null.
  std::vector<DroppedShare>* dropped = nullptr;
  // The prompt's tokens as text, "" for control tokens. Not set for a model without a tokenizer.
  std::function<std::vector<std::string>()> pieces = {};
  // For input compression: opens a second model, which returns -log2 p of every prompt token's text given the
  // text before it. Throws Error, naming the file. Not set where the prompt has no text.
  std::function<TokenScores(const std::string& file)> open_scorer = {};
  // For LLMLingua-2: opens a classifier of words. Throws Error, naming the folder. Not set where the prompt
  // has no text.
  std::function<WordReader(const std::string& folder)> open_words = {};
  // For speculative prefill: opens a second model. Throws Error, naming the file, also if its tokens are not
  // this model's. Not set for a model without a tokenizer.
  std::function<Draft(const std::string& file)> open_draft = {};
  // Nothing is computed, only counted: a method may plan with random weights instead of trained ones.
  bool planned = false;
  // For a choice by the model's own first layers. Not set where only the settings are wanted.
  FilterScores first_layers = {};
};

// A method's policy and settings for one prompt.
struct MethodInstance {
  std::unique_ptr<TokenPolicy> policy = nullptr;  // null if the method does not act on this prompt
  std::string settings = {};  // the spec with every key written out: "ftp:eta=0.9,dense=3,..."
  std::string reason = {};    // why the method does not act, or empty
  unsigned switched_off = 0;  // traits of the method that these settings switch off
  // Approximate number of prompt tokens that enter the model, if the method selects them; -1: all.
  int64_t entering = -1;
};

// What a method does to a run. registry.cpp derives from it which methods can be combined.
enum MethodTraits : unsigned {
  kSelectsInput = 1,  // drops prompt tokens before the model
  kDropsRows = 2,     // drops hidden states between layers
  kRevives = 4,       // brings dropped tokens back during decode
  kSkipsFfn = 8,
  kSparsePrefill = 16,    // chooses the attention pattern in prefill
  kSparseDecode = 32,     // chooses which keys a generated token reads
  kEvicts = 64,           // deletes keys and values
  kMovesPositions = 128,  // moves keys to other positions
  kSkipsAttention = 256,  // leaves hidden states in the stream that have no key in a layer
};

struct MethodInfo {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view paper;    // title and where it appeared
  unsigned traits;           // of MethodTraits, see MethodInstance::switched_off
  std::vector<MethodKey> keys;
  // Checks the whole spec against the model, whatever the prompt's length; then decides whether the method
  // pays off for this prompt. Throws PruneError.
  MethodInstance (*make)(const MethodSpec& spec, const MethodContext& context);
};

// The help of a method's table of keys.
template <typename Config>
std::vector<MethodKey> HelpOf(Keys (*table)(Config&, const ModelShape&)) {
  Config defaults;
  return table(defaults, {}).Help();
}

// The last step of MethodInfo::make: the policy, or no policy and the first of the `reasons` that is not
// empty.
template <typename Policy, typename... Args>
MethodInstance MakeInstance(const Keys& keys, std::initializer_list<std::string> reasons, Args&&... args) {
  MethodInstance made{.settings = keys.Text()};
  for (const std::string& reason : reasons) {
    if (made.reason.empty()) made.reason = reason;
  }
  if (made.reason.empty()) made.policy = std::make_unique<Policy>(std::forward<Args>(args)...);
  return made;
}

// Why a method that scores with full attention cannot act, or "". In a sliding-window layer the last queries
// see no token outside the window, so their scores say nothing about the rest of the prompt. No paper tested
// its method there. In a model with windows on some layers only, what matters is which layers score.
std::string WindowReason(const MethodContext& context);
// The same for the scores of one layer, which may also not attend at all.
std::string WindowReason(const MethodContext& context, int layer);
// The same for all layers in whose attention the policy scores during prefill.
std::string WindowReason(const MethodContext& context, const TokenPolicy& policy);
// Why the policy cannot act in a model with layers that carry a state, or "". A token that left the stream is
// in no later state, so it cannot come back; and few layers have keys to evict or to choose among.
std::string StateReason(const MethodContext& context, const TokenPolicy& policy);
// Why a method that keeps at least `stays` of the prompt's tokens cannot act, or "".
std::string NothingToDrop(const MethodContext& context, int64_t stays);
// Why a prompt of this length runs densely, or "".
std::string LengthReason(const MethodContext& context, int64_t minimum);

}  // namespace coppice
