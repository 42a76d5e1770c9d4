// The calibrations of models/calibrations/, as the build compiles them in.
#pragma once

#include <span>

#include "base/embedded_file.h"

namespace coppice {

std::span<const EmbeddedFile> CalibrationFiles();

}  // namespace coppice
