// The oracle: every operation directly from its equation, in fp32, on one thread.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace coppice {

std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace coppice
