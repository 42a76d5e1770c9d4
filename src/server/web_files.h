// The files of the server's page (web/server/, web/lib/), as the build compiles them in.
#pragma once

#include <span>

#include "base/embedded_file.h"

namespace coppice {

std::span<const EmbeddedFile> WebFiles();

}  // namespace coppice
