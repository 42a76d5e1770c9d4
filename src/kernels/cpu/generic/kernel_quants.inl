// Dequantises blocks to fp32. Layouts: ggml's block_* structs, in the order of DType. The oracle is
// formats/quants.h.

inline int Byte(const std::byte* p, int i) { return static_cast<int>(p[i]); }
inline int Signed(const std::byte* p, int i) { return static_cast<signed char>(p[i]); }
inline int Low(const std::byte* p, int i) { return Byte(p, i) & 15; }
inline int High(const std::byte* p, int i) { return Byte(p, i) >> 4; }

inline uint32_t Word(const std::byte* p) {
  uint32_t w;
  __builtin_memcpy(&w, p, sizeof w);
  return w;
}

// y[i] = scale * codes(i), or scale * codes(i) + shift, for kCount values. The product and the sum are never
// fused, so the values are bit-equal to the oracle's.
template <int kCount, typename F>
inline void Scaled(float scale, float* y, F codes) {
  for (int i = 0; i < kCount; i += V::kLanes) (V::Set(scale) * codes(i).ToFloat()).Store(y + i);
}
template <int kCount, typename F>
inline void Scaled(float scale, float shift, float* y, F codes) {
  for (int i = 0; i < kCount; i += V::kLanes)
    (V::Set(scale) * codes(i).ToFloat() + V::Set(shift)).Store(y + i);
}

// Each format: values per block, bytes per block, and the conversion of one block to fp32. Formats in which
// 32 values share a scale also have Steps: y[i * stride] is the difference of neighbouring codes' values in
// group i of 32.
struct Q4_0 {
  static constexpr int kValues = 32, kBytes = 18;
  static void Steps(const std::byte* b, float* y, int64_t) { *y = HalfToFloat(b); }
  static void Decode(const std::byte* b, float* y) {
    const float d = HalfToFloat(b);
    Scaled<16>(d, y, [b](int i) { return Codes::Load(b + 2 + i).Bits(0, 15).Minus(8); });
    Scaled<16>(d, y + 16, [b](int i) { return Codes::Load(b + 2 + i).Bits(4, 15).Minus(8); });
  }
};

struct Q4_1 {
  static constexpr int kValues = 32, kBytes = 20;
  static void Steps(const std::byte* b, float* y, int64_t) { *y = HalfToFloat(b); }
  static void Decode(const std::byte* b, float* y) {
    const float d = HalfToFloat(b);
    const float m = HalfToFloat(b + 2);
    Scaled<16>(d, m, y, [b](int i) { return Codes::Load(b + 4 + i).Bits(0, 15); });
    Scaled<16>(d, m, y + 16, [b](int i) { return Codes::Load(b + 4 + i).Bits(4, 15); });
  }
};

// One word holds the fifth bits of all 32 values: bit i belongs to value i.
struct Q5_0 {
  static constexpr int kValues = 32, kBytes = 22;
  static void Steps(const std::byte* b, float* y, int64_t) { *y = HalfToFloat(b); }
  static void Decode(const std::byte* b, float* y) {
    const float d = HalfToFloat(b);
    const uint32_t fifth = Word(b + 2);
    for (int half = 0; half < 2; ++half) {
      Scaled<16>(d, y + 16 * half, [=](int i) {
        const Codes high = Codes::Spread(fifth, 16 * half + i);
        return Codes::Load(b + 6 + i).Bits(4 * half, 15).WithHigh(high, 4).Minus(16);
      });
    }
  }
};

struct Q5_1 {
  static constexpr int kValues = 32, kBytes = 24;
  static void Steps(const std::byte* b, float* y, int64_t) { *y = HalfToFloat(b); }
  static void Decode(const std::byte* b, float* y) {
    const float d = HalfToFloat(b);
    const float m = HalfToFloat(b + 2);
    const uint32_t fifth = Word(b + 4);
    for (int half = 0; half < 2; ++half) {
      Scaled<16>(d, m, y + 16 * half, [=](int i) {
        return Codes::Load(b + 8 + i).Bits(4 * half, 15).WithHigh(Codes::Spread(fifth, 16 * half + i), 4);
      });
    }
  }
};

