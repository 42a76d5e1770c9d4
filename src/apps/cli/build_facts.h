// What this program was built from.
#pragma once

#include "server/server.h"

namespace coppice::cli {

BuildFacts FactsOfBuild();

}  // namespace coppice::cli
