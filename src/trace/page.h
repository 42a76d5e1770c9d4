// A trace as an HTML page.
#pragma once

#include <string>

#include "trace/trace.h"

namespace coppice {

// One self-contained HTML file: it loads and sends nothing, and equal traces give equal pages. Texts of the
// trace are in the page as JSON and are shown only as text, so that a prompt cannot become markup or script.
std::string TracePage(const Trace& trace);

}  // namespace coppice
