// The time that a run of `coppice bench` would take at the dense run's rates.
#pragma once

#include "apps/cli/bench_report.h"
#include "formats/model_shape.h"
#include "kernels/timed_backend.h"
#include "model/ledger.h"

namespace coppice::cli {

// The time of a part in the rounds whose time to first token is the median, so that parts and rest add up to
// it: medians of each part for itself need not. On a device one round alone is timed.
double PartMs(const BenchSample& sample, OpKind kind);

struct Bounds {
  double time_ms;  // with everything else of the dense run unchanged; but see BoundsOf
  double rate;     // of products and attention alone: the dense run's time in both over the method's
};

// Products and attention shrink with their FLOPs, the recurrence with its rows. Packing costs what it costs
// densely, but for experts that the method's rows do not read. A second question computes few rows even in
// the first layer, so the work done by rows shrinks with the products.
Bounds BoundsOf(const ModelShape& shape, const Ledger& ledger, bool is_second, const BenchSample& dense);

}  // namespace coppice::cli
