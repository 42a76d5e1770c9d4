#include "benchmarks/roofline.h"

#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/check.h"

namespace coppice::roofline {

namespace {

using Clock = std::chrono::steady_clock;

#include "kernels/cpu/amx/tiles.inl"

// Twelve sums: an FMA takes four or five cycles and two may begin in each. Assembly, because a compiler would see
// that nobody reads the sums. Factors are ones: sums of zeros may draw less power, and so clock higher, than any
// real product.
#define COPPICE_TWELVE(instruction, r)                                                                    \
  instruction " %%" r "14, %%" r "15, %%" r "0\n\t" instruction " %%" r "14, %%" r "15, %%" r             \
              "1\n\t" instruction " %%" r "14, %%" r "15, %%" r "2\n\t" instruction " %%" r "14, %%" r    \
              "15, %%" r "3\n\t" instruction " %%" r "14, %%" r "15, %%" r "4\n\t" instruction " %%" r    \
              "14, %%" r "15, %%" r "5\n\t" instruction " %%" r "14, %%" r "15, %%" r "6\n\t" instruction \
              " %%" r "14, %%" r "15, %%" r "7\n\t" instruction " %%" r "14, %%" r "15, %%" r             \
              "8\n\t" instruction " %%" r "14, %%" r "15, %%" r "9\n\t" instruction " %%" r "14, %%" r    \
              "15, %%" r "10\n\t" instruction " %%" r "14, %%" r "15, %%" r "11\n\t"
#define COPPICE_CLEAR(r)                                                                               \
  "vpxor %%xmm0, %%xmm0, %%xmm0\n\t vpxor %%xmm1, %%xmm1, %%xmm1\n\t vpxor %%xmm2, %%xmm2, %%xmm2\n\t" \
  "vpxor %%xmm3, %%xmm3, %%xmm3\n\t vpxor %%xmm4, %%xmm4, %%xmm4\n\t vpxor %%xmm5, %%xmm5, %%xmm5\n\t" \
  "vpxor %%xmm6, %%xmm6, %%xmm6\n\t vpxor %%xmm7, %%xmm7, %%xmm7\n\t vpxor %%xmm8, %%xmm8, %%xmm8\n\t" \
  "vpxor %%xmm9, %%xmm9, %%xmm9\n\t vpxor %%xmm10, %%xmm10, %%xmm10\n\t vpxor %%xmm11, %%xmm11, %%xmm11\n\t"
#define COPPICE_PEAK_LOOP(instruction, r)                                                                  \
  __asm__ volatile("vbroadcastss %1, %%" r "14\n\t vbroadcastss %1, %%" r "15\n\t" COPPICE_CLEAR(          \
                       r) "1:\n\t" COPPICE_TWELVE(instruction, r) "dec %0\n\t jnz 1b\n\t vzeroupper"       \
                   : "+r"(steps)                                                                           \
                   : "m"(factor)                                                                           \
                   : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
                     "xmm10", "xmm11", "xmm14", "xmm15")

// What AVX2 has for codes: int16 by int16, added in pairs, and one more instruction for the sum.
#define COPPICE_PAIRS(sum) \
  "vpmaddwd %%ymm14, %%ymm15, %%ymm13\n\t vpaddd %%ymm13, %%ymm" sum ", %%ymm" sum "\n\t"
#define COPPICE_TWELVE_PAIRS \
  COPPICE_PAIRS("0")         \
  COPPICE_PAIRS("1")         \
  COPPICE_PAIRS("2")         \
  COPPICE_PAIRS("3")         \
  COPPICE_PAIRS("4")         \
  COPPICE_PAIRS("5")         \
  COPPICE_PAIRS("6")         \
  COPPICE_PAIRS("7")         \
  COPPICE_PAIRS("8")         \
  COPPICE_PAIRS("9")         \
  COPPICE_PAIRS("10")        \
  COPPICE_PAIRS("11")

constexpr size_t kSums = 12;
constexpr uint32_t kOne = 0x3f800000;      // fp32
constexpr uint32_t kTwoOnes = 0x3f803f80;  // bf16
constexpr uint32_t kFourOnes = 0x01010101;
constexpr uint32_t kTwoWords = 0x00010001;

void Fp32Avx2(size_t steps) {
  const uint32_t factor = kOne;
  COPPICE_PEAK_LOOP("vfmadd231ps", "ymm");
}
void Int8Avx2(size_t steps) {
  const uint32_t factor = kTwoWords;
  __asm__ volatile("vbroadcastss %1, %%ymm14\n\t vbroadcastss %1, %%ymm15\n\t" COPPICE_CLEAR(
                       "ymm") "1:\n\t" COPPICE_TWELVE_PAIRS "dec %0\n\t jnz 1b\n\t vzeroupper"
                   : "+r"(steps)
                   : "m"(factor)
                   : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                     "xmm10", "xmm11", "xmm13", "xmm14", "xmm15");
}
void Fp32Avx512(size_t steps) {
  const uint32_t factor = kOne;
  COPPICE_PEAK_LOOP("vfmadd231ps", "zmm");
}
void Bf16Avx512(size_t steps) {
  const uint32_t factor = kTwoOnes;
  COPPICE_PEAK_LOOP("vdpbf16ps", "zmm");
}
void Int8Avx512(size_t steps) {
  const uint32_t factor = kFourOnes;
  COPPICE_PEAK_LOOP("vpdpbusd", "zmm");
}

// Six sums: a product of tiles takes 52 cycles and one may begin every 16.
constexpr size_t kTileSums = 6;
#define COPPICE_SIX_TILES(instruction)                                                            \
  instruction " %%tmm7, %%tmm6, %%tmm0\n\t" instruction " %%tmm7, %%tmm6, %%tmm1\n\t" instruction \
              " %%tmm7, %%tmm6, %%tmm2\n\t" instruction " %%tmm7, %%tmm6, %%tmm3\n\t" instruction \
              " %%tmm7, %%tmm6, %%tmm4\n\t" instruction " %%tmm7, %%tmm6, %%tmm5\n\t"

void LoadTiles(uint32_t factor) {
  alignas(64) std::array<uint32_t, 256> ones;
  ones.fill(factor);
  ConfigureTiles();
  LoadTile<6>(ones.data(), 64);
  LoadTile<7>(ones.data(), 64);
  ZeroTile<0>();
  ZeroTile<1>();
  ZeroTile<2>();
  ZeroTile<3>();
  ZeroTile<4>();
  ZeroTile<5>();
}
void Bf16Amx(size_t steps) {
  LoadTiles(kTwoOnes);
  __asm__ volatile("1:\n\t" COPPICE_SIX_TILES("tdpbf16ps") "dec %0\n\t jnz 1b" : "+r"(steps) : : "cc");
  ReleaseTiles();
}
void Int8Amx(size_t steps) {
  LoadTiles(kFourOnes);
  __asm__ volatile("1:\n\t" COPPICE_SIX_TILES("tdpbssd") "dec %0\n\t jnz 1b" : "+r"(steps) : : "cc");
  ReleaseTiles();
}

constexpr PeakInfo kPeaks[] = {
    {Peak::kFp32Avx2, "avx2_fp32", Isa::kAvx2, [] { return Cpu().avx2; }},
    {Peak::kInt8Avx2, "avx2_int8", Isa::kAvx2, [] { return Cpu().avx2; }},
    {Peak::kFp32Avx512, "avx512_fp32", Isa::kAvx512, [] { return Cpu().avx512; }},
    {Peak::kBf16Avx512, "avx512_bf16", Isa::kAvx512, [] { return Cpu().avx512_bf16; }},
    {Peak::kInt8Avx512, "avx512_int8", Isa::kAvx512, [] { return Cpu().avx512_vnni; }},
    {Peak::kBf16Amx, "amx_bf16", Isa::kAmx, [] { return Cpu().amx; }},
    {Peak::kInt8Amx, "amx_int8", Isa::kAmx, [] { return Cpu().amx; }}};

// Seconds that all threads take for body(thread), begun together.
double Together(int threads, const std::function<void(int thread)>& body) {
  std::atomic<int> waiting{threads};
  std::vector<Clock::time_point> begins(static_cast<size_t>(threads));
  std::vector<Clock::time_point> ends(static_cast<size_t>(threads));
  const auto one = [&](int thread) {
    --waiting;
    while (waiting > 0) std::this_thread::yield();
    begins[static_cast<size_t>(thread)] = Clock::now();
    body(thread);
    ends[static_cast<size_t>(thread)] = Clock::now();
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back(one, t);
    one(0);
  }
  return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) -
                                       *std::min_element(begins.begin(), begins.end()))
      .count();
}

}  // namespace

