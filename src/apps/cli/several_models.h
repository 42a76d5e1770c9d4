// The models of `coppice serve` with several, from its options.
#pragma once

#include <vector>

#include "apps/cli/serve_options.h"
#include "server/model_shelf.h"

namespace coppice::cli {

// Whether the options are of several models; if not, `options` has the one. Throws Error if there is none.
bool AreSeveral(const SeveralModels& several, ServeOptions& options);

// Of each path of --model, and of each model in --models-dir. They share the memory of `options`' caches.
// `server` are the options of the address. Throws Error, naming the option.
std::vector<ShelvedModel> ShelvedModels(const SeveralModels& several, const ServeOptions& options,
                                        const ServerOptions& server);
ShelfLimits LimitsOf(const SeveralModels& several);

}  // namespace coppice::cli
