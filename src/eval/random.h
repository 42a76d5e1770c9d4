// Random numbers of samples.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/random.h"

namespace coppice {

// A stream for each sample, so that a sample does not depend on how many came before it.
Random RandomFor(uint64_t seed, std::string_view task, int64_t length, int64_t sample);

}  // namespace coppice