std::span<const PeakInfo> Peaks() { return kPeaks; }

std::string_view NameOf(Peak peak) { return kPeaks[static_cast<size_t>(peak)].name; }

double RunPeak(Peak peak, size_t steps) {
  COPPICE_CHECK(steps > 0);
  const auto count = static_cast<double>(steps);
  switch (peak) {
    case Peak::kFp32Avx2:
      Fp32Avx2(steps);
      return count * kSums * 8 * 2;
    case Peak::kInt8Avx2:
      Int8Avx2(steps);
      return count * kSums * 16 * 2;
    case Peak::kFp32Avx512:
      Fp32Avx512(steps);
      return count * kSums * 16 * 2;
    case Peak::kBf16Avx512:
      Bf16Avx512(steps);
      return count * kSums * 32 * 2;
    case Peak::kInt8Avx512:
      Int8Avx512(steps);
      return count * kSums * 64 * 2;
    case Peak::kBf16Amx:
      Bf16Amx(steps);
      return count * kTileSums * 16 * 16 * 32 * 2;
    case Peak::kInt8Amx:
      Int8Amx(steps);
      return count * kTileSums * 16 * 16 * 64 * 2;
  }
  return 0;
}

double MeasurePeak(Peak peak, int threads, double seconds) {
  COPPICE_CHECK(threads >= 1 && seconds > 0);
  // How many steps fill the time, from a burst of a tenth of a millisecond or so, after one that wakes the unit.
  constexpr size_t kTrial = 8192;
  RunPeak(peak, kTrial);
  const double trial = Together(1, [&](int) { RunPeak(peak, kTrial); });
  const auto steps = static_cast<size_t>(std::max(1.0, seconds / trial * kTrial));
  std::vector<double> operations(static_cast<size_t>(threads));
  const double took =
      Together(threads, [&](int thread) { operations[static_cast<size_t>(thread)] = RunPeak(peak, steps); });
  double sum = 0;
  for (const double one : operations) sum += one;
  return sum / took;
}

