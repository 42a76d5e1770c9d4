// The files of the trace page (web/trace/, web/lib/), as the build compiles them in, in the order in which
// page.cpp joins them.
#pragma once

#include <span>

#include "base/embedded_file.h"

namespace coppice {

// index.html holds the marks <!--coppice:style-->, <!--coppice:data--> and <!--coppice:script-->, in this
// order.
std::span<const EmbeddedFile> TracePageFiles();

}  // namespace coppice
