// What a server says of itself when it is ready.
#pragma once

#include <string>

#include "apps/cli/serve_options.h"
#include "engine/engine.h"

namespace coppice::cli {

// Lines of a name and what it is, each with its end: the model, the context, what computes, the memory that
// may be used, and the method of requests that do not choose. `packed_bytes`: EngineOptions::packed_bytes.
std::string ReadyText(Engine& engine, const ServeOptions& options, int64_t packed_bytes);

}  // namespace coppice::cli
