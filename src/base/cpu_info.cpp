#include "base/cpu_info.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace coppice {

namespace {

constexpr std::array<std::string_view, 4> kIsaNames = {"scalar", "avx2", "avx512", "amx"};

// Linux grants the 8 KiB of AMX tile state only to processes that request it (arch_prctl, since 5.16).
// Without the grant the first tile instruction raises SIGILL, even on a CPU with AMX.
bool AskForTiles() {
  constexpr int kReqXcompPerm = 0x1023;
  constexpr int kXfeatureXtileData = 18;
  return syscall(SYS_arch_prctl, kReqXcompPerm, kXfeatureXtileData) == 0;
}

uint64_t ReadXcr0() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

std::string ModelName() {
  std::array<uint32_t, 12> words{};
  uint32_t max_leaf = __get_cpuid_max(0x80000000u, nullptr);
  if (max_leaf < 0x80000004u) return "unknown";
  for (uint32_t i = 0; i < 3; ++i) {
    __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
  }
  char text[49] = {};
  std::memcpy(text, words.data(), 48);
  std::string name(text);
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name.substr(name.find_first_not_of(' ') == std::string::npos ? 0 : name.find_first_not_of(' '));
}

bool IsIntel() {
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx && d == signature_INTEL_edx &&
         c == signature_INTEL_ecx;
}

CpuFeatures Detect() {
  CpuFeatures f;
  f.model = ModelName();
  f.intel = IsIntel();
  uint32_t a = 0;
  uint32_t b = 0;
  uint32_t c = 0;
  uint32_t d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  const bool osxsave = (c >> 27) & 1;
  const bool fma = (c >> 12) & 1;
  const bool f16c = (c >> 29) & 1;
  if (!osxsave) return f;
  const uint64_t xcr0 = ReadXcr0();
  const bool ymm_state = (xcr0 & 0x6) == 0x6;
  const bool zmm_state = (xcr0 & 0xe6) == 0xe6;
  const bool tile_state = (xcr0 & 0x60000) == 0x60000;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
  f.avx2 = ymm_state && fma && f16c && ((b >> 5) & 1);
  const bool avx512_all = ((b >> 16) & 1) && ((b >> 17) & 1) && ((b >> 30) & 1) && ((b >> 31) & 1);
  f.avx512 = f.avx2 && zmm_state && avx512_all;
  f.avx512_vnni = f.avx512 && ((c >> 11) & 1);
  const bool amx_bits = ((d >> 22) & 1) && ((d >> 24) & 1) && ((d >> 25) & 1);  // bf16, tile, int8
  f.amx_on_chip = amx_bits;
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    f.avx_vnni = f.avx2 && ((a >> 4) & 1);
    f.avx512_bf16 = f.avx512 && ((a >> 5) & 1);
    // Intel's CPUs split vdpbf16ps: 86 GFLOP/s a core, where fp32 products reach 175 (Emerald Rapids,
    // roofline). AMD's Zen 4 and 5 multiply twice as many factors with it.
    f.fast_bf16 = f.avx512_bf16 && !f.intel;
  }
  f.amx = f.avx512_bf16 && tile_state && amx_bits && AskForTiles();
  return f;
}

}  // namespace

const CpuFeatures& Cpu() {
  static const CpuFeatures features = Detect();
  return features;
}

std::string_view IsaName(Isa isa) { return kIsaNames[static_cast<size_t>(isa)]; }

bool CpuHas(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return Cpu().avx2;
    case Isa::kAvx512:
      return Cpu().avx512;
    case Isa::kAmx:
      return Cpu().amx;
  }
  return false;
}

Isa BestIsa() {
  Isa best = Isa::kScalar;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (CpuHas(isa)) best = isa;
  }
  return best;
}

Isa ChooseIsa() {
  const Isa best = BestIsa();
  const char* forced = std::getenv("COPPICE_ISA");
  if (forced == nullptr || *forced == '\0') return best;
  for (size_t i = 0; i < kIsaNames.size(); ++i) {
    if (kIsaNames[i] != forced) continue;
    const Isa isa = static_cast<Isa>(i);
    if (!CpuHas(isa)) throw Error("COPPICE_ISA={}: this CPU has at most {}", forced, IsaName(best));
    return isa;
  }
  throw Error("COPPICE_ISA={}: not one of scalar, avx2, avx512, amx", forced);
}

}  // namespace coppice
