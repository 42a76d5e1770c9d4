// Row-wise kernels: norms, rotary embedding, activations, conversions.

// y[i] = f(y[i], x[i]) over a row. The tail passes through a buffer, so that its lanes use the same
// arithmetic.
template <typename F>
void MapRow(const float* x, int64_t count, float* y, F f) {
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) f(V::Load(y + i), V::Load(x + i)).Store(y + i);
  if (i < count) StorePart(f(LoadPart(y + i, count - i), LoadPart(x + i, count - i)), y + i, count - i);
}

void Add(const float* x, int64_t count, float* y) {
  MapRow(x, count, y, [](V b, V a) { return b + a; });
}

void SiluMul(float* gate, const float* up, int64_t count) {
  MapRow(up, count, gate, [](V g, V u) { return SiluOf(g) * u; });
}

void GeluMul(float* gate, const float* up, int64_t count) {
  MapRow(up, count, gate, [](V g, V u) { return GeluOf(g) * u; });
}

void SwiGluOaiMul(float* gate, const float* up, int64_t count) {
  MapRow(up, count, gate, [](V g, V u) { return SwiGluOai(g, u); });
}

void SigmoidMul(float* gate, const float* up, int64_t count) {
  MapRow(up, count, gate, [](V g, V u) { return SigmoidGated(g, u); });
}

void PlainMul(float* gate, const float* up, int64_t count) {
  MapRow(up, count, gate, [](V g, V u) { return g * u; });
}

void ReluMul(float* gate, const float* up, int64_t count) {
  MapRow(up, count, gate, [](V g, V u) { return ReluGated(g, u); });
}

void Gelu(float* x, int64_t count) {
  MapRow(x, count, x, [](V v, V) { return GeluOf(v); });
}

// The sum over x with four running sums; f(v, sum) returns `sum` plus the terms of v.
template <typename F>
float SumRow(const float* x, int64_t count, F f) {
  V sums[4] = {V::Set(0.0f), V::Set(0.0f), V::Set(0.0f), V::Set(0.0f)};
  int64_t i = 0;
  for (; i + 4 * V::kLanes <= count; i += 4 * V::kLanes) {
    for (int s = 0; s < 4; ++s) sums[s] = f(V::Load(x + i + s * V::kLanes), sums[s]);
  }
  for (; i + V::kLanes <= count; i += V::kLanes) sums[0] = f(V::Load(x + i), sums[0]);
  float total = ((sums[0] + sums[1]) + (sums[2] + sums[3])).Sum();
  if (i < count) {  // lane by lane: f may be nonzero for the padding
    float lanes[V::kLanes];
    f(LoadPart(x + i, count - i), V::Set(0.0f)).Store(lanes);
    for (int64_t t = 0; t < count - i; ++t) total += lanes[t];
  }
  return total;
}

void RmsNorm(const float* x, const float* weight, int64_t count, float eps, float* y) {
  const float squares = SumRow(x, count, [](V v, V sum) { return V::Fma(v, v, sum); });
  const V inverse = V::Set(1.0f / SquareRoot(squares / static_cast<float>(count) + eps));
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    (V::Load(x + i) * inverse * V::Load(weight + i)).Store(y + i);
  }
  const int64_t rest = count - i;
  if (rest > 0) StorePart(LoadPart(x + i, rest) * inverse * LoadPart(weight + i, rest), y + i, rest);
}

void LayerNorm(const float* x, const float* weight, const float* bias, int64_t count, float eps, float* y) {
  const float sum = SumRow(x, count, [](V v, V s) { return s + v; });
  const V mean = V::Set(sum / static_cast<float>(count));
  // The mean of squared differences; mean(x^2) - mean^2 would cancel for a large mean.
  const float squares = SumRow(x, count, [mean](V v, V s) { return V::Fma(v - mean, v - mean, s); });
  const V inverse = V::Set(1.0f / SquareRoot(squares / static_cast<float>(count) + eps));
  const auto normalise = [&](V v, V w, V b) { return V::Fma((v - mean) * inverse, w, b); };
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) {
    normalise(V::Load(x + i), V::Load(weight + i), V::Load(bias + i)).Store(y + i);
  }
  const int64_t rest = count - i;
  if (rest == 0) return;
  StorePart(normalise(LoadPart(x + i, rest), LoadPart(weight + i, rest), LoadPart(bias + i, rest)), y + i,
            rest);
}

// The compiler vectorises both forms. The two values of a pair are 1 (interleaved) or `pairs` apart.
void Rope(float* x, int64_t heads, int64_t head_dim, const float* cos, const float* sin, int64_t pairs,
          bool interleaved) {
  for (int64_t h = 0; h < heads; ++h) {
    float* __restrict v = x + h * head_dim;
    if (interleaved) {
      for (int64_t i = 0; i < pairs; ++i) {
        const float a = v[2 * i];
        const float b = v[2 * i + 1];
        v[2 * i] = a * cos[i] - b * sin[i];
        v[2 * i + 1] = a * sin[i] + b * cos[i];
      }
    } else {
      float* __restrict second = v + pairs;
      for (int64_t i = 0; i < pairs; ++i) {
        const float a = v[i];
        const float b = second[i];
        v[i] = a * cos[i] - b * sin[i];
        second[i] = a * sin[i] + b * cos[i];
      }
    }
  }
}

template <typename F>
void NarrowRow(const float* x, int64_t count, uint16_t* y, F store) {
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) store(V::Load(x + i), y + i);
  if (i == count) return;
  uint16_t lanes[V::kLanes];
  store(LoadPart(x + i, count - i), lanes);
  for (int64_t t = 0; t < count - i; ++t) y[i + t] = lanes[t];
}

void ToF16Row(const float* x, int64_t count, uint16_t* y) {
  NarrowRow(x, count, y, [](V v, uint16_t* p) { v.StoreF16(p); });
}

// Blocks of 32 codes with an fp16 scale: d = max |x| / 127, codes x / d rounded to nearest.
void ToQ8Row(const float* x, int64_t count, std::byte* blocks) {
  for (int64_t i = 0; i < count; i += 32, blocks += 34) {
    V most = V::Set(0.0f);
    for (int c = 0; c < 32; c += V::kLanes) {
      const V v = V::Load(x + i + c);
      most = V::Max(most, V::Max(v, V::Set(0.0f) - v));
    }
    float lanes[V::kLanes];
    most.Store(lanes);
    float largest = 0.0f;
    for (int lane = 0; lane < V::kLanes; ++lane) largest = lanes[lane] > largest ? lanes[lane] : largest;
    const float d = largest / 127.0f;
    uint16_t halves[V::kLanes];
    V::Set(d).StoreF16(halves);
    __builtin_memcpy(blocks, halves, sizeof halves[0]);
    const V inverse = V::Set(d > 1e-38f ? 1.0f / d : 0.0f);  // a smaller d is 0 in fp16
    float rounded[32];
    for (int c = 0; c < 32; c += V::kLanes) V::Round(V::Load(x + i + c) * inverse).Store(rounded + c);
    for (int c = 0; c < 32; ++c) blocks[2 + c] = static_cast<std::byte>(static_cast<int>(rounded[c]));
  }
}

void ToBf16Row(const float* x, int64_t count, uint16_t* y) {
  NarrowRow(x, count, y, [](V v, uint16_t* p) { v.StoreBf16(p); });
}
