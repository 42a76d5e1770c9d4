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
//
// A method sees protected rows and counts them: a share to keep is one of the whole prompt, and protected
// rows that score high take places of others. `apart`: methods neither see nor count those at the
// prompt's beginning (FrontOf); a share is one of what follows. Not for methods that choose a prompt's input,
// keys to evict, or by unit scores, which are of the whole prompt.
struct Protection {
  using Span = PositionSpan;
  int64_t first = 0;
  int64_t last = 0;
  std::vector<Span> spans = {};
  bool apart = false;
};

// The protected positions of a prompt of `tokens` tokens: ascending, without overlaps.
std::vector<PositionSpan> SpansOf(const Protection& protection, int64_t tokens);
// The number of protected rows at the beginning of the prompt that methods neither see nor count; 0 unless
// `apart` is set. Less than `tokens`.
int64_t FrontOf(const Protection& protection, int64_t tokens);

// Intersects the answers of all methods to a question, then adds the protected rows and the last row. RunFfn
// chooses among the rows that stay, because the layer asks it about the stream that is left. Pattern, Retain
// and Attend have at most one answering method; the registry refuses two. Checks that the universe of every
// answer is the stream (TokenSet keeps it sorted, unique and in range). Without policies the result is the
// dense policy. `meter` measures the answers that drop rows.
std::unique_ptr<TokenPolicy> Compose(std::vector<std::unique_ptr<TokenPolicy>> policies,
                                     const Protection& protection,
                                     std::optional<DroppedMassMeter> meter = {});

}  // namespace coppice
