#include "policies/registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/nearest.h"
#include "policies/methods/coppice.h"
#include "policies/methods/drop.h"
#include "policies/methods/fastkv.h"
#include "policies/methods/flashprefill.h"
#include "policies/methods/flexprefill.h"
#include "policies/methods/ftp.h"
#include "policies/methods/gemfilter.h"
#include "policies/methods/h2o.h"
#include "policies/methods/lazyllm.h"
#include "policies/methods/llmlingua2.h"
#include "policies/methods/minference.h"
#include "policies/methods/pyramidinfer.h"
#include "policies/methods/quest.h"
#include "policies/methods/random_drop.h"
#include "policies/methods/sdtp.h"
#include "policies/methods/selective_context.h"
#include "policies/methods/sliminfer.h"
#include "policies/methods/snapkv.h"
#include "policies/methods/specprefill.h"
#include "policies/methods/spts.h"
#include "policies/methods/static_pruning.h"
#include "policies/methods/streamingllm.h"
#include "policies/methods/uniprefill.h"
#include "policies/methods/xattention.h"

namespace coppice {

namespace {

const std::vector<MethodInfo>& MethodList() {
  static const std::vector<MethodInfo> methods = {
      LazyLlmMethod(),
      FtpMethod(),
      SdtpMethod(),
      SlimInferMethod(),
      CoppiceMethod(),
      // The baselines.
      RandomDropMethod(),
      SelectiveContextMethod(),
      LlmLingua2Method(),
      StaticPruningMethod(),
      PyramidInferMethod(),
      UniPrefillMethod(),
      FastKvMethod(),
      SptsMethod(),
      StreamingLlmMethod(),
      H2oMethod(),
      SnapKvMethod(),
      QuestMethod(),
      MInferenceMethod(),
      FlexPrefillMethod(),
      XAttentionMethod(),
      FlashPrefillMethod(),
      SpecPrefillMethod(),
      GemFilterMethod(),
      // A probe.
      DropMethod(),
  };
  return methods;
}

// Two traits that cannot be combined, in either order, and why.
struct Conflict {
  unsigned one;
  unsigned other;
  const char* why;  // {0} has `one`, {1} has `other`
};

constexpr Conflict kConflicts[] = {
    {kRevives, kRevives,
     "{0} and {1} both decide which tokens come back from one Aux cache: each would undo the other's choice"},
    {kRevives, kEvicts, "{1} deletes keys that {0} attends again when their tokens come back"},
    {kRevives, kSkipsAttention,
     "a token that {0} brings back needs its keys of all earlier layers, and {1} stores few of them"},
    {kRevives, kDropsRows, "{1} drops tokens for good, and {0} would bring them back"},
    {kEvicts, kEvicts, "{0} and {1} both delete keys: neither could hold its budget"},
    {kSparsePrefill, kSparsePrefill, "{0} and {1} both choose the attention pattern of prefill"},
    {kSparseDecode, kSparseDecode, "{0} and {1} both choose which keys a generated token reads"},
    {kSparseDecode, kEvicts,
     "{0} needs pages that hold the same tokens in every kv head, and {1} evicts by head"},
    {kSkipsAttention, kSkipsAttention, "{0} and {1} both choose which tokens attend"},
    {kSkipsAttention, kEvicts, "{0} and {1} both decide which keys a layer stores"},
    {kSkipsAttention, kSparsePrefill,
     "{1} chooses a pattern over all tokens, and {0} lets few of them attend"},
    {kMovesPositions, kDropsRows, "{0} numbers tokens by their slot, and what {1} drops leaves no slots"},
};

// A method of a spec with its settings. Methods that do not act on this prompt count too: whether a spec is
// valid must not depend on the prompt's length.
struct Named {
  std::string_view name;
  unsigned traits;
};

void RefuseConflict(const Named& a, const Named& b) {
  for (const Conflict& conflict : kConflicts) {
    for (const auto& [x, y] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      if ((x->traits & conflict.one) != 0 && (y->traits & conflict.other) != 0) {
        throw PruneError("{}+{}: {}", a.name, b.name,
                         fmt::format(fmt::runtime(conflict.why), x->name, y->name));
      }
    }
  }
}

bool SelectsInput(const std::vector<MethodSpec>& methods) {
  return std::any_of(methods.begin(), methods.end(), [](const MethodSpec& method) {
    return (FindMethod(method.name).traits & kSelectsInput) != 0;
  });
}

// Whether a policy can answer without seeing the prompt's first rows (Protection::apart).
bool AnswersBehind(const TokenPolicy& policy, int layers) {
  if (policy.Facts().fills) return false;
  for (int l = 0; l < layers; ++l) {
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      if (policy.RetainsAt(phase, l) || !policy.NeedsAt(phase, l).unit_scores.empty()) return false;
    }
  }
  return true;
}

PruneChoice MakeChoice(const std::vector<MethodSpec>& methods, const MethodContext& whole,
                       const Protection& protection) {
  PruneChoice choice;
  MethodContext context = whole;
  // If some tokens do not enter the model, others may take new positions: the question's positions are then
  // unknown.
  const bool selects = SelectsInput(methods);
  if (selects) {
    context.question = {};
    context.evidence = {};
  }
  MethodContext renumbered = context;  // the text at each position is then unknown too
  renumbered.pieces = {};
  // Methods that select the input come first: the other methods' budgets and break-even lengths count only
  // tokens that enter.
  std::vector<MethodInstance> made(methods.size());
  for (const bool selecting : {true, false}) {
    for (size_t i = 0; i < methods.size(); ++i) {
      const MethodInfo& info = FindMethod(methods[i].name);
      if (((info.traits & kSelectsInput) != 0) != selecting) continue;
      made[i] = info.make(methods[i], selects && !selecting ? renumbered : context);
      if (made[i].policy) made[i].reason = WindowReason(renumbered, *made[i].policy);
      if (made[i].policy && made[i].reason.empty()) made[i].reason = StateReason(renumbered, *made[i].policy);
      if (!made[i].reason.empty()) made[i].policy = nullptr;
      if (made[i].entering >= 0) renumbered.tokens = std::min(renumbered.tokens, made[i].entering);
    }
  }
  std::vector<std::unique_ptr<TokenPolicy>> policies;
  std::vector<Named> named;
  for (size_t m = 0; m < methods.size(); ++m) {
    const MethodInfo& info = FindMethod(methods[m].name);
    named.push_back({info.name, info.traits & ~made[m].switched_off});
    for (size_t i = 0; i + 1 < named.size(); ++i) RefuseConflict(named[i], named.back());
    choice.spec += (choice.spec.empty() ? "" : "+") + made[m].settings;
    if (made[m].policy) {
      policies.push_back(std::move(made[m].policy));
    } else {
      choice.reason +=
          fmt::format("{}{}: {}", choice.reason.empty() ? "" : "; ", methods[m].name, made[m].reason);
    }
  }
  if (choice.spec.empty()) choice.spec = "none";
  choice.active = !policies.empty();
  unsigned traits = 0;
  for (const Named& method : named) traits |= method.traits;
  std::optional<DroppedMassMeter> meter;
  if (choice.active && context.dropped != nullptr && (traits & kDropsRows) != 0) {
    LayerPoint first = kNoPoint;
    for (const auto& policy : policies) first = std::min(first, policy->FirstChoice());
    meter.emplace(first, context.dropped);
  }
  choice.policy = Compose(std::move(policies), protection, meter);
  return choice;
}

}  // namespace

const MethodInfo& FindMethod(std::string_view name) {
  std::string names;
  std::vector<std::string> known = {"none", "auto"};
  for (const MethodInfo& method : MethodList()) {
    if (method.name == name) return method;
    names += fmt::format(", {}", method.name);
    known.emplace_back(method.name);
  }
  const std::string meant = Nearest(name, known);
  if (meant.empty()) throw PruneError("no method '{}'; there are none{}", name, names);
  throw PruneError("no method '{}': did you mean {}? There are none{}", name, meant, names);
}

std::span<const MethodInfo> Methods() { return MethodList(); }

PruneChoice MakePolicy(std::string_view spec, const MethodContext& whole, const Protection& protection) {
  const std::vector<MethodSpec> methods = ParseSpec(spec);
  const int64_t front = FrontOf(protection, whole.tokens);
  if (front > 0 && !SelectsInput(methods)) {
    MethodContext behind = whole;
    behind.tokens -= front;
    PruneChoice choice = MakeChoice(methods, behind, protection);
    if (AnswersBehind(*choice.policy, whole.shape.layer_count())) return choice;
  }
  Protection counted = protection;
  counted.apart = false;
  return MakeChoice(methods, whole, counted);
}

}  // namespace coppice
