// The style sheet of the pages that `coppice eval` writes; charts have their own (kChartStyle).
#pragma once

namespace coppice {

extern const char kPageStyle[];

}  // namespace coppice
