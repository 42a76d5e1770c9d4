#include "formats/iq_grids.h"

#include "formats/iq_grid_codes.h"

namespace coppice {
namespace {

// The bytes of a grid, from places in the list of magnitudes.
template <typename Entry, int kEntries, int kLevels>
consteval IqGrid<Entry, kEntries> Grid(const uint16_t (&codes)[kEntries], const uint8_t (&levels)[kLevels]) {
  constexpr int kBits = kLevels <= 4 ? 2 : 3;
  IqGrid<Entry, kEntries> grid = {};
  for (int e = 0; e < kEntries; ++e) {
    for (unsigned i = 0; i < sizeof(Entry); ++i) {
      const unsigned place = (codes[e] >> (kBits * i)) & ((1u << kBits) - 1);
      grid.at[e] |= static_cast<Entry>(levels[place]) << (8 * i);
    }
  }
  return grid;
}

}  // namespace

constinit const IqGrid<uint64_t, 256> kGridIQ2_XXS = Grid<uint64_t>(kCodesIQ2_XXS, kLevelsIQ2_XXS);
constinit const IqGrid<uint64_t, 512> kGridIQ2_XS = Grid<uint64_t>(kCodesIQ2_XS, kLevelsIQ2_XS);
constinit const IqGrid<uint64_t, 1024> kGridIQ2_S = Grid<uint64_t>(kCodesIQ2_S, kLevelsIQ2_S);
constinit const IqGrid<uint32_t, 256> kGridIQ3_XXS = Grid<uint32_t>(kCodesIQ3_XXS, kLevelsIQ3_XXS);
constinit const IqGrid<uint32_t, 512> kGridIQ3_S = Grid<uint32_t>(kCodesIQ3_S, kLevelsIQ3_S);

}  // namespace coppice