Peak BestPeak(Isa isa, bool int8, int threads) {
  Peak best = Peak::kFp32Avx2;
  double rate = 0;
  for (const PeakInfo& info : kPeaks) {
    const bool bytes =
        info.peak == Peak::kInt8Avx2 || info.peak == Peak::kInt8Avx512 || info.peak == Peak::kInt8Amx;
    if (!info.there() || info.isa > isa || (bytes && !int8)) continue;
    const double its = MeasurePeak(info.peak, threads);
    if (its > rate) best = info.peak;
    rate = std::max(rate, its);
  }
  return best;
}

// ---- Memory

namespace {

__attribute__((target("avx2"))) float Read(const float* a, size_t count) {
  __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  for (size_t i = 0; i < count; i += 32) {
    for (size_t k = 0; k < 4; ++k) sums[k] = _mm256_add_ps(sums[k], _mm256_load_ps(a + i + 8 * k));
  }
  return _mm256_cvtss_f32(_mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3])));
}

__attribute__((target("avx2"))) void Triad(float* a, const float* b, const float* c, size_t count) {
  const __m256 s = _mm256_set1_ps(3);
  for (size_t i = 0; i < count; i += 8)
    _mm256_store_ps(a + i, _mm256_add_ps(_mm256_load_ps(b + i), _mm256_mul_ps(s, _mm256_load_ps(c + i))));
}

__attribute__((target("avx2"))) void TriadNonTemporal(float* a, const float* b, const float* c,
                                                      size_t count) {
  const __m256 s = _mm256_set1_ps(3);
  for (size_t i = 0; i < count; i += 8)
    _mm256_stream_ps(a + i, _mm256_add_ps(_mm256_load_ps(b + i), _mm256_mul_ps(s, _mm256_load_ps(c + i))));
  _mm_sfence();
}

// Floats per array: at least 64 MiB, four times the last cache, and no more than half a GiB.
size_t ArrayFloats() {
  const long cache = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), long{0});
  const size_t bytes =
      std::clamp<size_t>(4 * static_cast<size_t>(cache), size_t{64} << 20, size_t{512} << 20);
  return bytes / sizeof(float) / 1024 * 1024;
}

}  // namespace

struct Memory::Arrays {
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  size_t count = ArrayFloats();
  std::array<std::unique_ptr<float, Free>, 3> arrays;
  int threads = 1;
  std::atomic<float> kept = 0;  // so that reading is not for nothing

  // In whole cache lines.
  size_t Begin(int thread, int of) const {
    return count / 1024 * static_cast<size_t>(thread) / static_cast<size_t>(of) * 1024;
  }
};

Memory::Memory(int threads) : arrays_(std::make_unique<Arrays>()) {
  COPPICE_CHECK(threads >= 1);
  arrays_->threads = threads;
  for (auto& array : arrays_->arrays) {
    array.reset(static_cast<float*>(std::aligned_alloc(4096, arrays_->count * sizeof(float))));
    if (!array) throw std::bad_alloc();
  }
  // Each thread touches its part first, so that its pages lie near it.
  Together(threads, [&](int t) {
    const size_t begin = arrays_->Begin(t, threads);
    const size_t end = arrays_->Begin(t + 1, threads);
    for (auto& array : arrays_->arrays) std::fill(array.get() + begin, array.get() + end, 1.0f);
  });
}

Memory::~Memory() = default;

double Memory::Measure(Stream stream, int threads) {
  COPPICE_CHECK(threads >= 1 && threads <= arrays_->threads);
  COPPICE_CHECK(Cpu().avx2);
  float* const a = arrays_->arrays[0].get();
  const float* const b = arrays_->arrays[1].get();
  const float* const c = arrays_->arrays[2].get();
  const double took = Together(threads, [&](int t) {
    const size_t begin = arrays_->Begin(t, threads);
    const size_t count = arrays_->Begin(t + 1, threads) - begin;
    if (stream == Stream::kRead) arrays_->kept = Read(b + begin, count);
    if (stream == Stream::kTriad) Triad(a + begin, b + begin, c + begin, count);
    if (stream == Stream::kTriadNonTemporal) TriadNonTemporal(a + begin, b + begin, c + begin, count);
  });
  const double passes = stream == Stream::kRead ? 1 : 3;
  return passes * static_cast<double>(arrays_->count * sizeof(float)) / took;
}

}  // namespace coppice::roofline