struct Q8_0 {
  static constexpr int kValues = 32, kBytes = 34;
  static void Steps(const std::byte* b, float* y, int64_t) { *y = HalfToFloat(b); }
  static void Decode(const std::byte* b, float* y) {
    Scaled<32>(HalfToFloat(b), y, [b](int i) { return Codes::LoadSigned(b + 2 + i); });
  }
};

// Block: scales [16] (4 bits scale, 4 bits minimum), quants [64], d, dmin.
struct Q2_K {
  static constexpr int kValues = 256, kBytes = 84;
  static void Decode(const std::byte* b, float* y) {
    const float d = HalfToFloat(b + 80);
    const float dmin = HalfToFloat(b + 82);
    for (int j = 0; j < 16; ++j) {  // values [16 j, 16 j + 16) share one scale
      const std::byte* q = b + 16 + 32 * (j / 8) + 16 * (j % 2);
      const float scale = d * static_cast<float>(Low(b, j));
      const float minimum = dmin * static_cast<float>(High(b, j));
      Scaled<16>(scale, -minimum, y + 16 * j,
                 [=](int i) { return Codes::Load(q + i).Bits(2 * (j / 2 % 4), 3); });
    }
  }
};

// Block: high bits [32], quants [64], scales [12] of 6 bits, d.
struct Q3_K {
  static constexpr int kValues = 256, kBytes = 110;
  static void Decode(const std::byte* b, float* y) {
    const float d = HalfToFloat(b + 108);
    const std::byte* scales = b + 96;
    for (int j = 0; j < 16; ++j) {
      const std::byte* q = b + 32 + 32 * (j / 8) + 16 * (j % 2);
      const std::byte* high = b + 16 * (j % 2);
      const int low4 = j < 8 ? Low(scales, j) : High(scales, j - 8);
      const int top2 = (Byte(scales, 8 + j % 4) >> (2 * (j / 4))) & 3;
      const float scale = d * static_cast<float>((low4 | (top2 << 4)) - 32);
      Scaled<16>(scale, y + 16 * j, [=](int i) {
        const Codes third = Codes::Load(high + i).Bits(j / 2, 1);
        return Codes::Load(q + i).Bits(2 * (j / 2 % 4), 3).WithHigh(third, 2).Minus(4);
      });
    }
  }
};

// Scale and minimum of group j of Q4_K and Q5_K, six bits each. The upper two bits of groups 4 to 7 are
// stored with groups 0 to 3.
inline void ScaleAndMinimum(const std::byte* s, int j, int* scale, int* minimum) {
  if (j < 4) {
    *scale = Byte(s, j) & 63;
    *minimum = Byte(s, j + 4) & 63;
  } else {
    *scale = Low(s, j + 4) | ((Byte(s, j - 4) >> 6) << 4);
    *minimum = High(s, j + 4) | ((Byte(s, j) >> 6) << 4);
  }
}

// Decodes eight groups of 32; codes(j, i) is value i of group j.
template <typename F>
inline void DecodeGroups(const std::byte* b, float* y, F codes) {
  const float d = HalfToFloat(b);
  const float dmin = HalfToFloat(b + 2);
  for (int j = 0; j < 8; ++j) {
    int scale = 0, minimum = 0;
    ScaleAndMinimum(b + 4, j, &scale, &minimum);
    Scaled<32>(d * static_cast<float>(scale), -(dmin * static_cast<float>(minimum)), y + 32 * j,
               [=](int i) { return codes(j, i); });
  }
}

inline void GroupSteps(const std::byte* b, float* y, int64_t stride) {
  const float d = HalfToFloat(b);
  for (int j = 0; j < 8; ++j) {
    int scale = 0, minimum = 0;
    ScaleAndMinimum(b + 4, j, &scale, &minimum);
    y[j * stride] = d * static_cast<float>(scale);
  }
}

