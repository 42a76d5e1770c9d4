#include "formats/iq_blocks.h"

#include <bit>

#include "formats/iq_grids.h"

namespace coppice {
namespace {

constexpr int kGroups = 8;  // of 32 values

// Eight signs in seven bits: bit i is set if value i is negative, and an even number of the eight are.
unsigned EightSigns(unsigned seven) { return seven | static_cast<unsigned>(std::popcount(seven) % 2) << 7; }

uint32_t Word(const uint8_t* p) {
  return p[0] | static_cast<uint32_t>(p[1]) << 8 | static_cast<uint32_t>(p[2]) << 16 |
         static_cast<uint32_t>(p[3]) << 24;
}

// The values of an entry of a grid; bit i of `signs` is that of value i.
template <typename Entry>
void Put(Entry magnitudes, unsigned signs, int8_t* code) {
  for (unsigned i = 0; i < sizeof(Entry); ++i) {
    const auto magnitude = static_cast<int>((magnitudes >> (8 * i)) & 255);
    code[i] = static_cast<int8_t>((signs >> i) & 1 ? -magnitude : magnitude);
  }
}

int8_t Odd(unsigned scale) { return static_cast<int8_t>(2 * scale + 1); }

// The scales of the two halves of group j.
void PutScales(unsigned first, unsigned second, int j, IqCodes& c) {
  c.scale[2 * j] = Odd(first);
  c.scale[2 * j + 1] = Odd(second);
}

}  // namespace

IqCodes IqCodesOf(const BlockIQ2_XXS& b) {
  IqCodes c = {.d = b.d, .unit = 0.125f, .scale = {}, .code = {}};
  for (int j = 0; j < kGroups; ++j) {
    const uint8_t* group = b.q + 8 * j;
    const uint32_t signs = Word(group + 4);
    PutScales(signs >> 28, signs >> 28, j, c);
    for (int k = 0; k < 4; ++k)
      Put(kGridIQ2_XXS.at[group[k]], EightSigns((signs >> (7 * k)) & 127), c.code + 32 * j + 8 * k);
  }
  return c;
}

IqCodes IqCodesOf(const BlockIQ2_XS& b) {
  IqCodes c = {.d = b.d, .unit = 0.125f, .scale = {}, .code = {}};
  for (int j = 0; j < kGroups; ++j) {
    PutScales(b.scales[j] & 15u, b.scales[j] >> 4, j, c);
    for (int k = 0; k < 4; ++k) {
      const unsigned place = b.q[8 * j + 2 * k] | static_cast<unsigned>(b.q[8 * j + 2 * k + 1]) << 8;
      Put(kGridIQ2_XS.at[place & 511], EightSigns(place >> 9), c.code + 32 * j + 8 * k);
    }
  }
  return c;
}

IqCodes IqCodesOf(const BlockIQ2_S& b) {
  IqCodes c = {.d = b.d, .unit = 0.125f, .scale = {}, .code = {}};
  for (int j = 0; j < kGroups; ++j) {
    PutScales(b.scales[j] & 15u, b.scales[j] >> 4, j, c);
    for (int k = 0; k < 4; ++k) {
      const unsigned high = (b.high[j] >> (2 * k)) & 3u;
      Put(kGridIQ2_S.at[b.q[4 * j + k] | high << 8], b.signs[4 * j + k], c.code + 32 * j + 8 * k);
    }
  }
  return c;
}

IqCodes IqCodesOf(const BlockIQ3_XXS& b) {
  IqCodes c = {.d = b.d, .unit = 0.25f, .scale = {}, .code = {}};
  for (int j = 0; j < kGroups; ++j) {
    const uint32_t signs = Word(b.signs + 4 * j);
    PutScales(signs >> 28, signs >> 28, j, c);
    for (int k = 0; k < 8; ++k) {
      const unsigned of_eight = EightSigns((signs >> (k / 2 * 7)) & 127);
      Put(kGridIQ3_XXS.at[b.q[8 * j + k]], of_eight >> (k % 2 * 4), c.code + 32 * j + 4 * k);
    }
  }
  return c;
}

IqCodes IqCodesOf(const BlockIQ3_S& b) {
  IqCodes c = {.d = b.d, .unit = 1, .scale = {}, .code = {}};
  for (int j = 0; j < kGroups; ++j) {
    const unsigned scale = (b.scales[j / 2] >> (j % 2 * 4)) & 15u;
    PutScales(scale, scale, j, c);
    for (int k = 0; k < 8; ++k) {
      const unsigned high = (b.high[j] >> k) & 1u;
      const unsigned signs = b.signs[4 * j + k / 2];
      Put(kGridIQ3_S.at[b.q[8 * j + k] | high << 8], signs >> (k % 2 * 4), c.code + 32 * j + 4 * k);
    }
  }
  return c;
}

}  // namespace coppice
