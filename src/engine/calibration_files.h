// The calibrations of models/calibrations/, which the build embeds in the program.
#pragma once

#include <span>

#include "base/embedded_file.h"

namespace coppice {

std::span<const EmbeddedFile> CalibrationFiles();

}  // namespace coppice
