// The super-blocks of IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S as their products read them. Layouts:
// formats/quant_blocks.h; the oracle is formats/iq_blocks.h. Value i of a block is
//
//   d kUnit (2 scale[i / 16] + 1) code[i],   |code| <= 62

inline unsigned IqByte(const std::byte* p, int i) { return static_cast<unsigned>(p[i]); }
inline uint32_t IqWord(const std::byte* p) {
  uint32_t w;
  __builtin_memcpy(&w, p, sizeof w);
  return w;
}

// Four times the signs of eight values in seven bits each, in the low 28, as four bytes: the eighth bit makes
// the number of set ones even.
inline uint32_t FourTimesEightSigns(uint32_t sevens) {
  const uint32_t bytes =
      (sevens & 0x7f) | ((sevens << 1) & 0x7f00) | ((sevens << 2) & 0x7f0000) | ((sevens << 3) & 0x7f000000);
  uint32_t odd = bytes ^ (bytes >> 4);  // the parity of a byte, in its lowest bit
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return bytes | ((odd & 0x01010101) << 7);
}

// Scale j of eight to bytes: twice in byte j, a nibble each, as IQ2_XS has them.
inline uint64_t NibblesTwice(uint32_t nibbles) {
  uint64_t s = nibbles;
  s = (s | (s << 16)) & 0x0000ffff0000ffff;
  s = (s | (s << 8)) & 0x00ff00ff00ff00ff;
  s = (s | (s << 4)) & 0x0f0f0f0f0f0f0f0f;
  return s | (s << 4);
}

// The scales in the top bits of eight words, kStep bytes apart.
template <int kStep>
inline uint64_t TopNibblesTwice(const std::byte* p) {
  uint32_t nibbles = 0;
  for (int j = 0; j < 8; ++j) nibbles |= IqWord(p + j * kStep) >> 28 << (4 * j);
  return NibblesTwice(nibbles);
}

inline uint64_t IqScaleBytes(const std::byte* p) {
  uint64_t s;
  __builtin_memcpy(&s, p, sizeof s);
  return s;
}

// Each format: bytes per block; kUnit; the scales, a nibble for each 16 values, the first in the lowest; the
// magnitudes of values 32 j + 8 k to 32 j + 8 k + 7, a byte each; the signs of group j of 32 values, a bit
// each.
struct GridIQ2_XXS {
  static constexpr int kBytes = 66;
  static constexpr float kUnit = 0.125f;
  static uint64_t ScaleNibbles(const std::byte* b) { return TopNibblesTwice<8>(b + 6); }
  static uint64_t Eight(const std::byte* b, int j, int k) {
    return kGridIQ2_XXS.at[IqByte(b, 2 + 8 * j + k)];
  }
  static uint32_t Signs(const std::byte* b, int j) { return FourTimesEightSigns(IqWord(b + 6 + 8 * j)); }
};

struct GridIQ2_XS {
  static constexpr int kBytes = 74;
  static constexpr float kUnit = 0.125f;
  static uint64_t ScaleNibbles(const std::byte* b) { return IqScaleBytes(b + 66); }
  static unsigned Place(const std::byte* b, int j, int k) {
    const int at = 2 + 8 * j + 2 * k;
    return IqByte(b, at) | (IqByte(b, at + 1) << 8);
  }
  static uint64_t Eight(const std::byte* b, int j, int k) { return kGridIQ2_XS.at[Place(b, j, k) & 511]; }
  static uint32_t Signs(const std::byte* b, int j) {
    uint32_t sevens = 0;
    for (int k = 0; k < 4; ++k) sevens |= Place(b, j, k) >> 9 << (7 * k);
    return FourTimesEightSigns(sevens);
  }
};

struct GridIQ2_S {
  static constexpr int kBytes = 82;
  static constexpr float kUnit = 0.125f;
  static uint64_t ScaleNibbles(const std::byte* b) { return IqScaleBytes(b + 74); }
  static uint64_t Eight(const std::byte* b, int j, int k) {
    const unsigned high = IqByte(b, 66 + j) >> (2 * k);
    return kGridIQ2_S.at[IqByte(b, 2 + 4 * j + k) | ((high & 3) << 8)];
  }
  static uint32_t Signs(const std::byte* b, int j) { return IqWord(b + 34 + 4 * j); }
};

inline uint64_t TwoFours(uint32_t first, uint32_t second) {
  return first | static_cast<uint64_t>(second) << 32;
}

struct GridIQ3_XXS {
  static constexpr int kBytes = 98;
  static constexpr float kUnit = 0.25f;
  static uint64_t ScaleNibbles(const std::byte* b) { return TopNibblesTwice<4>(b + 66); }
  static uint64_t Eight(const std::byte* b, int j, int k) {
    const int at = 2 + 8 * j + 2 * k;
    return TwoFours(kGridIQ3_XXS.at[IqByte(b, at)], kGridIQ3_XXS.at[IqByte(b, at + 1)]);
  }
  static uint32_t Signs(const std::byte* b, int j) { return FourTimesEightSigns(IqWord(b + 66 + 4 * j)); }
};

struct GridIQ3_S {
  static constexpr int kBytes = 110;
  static constexpr float kUnit = 1;
  static constexpr bool kOdd = true;  // its magnitudes are odd numbers
  static uint64_t ScaleNibbles(const std::byte* b) { return NibblesTwice(IqWord(b + 106)); }
  static uint64_t Eight(const std::byte* b, int j, int k) {
    const int at = 2 + 8 * j + 2 * k;
    const unsigned ninths = IqByte(b, 66 + j) >> (2 * k);
    return TwoFours(kGridIQ3_S.at[IqByte(b, at) | ((ninths & 1) << 8)],
                    kGridIQ3_S.at[IqByte(b, at + 1) | ((ninths & 2) << 7)]);
  }
  static uint32_t Signs(const std::byte* b, int j) { return IqWord(b + 74 + 4 * j); }
};