// Block: d, dmin, scales [12], quants [128].
struct Q4_K {
  static constexpr int kValues = 256, kBytes = 144;
  static void Steps(const std::byte* b, float* y, int64_t stride) { GroupSteps(b, y, stride); }
  static void Decode(const std::byte* b, float* y) {
    DecodeGroups(b, y,
                 [b](int j, int i) { return Codes::Load(b + 16 + 32 * (j / 2) + i).Bits(4 * (j % 2), 15); });
  }
};

// Block: d, dmin, scales [12], fifth bits [32], quants [128].
struct Q5_K {
  static constexpr int kValues = 256, kBytes = 176;
  static void Steps(const std::byte* b, float* y, int64_t stride) { GroupSteps(b, y, stride); }
  static void Decode(const std::byte* b, float* y) {
    DecodeGroups(b, y, [b](int j, int i) {
      const Codes fifth = Codes::Load(b + 16 + i).Bits(j, 1);
      return Codes::Load(b + 48 + 32 * (j / 2) + i).Bits(4 * (j % 2), 15).WithHigh(fifth, 4);
    });
  }
};

// Block: low four bits [128], upper two [64], scales [16] signed, d.
struct Q6_K {
  static constexpr int kValues = 256, kBytes = 210;
  static void Decode(const std::byte* b, float* y) {
    const float d = HalfToFloat(b + 208);
    for (int j = 0; j < 16; ++j) {
      const int quarter = j / 2 % 4;  // of this half's 128 values, 32 each
      const std::byte* low = b + 64 * (j / 8) + 32 * (quarter % 2) + 16 * (j % 2);
      const std::byte* high = b + 128 + 32 * (j / 8) + 16 * (j % 2);
      Scaled<16>(d * static_cast<float>(Signed(b + 192, j)), y + 16 * j, [=](int i) {
        const Codes upper = Codes::Load(high + i).Bits(2 * quarter, 3);
        return Codes::Load(low + i).Bits(4 * (quarter / 2), 15).WithHigh(upper, 4).Minus(32);
      });
    }
  }
};

// The values of codes in the low and in the high nibbles of 16 bytes, from a table. The tables are those of
// formats/quant_blocks.h.
alignas(16) constexpr signed char kTableIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                   1,    13,   25,  38,  53,  69,  89,  113};
alignas(16) constexpr signed char kTableMXFP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
inline void ScaledByTable(float scale, const signed char* table, const std::byte* q, float* y) {
  alignas(16) std::byte codes[32];
  LookUpNibbles(table, q, codes);
  Scaled<32>(scale, y, [&codes](int i) { return Codes::LoadSigned(codes + i); });
}

struct IQ4_NL {
  static constexpr int kValues = 32, kBytes = 18;
  static void Decode(const std::byte* b, float* y) { ScaledByTable(HalfToFloat(b), kTableIQ4, b + 2, y); }
};

// 2^(e - 128) for a byte e.
inline float PowerOfTwo(int e) {
  const uint32_t bits = e < 2 ? 0x200000u << e : static_cast<uint32_t>(e - 1) << 23;
  float power;
  __builtin_memcpy(&power, &bits, sizeof power);
  return power;
}

struct MXFP4 {
  static constexpr int kValues = 32, kBytes = 17;
  // 0, unknown, where the reciprocal of a 32nd of the step could overflow.
  static void Steps(const std::byte* b, float* y, int64_t) {
    constexpr int kLeast = 16;
    *y = Byte(b, 0) < kLeast ? 0.0f : PowerOfTwo(Byte(b, 0));
  }
  static void Decode(const std::byte* b, float* y) {
    ScaledByTable(PowerOfTwo(Byte(b, 0)), kTableMXFP4, b + 1, y);
  }
};

// Block: d, upper two bits of scales [2], lower four [4], quants [128].
struct IQ4_XS {
  static constexpr int kValues = 256, kBytes = 136;
  static void Decode(const std::byte* b, float* y) {
    const float d = HalfToFloat(b);
    for (int j = 0; j < 8; ++j) {
      const int low = (Byte(b, 4 + j / 2) >> (j % 2 * 4)) & 15;
      const int high = (Byte(b, 2 + j / 4) >> (j % 4 * 2)) & 3;
      ScaledByTable(d * static_cast<float>((low | high << 4) - 32), kTableIQ4, b + 8 + 16 * j, y + 32 * j);
    }
  }
};

