// The command `train sdtp`.
#pragma once

#include <CLI/CLI.hpp>

namespace coppice::train {

void AddSdtp(CLI::App& app);

}  // namespace coppice::train
