// Random numbers of samples.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/random.h"

namespace coppice {

// Each sample has its own random stream, so that it does not depend on the samples before it.
Random RandomFor(uint64_t seed, std::string_view task, int64_t length, int64_t sample);

}  // namespace coppice
