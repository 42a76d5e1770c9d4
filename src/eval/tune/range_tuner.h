// One length of `coppice tune`: its tasks and samples, the search, and the test on the other half.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "eval/tune/trials.h"
#include "eval/tune/tune.h"

namespace coppice {

// `seconds`: that it may take; infinite: no limit. What was done when it ends or is cancelled is in the
// result. Throws Error, not Cancelled.
RangeResult TuneRange(const TuneOptions& options, Engine& engine, Trials& trials, double seconds,
                      const SearchNote& note, int64_t length);

}  // namespace coppice
