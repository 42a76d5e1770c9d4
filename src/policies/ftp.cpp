// FTP: FFN token pruning for long prompts. No training, prefill only, the KV cache stays whole.
//
// Over n tokens the FFN costs 6 n d I flops. FTP runs it only on the tokens that the prompt's end looks at:
//   s_i  = sum_h sum_{q in last Nq} A[h,q,i]                      (1) importance
//   S    = smallest set with sum_{i in S} s_i >= eta sum_i s_i    (2) how many, of the middle P <= i < n - Nq
//   h'_i = h_i + FFN(norm(h_i)) if i in S, else h_i               (3) the residual carries the rest
// The first P and the last Nq tokens always run. (2) and the tie rule: Backend::SmallestSetWithMass. The
// paper's pseudo-code compares with ">", its equation 3 with ">="; the equation holds here, and eta = 1 is
// dense.
//
// Composed with a method that drops rows, (1) and (2) range over the survivors, and P stays a limit on
// positions.
#include "policies/ftp.h"

#include <algorithm>

namespace coppice {

Needs FtpPolicy::NeedsAt(int layer) const {
  if (IsDense(layer)) return {};
  return {.mass_queries = {config_.num_queries}, .unit_scores = {}};  // (1)
}

TokenSet FtpPolicy::RunFfn(const Observation& seen, Backend& be) {
  const int64_t rows = seen.rows();
  if (seen.phase != Phase::kPrefill || IsDense(seen.layer)) return TokenSet::All(rows);
  const auto begin = std::lower_bound(seen.positions.begin(), seen.positions.end(), config_.first);
  const int64_t first = begin - seen.positions.begin();
  const int64_t middle = rows - first - config_.num_queries;
  if (middle <= 0) return TokenSet::All(rows);
  const TensorView mass = seen.AttentionMass(config_.num_queries).Cols(first, middle);
  return be
      .SmallestSetWithMass(mass, config_.eta)  // (2)
      .Shift(first, rows)
      .UnionFirst(first)
      .UnionLast(config_.num_queries);  // Layer::Ffn applies (3)
}

}  // namespace coppice
