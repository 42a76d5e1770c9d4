// Vector functions over V, shared by the kernels of every ISA.

// 2^f for f in [-0.5, 0.5], with a relative error below 1e-7 in fp32, and exactly 1 at 0. The coefficients
// interpolate (2^f - 1) / f at the six Chebyshev nodes, with an error of 5e-9 before rounding.
inline V Pow2Fraction(V f) {
  V p = V::Set(1.5453162939509034e-4f);
  p = V::Fma(p, f, V::Set(1.339086336462805e-3f));
  p = V::Fma(p, f, V::Set(9.618082557302569e-3f));
  p = V::Fma(p, f, V::Set(5.550357114219147e-2f));
  p = V::Fma(p, f, V::Set(2.4022650760567846e-1f));
  p = V::Fma(p, f, V::Set(6.931471880262285e-1f));
  return V::Fma(p, f, V::Set(1.0f));
}

// 2^x for x <= 127. 0 for x below -126.5 and at -infinity, so that no denormal slows later products.
inline V Exp2(V x) {
  x = V::Max(V::Set(-127.0f), x);  // with this order of operands a NaN stays a NaN
  const V n = V::Round(x);
  return Pow2Fraction(x - n) * V::Pow2(n);
}

// e^x. 0 for x below about -87.7; 1.7e38 for x above 88.
inline V Exp(V x) {
  x = V::Max(V::Set(-88.0f), V::Min(V::Set(88.0f), x));
  const V n = V::Round(x * V::Set(1.44269504f));
  // ln 2 in two parts; the first has so few bits that its product with n is exact.
  V r = V::Fma(n, V::Set(-0.693359375f), x);
  r = V::Fma(n, V::Set(2.12194440e-4f), r);
  return Pow2Fraction(r * V::Set(1.44269504f)) * V::Pow2(n);
}

// x / (1 + e^-x)
inline V SiluOf(V x) { return x / (V::Set(1.0f) + Exp(V::Set(0.0f) - x)); }

// 0.5 x (1 + tanh(t)) = x / (1 + e^(-2 t)) with t = sqrt(2 / pi) (x + 0.044715 x^3). This avoids the
// cancellation of 1 + tanh(t) for negative t.
inline V GeluOf(V x) {
  const V t = V::Set(0.79788456f) * x * (V::Set(1.0f) + V::Set(0.044715f) * x * x);
  return x / (V::Set(1.0f) + Exp(V::Set(-2.0f) * t));
}

// up / (1 + e^-gate)
inline V SigmoidGated(V gate, V up) { return up / (V::Set(1.0f) + Exp(V::Set(0.0f) - gate)); }

// max(gate, 0) up; with this order of operands a NaN stays a NaN.
inline V ReluGated(V gate, V up) { return V::Max(V::Set(0.0f), gate) * up; }

// gpt-oss's (kernels/activation.h)
inline V SwiGluOai(V gate, V up) {
  const V h = V::Min(gate, V::Set(7.0f));
  const V v = V::Max(V::Set(-7.0f), V::Min(V::Set(7.0f), up));
  return h / (V::Set(1.0f) + Exp(V::Set(-1.702f) * h)) * (v + V::Set(1.0f));
}

inline V Activated(Activation activation, V gate, V up) {
  if (activation == Activation::kSwiGluOai) return SwiGluOai(gate, up);
  if (activation == Activation::kIdentity) return gate * up;
  if (activation == Activation::kRelu) return ReluGated(gate, up);
  if (activation == Activation::kSigmoid) return SigmoidGated(gate, up);
  return (activation == Activation::kGelu ? GeluOf(gate) : SiluOf(gate)) * up;
}

// The last `count` < kLanes values of a row, zero-padded.
inline V LoadPart(const float* p, int64_t count) {
  float lanes[V::kLanes] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
  return V::Load(lanes);
}

inline void StorePart(V v, float* p, int64_t count) {
  float lanes[V::kLanes];
  v.Store(lanes);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}
