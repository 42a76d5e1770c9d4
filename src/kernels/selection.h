// Selects rows by score: the host-side half of every pruning method, shared by backends that keep scores in
// host memory.
//
// Rank order is (score descending, row ascending). -0 equals +0, and a NaN ranks below every number. This
// order is total, so equal scores give the same set on every machine and with any number of threads.
#pragma once

#include <cstdint>

#include "tensor/token_set.h"
#include "tensor/view.h"

namespace coppice {

// The best `k` rows of scores [1, n] fp32: all rows if k >= n, none if k <= 0. O(n).
TokenSet SelectTopK(const TensorView& scores, int64_t k);

// The shortest prefix of the rank order, of at least one row, whose sum reaches eta * (sum of all) (FTP, eq.
// 2 and 3). The sums are fp64 in rank order, and the total is the last of them, so rounding cannot make a
// prefix miss a total that it equals. A NaN counts as 0. Returns all rows if eta >= 1 or NaN, and if the
// total is not above 0: such scores do not say which rows matter, and keeping too many is the safe error. O(n
// log n).
TokenSet SelectSmallestSetWithMass(const TensorView& scores, double eta);

}  // namespace coppice
