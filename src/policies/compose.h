// Several methods as one policy, with protected rows that no method may drop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "policies/dropped_mass.h"
#include "policies/policy.h"

namespace coppice {

// Rows that always stay: the first and last positions of the prompt, and spans of it (a system prompt, a tool
// schema, a message). The last row stays in any case.
struct Protection {
  using Span = PositionSpan;
  int64_t first = 0;
  int64_t last = 0;
  std::vector<Span> spans = {};
};

// The protected positions of a prompt of `tokens` tokens: ascending, without overlaps.
std::vector<PositionSpan> SpansOf(const Protection& protection, int64_t tokens);

// Intersects the answers of all methods to a question, then adds the protected rows and the last row. RunFfn
// chooses among the rows that stay, because the layer asks it about the stream that is left. Pattern, Retain
// and Attend have at most one answering method; the registry refuses two. Checks that the universe of every
// answer is the stream (TokenSet keeps it sorted, unique and in range). Without policies the result is the
// dense policy. `meter` measures the answers that drop rows.
std::unique_ptr<TokenPolicy> Compose(std::vector<std::unique_ptr<TokenPolicy>> policies,
                                     const Protection& protection,
                                     std::optional<DroppedMassMeter> meter = {});

}  // namespace coppice
