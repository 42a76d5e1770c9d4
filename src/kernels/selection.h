// Which rows of a list of scores to keep: the host-side half of every pruning method, shared by the backends
// that keep scores in host memory.
//
// Rank order is (score descending, row ascending); -0 equals +0, and a NaN ranks below every number. It is a
// total order, so that equal scores give the same set on every machine and with every number of threads.
#pragma once

#include <cstdint>

#include "tensor/token_set.h"
#include "tensor/view.h"

namespace coppice {

// The best `k` rows of scores [1, n] fp32: all where k >= n, none where k <= 0. O(n).
TokenSet SelectTopK(const TensorView& scores, int64_t k);

// The smallest prefix of the rank order whose sum reaches eta * (sum of all), at least one row (FTP, eq. 2
// and 3). Sums run in fp64 in rank order, and the total is the last of them, so that rounding cannot make a
// prefix miss a total that it equals. A NaN counts as 0. All rows where eta >= 1 (or is NaN), and where the
// total is not above 0: scores without mass say nothing about which rows matter, and keeping too much is the
// safe mistake. O(n log n).
TokenSet SelectSmallestSetWithMass(const TensorView& scores, double eta);

}  // namespace coppice
