// What this CPU can execute, and which instruction set the kernels use.
#pragma once

#include <string>
#include <string_view>

namespace coppice {

enum class Isa { kScalar, kAvx2, kAvx512, kAmx };  // each value includes those before it

struct CpuFeatures {
  bool avx2 = false;      // AVX2, FMA and F16C
  bool avx_vnni = false;  // byte dot products on 256-bit vectors
  bool avx512 = false;    // F, BW, DQ, VL
  bool intel = false;
  bool avx512_bf16 = false;
  bool fast_bf16 = false;  // vdpbf16ps has twice the rate of fp32 products
  bool avx512_vnni = false;
  bool amx = false;          // tiles with bf16 and int8; the operating system has granted their use
  bool amx_on_chip = false;  // the same, whether granted or not
  std::string model;         // the CPU's brand string
};

// Read once from cpuid and the operating system.
const CpuFeatures& Cpu();

Isa BestIsa();  // of this CPU

// The best ISA, or the lower one that COPPICE_ISA=scalar|avx2|avx512|amx names. Throws Error if
// the variable names no ISA, or one that the CPU lacks.
Isa ChooseIsa();

std::string_view IsaName(Isa isa);
bool CpuHas(Isa isa);

}  // namespace coppice
