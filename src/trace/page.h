// A trace as a page to look at.
#pragma once

#include <string>

#include "trace/trace.h"

namespace coppice {

// One self-contained HTML file: nothing is fetched, nothing sent, and equal traces give equal pages. Texts of the trace
// reach the page as JSON and are shown as text only, so that nothing in a prompt can become markup or script.
std::string TracePage(const Trace& trace);

}  // namespace coppice
