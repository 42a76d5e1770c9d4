// The kernels that the build made, or none (CMakeLists.txt sees to both files either way).
#include "kernels/gpu/kernel_table.h"

asm(R"(
  .section .rodata
  .balign 64
coppice_cubins_begin:
  .incbin ")" COPPICE_CUBINS_BIN R"("
  .byte 0
  .previous
)");

extern "C" const std::byte coppice_cubins_begin[];

namespace coppice::gpu {

namespace {

constexpr EmbeddedKernel kKernels[] = {
#include COPPICE_CUBINS_INC
    {nullptr, nullptr, 0, 0, 0, nullptr, 0, 0},
};

}  // namespace

const EmbeddedKernel* EmbeddedKernels() { return kKernels; }
const std::byte* EmbeddedCubins() { return coppice_cubins_begin; }

}  // namespace coppice::gpu
