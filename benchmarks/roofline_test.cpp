#include "benchmarks/roofline.h"

#include <gtest/gtest.h>

#include "amx_emulator.h"

namespace coppice::roofline {
namespace {

// What it counts is what it executes: one step of twelve products of 8 or 16 sums, or of six tile products.
TEST(Roofline, OperationsOfAStep) {
  const std::pair<Peak, double> counts[] = {
      {Peak::kFp32Avx2, 12 * 8 * 2},         {Peak::kInt8Avx2, 12 * 8 * 2 * 2},
      {Peak::kFp32Avx512, 12 * 16 * 2},      {Peak::kBf16Avx512, 12 * 16 * 2 * 2},
      {Peak::kInt8Avx512, 12 * 16 * 4 * 2},  {Peak::kBf16Amx, 6 * 16 * 16 * 32 * 2},
      {Peak::kInt8Amx, 6 * 16 * 16 * 64 * 2}};
  InstallAmxEmulator();
  for (const auto& [peak, operations] : counts) {
    const bool tiles = peak == Peak::kBf16Amx || peak == Peak::kInt8Amx;
    const PeakInfo& info = Peaks()[static_cast<size_t>(peak)];
    EXPECT_EQ(info.peak, peak);
    if (!info.there() && !tiles) continue;
    if (tiles && !Cpu().avx512) continue;  // where the emulator itself cannot run
    EXPECT_EQ(RunPeak(peak, 3), 3 * operations) << info.name;
  }
}

// Twice the steps take about twice the time: the loop is not thrown away, nor run once.
TEST(Roofline, RatesAreOfThisWorld) {
  for (const PeakInfo& info : Peaks()) {
    if (!info.there()) continue;
    const double rate = MeasurePeak(info.peak, 1, 0.005);
    EXPECT_GT(rate, 1e8) << info.name;
    EXPECT_LT(rate, 1e14) << info.name;
  }
}

TEST(Roofline, BestPeakKeepsToTheIsa) {
  if (!Cpu().avx2) GTEST_SKIP() << "this CPU lacks AVX2";
  EXPECT_EQ(BestPeak(Isa::kAvx2, false, 1), Peak::kFp32Avx2);
  EXPECT_EQ(Peaks()[static_cast<size_t>(BestPeak(Isa::kAvx2, true, 1))].isa, Isa::kAvx2);
  if (Cpu().avx512_vnni) {
    EXPECT_EQ(BestPeak(Isa::kAvx512, true, 1), Peak::kInt8Avx512);
    const Peak floats = BestPeak(Isa::kAvx512, false, 1);
    EXPECT_NE(floats, Peak::kInt8Avx512);
  }
  EXPECT_EQ(NameOf(Peak::kInt8Avx512), "avx512_int8");
}

TEST(Roofline, MemoryStreams) {
  if (!Cpu().avx2) GTEST_SKIP() << "this CPU lacks AVX2";
  Memory memory(2);
  for (const Stream stream : {Stream::kRead, Stream::kTriad, Stream::kTriadNonTemporal}) {
    for (const int threads : {1, 2}) {
      const double rate = memory.Measure(stream, threads);
      EXPECT_GT(rate, 1e8);
      EXPECT_LT(rate, 1e12);
    }
  }
}

}  // namespace
}  // namespace coppice::roofline