// The codes of eight magnitudes from 1 to 62; bit i of `signs` is that of code i.
inline uint64_t WithSigns(uint64_t magnitudes, unsigned signs) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  const uint64_t bits = ((signs & 255) * kOnes) & 0x8040201008040201;  // bit i in byte i
  const uint64_t low = 0x7f * kOnes;
  const uint64_t negative = ((((bits & low) + low) | bits) >> 7) & kOnes;  // 1 in bytes of a set bit
  return (magnitudes ^ (negative * 255)) + negative;  // no byte carries, because no magnitude is 0
}

template <typename Grid>
struct OfGrid {
  static constexpr int kValues = 256, kBytes = Grid::kBytes;
  static float Scale(uint64_t nibbles, int i) {
    return static_cast<float>(2 * static_cast<int>((nibbles >> (4 * i)) & 15) + 1);
  }
  // Of formats whose magnitudes are the odd numbers: neighbouring codes differ by 2.
  static void Steps(const std::byte* b, float* y, int64_t stride) {
    static_assert(Grid::kOdd);
    const uint64_t scales = Grid::ScaleNibbles(b);
    const float two = 2 * HalfToFloat(b) * Grid::kUnit;
    for (int j = 0; j < 8; ++j) y[j * stride] = two * Scale(scales, 2 * j);
  }
  static void Decode(const std::byte* b, float* y) {
    const float d = HalfToFloat(b) * Grid::kUnit;
    const uint64_t scales = Grid::ScaleNibbles(b);
    for (int j = 0; j < 8; ++j) {
      alignas(16) std::byte codes[32];
      const uint32_t signs = Grid::Signs(b, j);
      for (int k = 0; k < 4; ++k) {
        const uint64_t eight = WithSigns(Grid::Eight(b, j, k), signs >> (8 * k));
        __builtin_memcpy(codes + 8 * k, &eight, sizeof eight);
      }
      for (int half = 0; half < 2; ++half) {
        Scaled<16>(d * Scale(scales, 2 * j + half), y + 32 * j + 16 * half,
                   [&codes, half](int i) { return Codes::LoadSigned(codes + 16 * half + i); });
      }
    }
  }
};

using IQ2_XXS = OfGrid<GridIQ2_XXS>;
using IQ2_XS = OfGrid<GridIQ2_XS>;
using IQ2_S = OfGrid<GridIQ2_S>;
using IQ3_XXS = OfGrid<GridIQ3_XXS>;
using IQ3_S = OfGrid<GridIQ3_S>;

template <typename Format>
void DequantizeBlocks(const std::byte* blocks, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += Format::kValues, blocks += Format::kBytes)
    Format::Decode(blocks, y + i);
}

template <typename Format>
void StepsOfBlocks(const std::byte* blocks, int64_t count, float* y, int64_t stride) {
  for (int64_t i = 0; i < count; i += Format::kValues, blocks += Format::kBytes)
    Format::Steps(blocks, y + i / 32 * stride, stride);
}

void CopyF32(const std::byte* x, int64_t count, float* y) {
  __builtin_memcpy(y, x, static_cast<size_t>(count) * sizeof(float));
}

template <typename F>
void WidenRow(const std::byte* x, int64_t count, float* y, F load) {
  const uint16_t* in = reinterpret_cast<const uint16_t*>(x);
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) load(in + i).Store(y + i);
  if (i == count) return;
  uint16_t lanes[V::kLanes] = {};
  for (int64_t t = 0; t < count - i; ++t) lanes[t] = in[i + t];
  StorePart(load(lanes), y + i, count - i);
}

void WidenF16(const std::byte* x, int64_t count, float* y) {
  WidenRow(x, count, y, [](const uint16_t* p) { return V::LoadF16(p); });
}

void WidenBf16(const std::byte* x, int64_t count, float* y) {
  WidenRow(x, count, y, [](const uint16_t* p) { return V::LoadBf16(p); });
}
