// What the registry knows of a method, and what a method may ask when it is made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_shape.h"
#include "policies/dropped_mass.h"
#include "policies/policy.h"
#include "policies/spec.h"

namespace coppice {

// One key of a method, as `coppice methods` prints it.
struct MethodKey {
  std::string_view name;
  std::string_view fallback;  // in words where it depends on the model
  std::string_view range;
  std::string_view meaning;
  bool names_file = false;  // of the machine that runs the model: not for requests from elsewhere
};

// One number for each prompt token, computed when asked; may take as long as a prefill. Throws Cancelled.
using TokenScores = std::function<std::vector<float>()>;

// The prompt and the model that a policy is made for.
struct MethodContext {
  const ModelShape& shape;
  int64_t tokens = 0;                    // of the prompt
  std::span<const int32_t> prompt = {};  // their ids; may be empty where only the settings are wanted
  // Where the question stands in the prompt, whose queries score the other tokens: ascending, disjoint, none of them
  // empty, inside the prompt. Empty: not known, and the prompt's last tokens stand for it.
  std::span<const PositionSpan> question = {};
  // Gets what share of attention fell on tokens that left, where methods drop any; null: nobody asks.
  std::vector<DroppedShare>* dropped = nullptr;
  // The prompt's tokens as text, "" for control tokens. Not set where there is no tokenizer.
  std::function<std::vector<std::string>()> pieces = {};
  // For input compression: opens a second model (Error, naming the file, where it cannot) that will give -log2 p
  // of every prompt token's text after what stands before it. Not set where no text can be had.
  std::function<TokenScores(const std::string& file)> open_scorer = {};
};

// What a method made of its spec for one prompt.
struct MethodInstance {
  std::unique_ptr<TokenPolicy> policy;  // null where it stands aside
  std::string settings;                 // the full spec, every key written out: "ftp:eta=0.9,dense=3,..."
  std::string reason;                   // why it stands aside, or empty
  unsigned switched_off = 0;            // of the method's traits, those that these settings leave out
};

// What a method does to a run; which pairs make sense follows from it (registry.cpp).
enum MethodTraits : unsigned {
  kSelectsInput = 1,  // drops prompt tokens before the model
  kDropsRows = 2,     // drops hidden states between layers
  kRevives = 4,       // brings dropped tokens back while generating
  kSkipsFfn = 8,
  kSparsePrefill = 16,    // chooses the attention pattern in prefill
  kSparseDecode = 32,     // chooses which keys a generated token reads
  kEvicts = 64,           // deletes keys and values
  kMovesPositions = 128,  // keys do not stay at their positions
};

struct MethodInfo {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view paper;    // title and where it appeared
  unsigned traits;           // of MethodTraits: what it can do, see MethodInstance::switched_off
  std::vector<MethodKey> keys;
  // Validates everything in `spec` against the model, whatever the prompt's length; then decides whether the
  // method is worth its while for the prompt.
  MethodInstance (*make)(const MethodSpec& spec, const MethodContext& context);
};

// Why a method of full attention cannot act here, or "". In a sliding-window layer the last queries give
// nothing to tokens outside the window, so their scores say nothing about what the rest of the prompt needs;
// and no paper tried its method there.
std::string WindowReason(const MethodContext& context);
// Why a prompt of this length is better run densely, or "".
std::string LengthReason(const MethodContext& context, int64_t minimum);
// The first of the reasons that says something.
std::string FirstReason(std::initializer_list<std::string> reasons);

inline constexpr int64_t kManyTokens = int64_t{1} << 24;

}  // namespace coppice
