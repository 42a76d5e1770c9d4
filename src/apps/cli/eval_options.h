// The options of samples, which `eval` and `tune` share.
#pragma once

#include <CLI/CLI.hpp>

#include "eval/runner.h"

namespace coppice::cli {

void AddSampleOptions(CLI::App& app, EvalOptions& options);

}  // namespace coppice::cli
