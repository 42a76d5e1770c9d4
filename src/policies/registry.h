// Every pruning method, named once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policies/compose.h"
#include "policies/policy.h"
#include "policies/shape.h"
#include "policies/spec.h"

namespace coppice {

// One key of a method, as `coppice methods` prints it.
struct MethodKey {
  std::string_view name;
  std::string_view fallback;  // in words where it depends on the model
  std::string_view range;
  std::string_view meaning;
};

// What a method made of its spec for one prompt.
struct MethodInstance {
  std::unique_ptr<TokenPolicy> policy;  // null where it stands aside
  std::string settings;                 // the full spec, every key written out: "ftp:eta=0.9,dense=3,..."
  std::string reason;                   // why it stands aside, or empty
};

struct MethodInfo {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view paper;    // title and where it appeared
  std::vector<MethodKey> keys;
  // Validates everything in `spec` against the model, whatever the prompt's length; then decides whether the
  // method is worth its while at `tokens`.
  MethodInstance (*make)(const MethodSpec& spec, const ModelShape& shape, int64_t tokens);
};

// In the order in which `coppice methods` lists them.
std::span<const MethodInfo> Methods();

// A whole --prune spec for one prompt.
struct PruneChoice {
  std::unique_ptr<TokenPolicy> policy;  // always there; the dense policy where nothing is pruned
  std::string spec;                     // canonical: every key written out; "none" for dense
  bool active = false;                  // some method acts
  std::string reason;                   // which methods stood aside, and why; empty where none did
};

// Throws Error for an unknown method, key or value, a layer out of range, or a combination that makes no
// sense.
PruneChoice MakePolicy(std::string_view spec, const ModelShape& shape, int64_t tokens,
                       const Protection& protection);

}  // namespace coppice
