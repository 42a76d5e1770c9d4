// Part of every program that CTest runs once without COPPICE_ISA, which tests the best ISA of the CPU, and
// once more for each ISA: the run for the best one would repeat the first.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "base/cpu_info.h"

namespace coppice {
namespace {

class SkipsTheBestIsa final : public testing::Environment {
  void SetUp() override {
    const char* isa = std::getenv("COPPICE_ISA");
    if (std::getenv("COPPICE_ISA_SWEEP") == nullptr || isa == nullptr) return;
    if (IsaName(BestIsa()) == std::string_view(isa))
      GTEST_SKIP() << "the run without COPPICE_ISA tests this CPU's best ISA";
  }
};

const testing::Environment* const kSkips = testing::AddGlobalTestEnvironment(new SkipsTheBestIsa);

}  // namespace
}  // namespace coppice
