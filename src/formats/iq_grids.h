// The grids of the IQ2 and IQ3 formats: an entry holds the magnitudes of eight (IQ2) or four (IQ3)
// neighbouring values, a byte each, the first in the low byte. They are above 0 and below 64.
//
// Kernels include this (kernels/cpu/kernel_table.h), so it has only plain structs and declarations.
#pragma once

#include <cstdint>

namespace coppice {

template <typename Entry, int kEntries>
struct IqGrid {
  Entry at[kEntries];
};

extern const IqGrid<uint64_t, 256> kGridIQ2_XXS;
extern const IqGrid<uint64_t, 512> kGridIQ2_XS;
extern const IqGrid<uint64_t, 1024> kGridIQ2_S;
extern const IqGrid<uint32_t, 256> kGridIQ3_XXS;
extern const IqGrid<uint32_t, 512> kGridIQ3_S;

}  // namespace coppice
