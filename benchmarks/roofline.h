// What this machine can do at most: arithmetic from registers, and streams through memory. Short bursts, so that
// a benchmark can measure a limit between two runs of what it compares with it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/cpu_info.h"

namespace coppice::roofline {

// Multiply-add instructions on registers alone, with enough sums in flight to hide their latency.
enum class Peak { kFp32Avx2, kInt8Avx2, kFp32Avx512, kBf16Avx512, kInt8Avx512, kBf16Amx, kInt8Amx };

struct PeakInfo {
  Peak peak;
  std::string_view name;  // "avx512_fp32"
  Isa isa;                // the kernels of this ISA, or a higher one, may use it
  bool (*there)();        // whether this CPU executes it
};
std::span<const PeakInfo> Peaks();

// The rate of `threads` threads together over some `seconds`, in operations per second: a multiplication and an
// addition are two.
double MeasurePeak(Peak peak, int threads, double seconds = 0.02);

// One pass of the loop behind a peak: `steps` times all sums of one thread. Returns its operations. For tests.
double RunPeak(Peak peak, size_t steps);

// The highest peak that kernels of `isa` may reach with factors of 16 bits or, where `int8`, of 8. Measures each
// candidate once.
Peak BestPeak(Isa isa, bool int8, int threads);
std::string_view NameOf(Peak peak);

enum class Stream { kRead, kTriad, kTriadNonTemporal };
inline constexpr std::string_view kStreamNames[] = {"read", "triad", "triad_non_temporal"};

// Arrays several times larger than the last cache, which all threads work on together.
class Memory {
 public:
  explicit Memory(int threads);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Bytes per second of one pass with `threads` threads, at most those of the constructor. As STREAM counts:
  // what the loop reads and writes, not the line that an ordinary store reads first.
  double Measure(Stream stream, int threads);

 private:
  struct Arrays;
  std::unique_ptr<Arrays> arrays_;
};

}  // namespace coppice::roofline
