// Several methods as one policy, with the rows that no method may touch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "policies/policy.h"

namespace coppice {

// Rows that stay whatever the methods say: the last one always, and by position the first and last of the
// prompt, and spans of it (a system prompt, a tool schema, a message).
struct Protection {
  using Span = PositionSpan;
  int64_t first = 0;
  int64_t last = 0;
  std::vector<Span> spans = {};
};

// Sets of the same question are intersected, protected rows are added back, the last row always. `ffn` is
// taken inside `keep` by construction: the layer asks RunFfn of the stream that is left. Pattern, Retain and
// Attend are answered by the one method that answers them; the registry refuses two. Every answer is checked
// (its universe is the stream; TokenSet keeps it sorted, unique and in range). With no policies this is the
// dense policy.
std::unique_ptr<TokenPolicy> Compose(std::vector<std::unique_ptr<TokenPolicy>> policies,
                                     const Protection& protection);

}  // namespace coppice
