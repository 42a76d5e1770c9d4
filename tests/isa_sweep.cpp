// Part of every program that CTest runs once without COPPICE_ISA, which tests the best ISA of the CPU, and
// once more for each ISA: the run for the best one would repeat the first, and a CPU runs none that it lacks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "base/cpu_info.h"

namespace coppice {
namespace {

// AMX is emulated where the CPU has all else that its kernels use (tests_support.h).
bool Runs(std::string_view isa) {
  if (isa == "amx" && Cpu().avx512_bf16) return true;
  for (const Isa one : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (IsaName(one) == isa) return CpuHas(one);
  }
  return true;  // the program says that there is no such ISA
}

class SkipsAnIsa final : public testing::Environment {
  void SetUp() override {
    const char* isa = std::getenv("COPPICE_ISA");
    if (std::getenv("COPPICE_ISA_SWEEP") == nullptr || isa == nullptr) return;
    if (IsaName(BestIsa()) == std::string_view(isa))
      GTEST_SKIP() << "the run without COPPICE_ISA tests this CPU's best ISA";
    if (!Runs(isa)) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
};

const testing::Environment* const kSkips = testing::AddGlobalTestEnvironment(new SkipsAnIsa);

}  // namespace
}  // namespace coppice
