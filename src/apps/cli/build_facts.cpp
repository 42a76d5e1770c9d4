#include "apps/cli/build_facts.h"

#include "apps/cli/commit.h"
#include "apps/cli/version.h"

namespace coppice::cli {

BuildFacts FactsOfBuild() { return {kVersion, kCommit, kBuildType, kCompiler}; }

}  // namespace coppice::cli
