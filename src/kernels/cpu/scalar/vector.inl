// A vector of one float: the kernels in plain C++, for CPUs without AVX2.
struct V {
  static constexpr int kLanes = 1;
  float v;

  static V Set(float a) { return {a}; }
  static V Load(const float* p) { return {*p}; }
  static V LoadF16(const uint16_t* p) { return {ToFloat(F16{*p})}; }
  static V LoadBf16(const uint16_t* p) { return {ToFloat(BF16{*p})}; }
  static void LoadTwoF16(const uint16_t* p, V* two) {
    two[0] = LoadF16(p);
    two[1] = LoadF16(p + kLanes);
  }
  static void LoadPairsBf16(const uint16_t* p, V* two) {
    two[0] = LoadBf16(p);
    two[1] = LoadBf16(p + kLanes);
  }
  void Store(float* p) const { *p = v; }
  void StoreF16(uint16_t* p) const { *p = ToF16(v).bits; }
  void StoreBf16(uint16_t* p) const { *p = ToBF16(v).bits; }

  friend V operator+(V a, V b) { return {a.v + b.v}; }
  friend V operator-(V a, V b) { return {a.v - b.v}; }
  friend V operator*(V a, V b) { return {a.v * b.v}; }
  friend V operator/(V a, V b) { return {a.v / b.v}; }
  // a * b + c, rounded twice, since a fused operation is a library call on such CPUs.
  static V Fma(V a, V b, V c) { return {a.v * b.v + c.v}; }
  // b if either is NaN, like the vector instructions.
  static V Max(V a, V b) { return {a.v > b.v ? a.v : b.v}; }
  static V Min(V a, V b) { return {a.v < b.v ? a.v : b.v}; }
  // Rounds to the nearest integer, for |v| < 2^22: adding and subtracting 1.5 * 2^23 leaves no bits for a
  // fraction.
  static V Round(V a) { return {(a.v + 12582912.0f) - 12582912.0f}; }
  // 2^n for an integer n in [-127, 127]; 2^-127 becomes 0.
  static V Pow2(V n) {
    const uint32_t bits =
        n.v == n.v ? static_cast<uint32_t>(static_cast<int32_t>(n.v) + 127) << 23 : 0x3f800000u;
    V r;
    __builtin_memcpy(&r.v, &bits, sizeof r.v);
    return r;
  }
  // a if begin <= j < end, else b.
  static V SelectInRange(V j, V begin, V end, V a, V b) { return j.v >= begin.v && j.v < end.v ? a : b; }
  static bool AllEqual(V a, V b) { return a.v == b.v; }
  static void Transpose(V (&)[kLanes]) {}
  float Sum() const { return v; }
};

// Integers for the codes of quantised blocks.
struct Codes {
  int32_t v;

  static Codes Load(const std::byte* p) { return {static_cast<int32_t>(*p)}; }
  static Codes LoadSigned(const std::byte* p) { return {static_cast<signed char>(*p)}; }
  Codes Bits(int shift, int mask) const { return {(v >> shift) & mask}; }
  // Bit `first` of a word, as 0 or 1.
  static Codes Spread(uint32_t word, int first) { return {static_cast<int32_t>((word >> first) & 1u)}; }
  Codes WithHigh(Codes high, int shift) const { return {v | (high.v << shift)}; }
  Codes Minus(int offset) const { return {v - offset}; }
  V ToFloat() const { return {static_cast<float>(v)}; }
};

// codes[i] and codes[i + 16] = the entries of the table at the low and the high nibble of byte i of q.
inline void LookUpNibbles(const signed char* table, const std::byte* q, std::byte* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<std::byte>(table[static_cast<int>(q[i]) & 15]);
    codes[i + 16] = static_cast<std::byte>(table[static_cast<int>(q[i]) >> 4]);
  }
}

float HalfToFloat(const std::byte* p) {
  F16 h;
  __builtin_memcpy(&h, p, sizeof h);
  return ToFloat(h);
}
float SquareRoot(float a) { return __builtin_sqrtf(a); }
