// The kernels of kernels/*.py that this program holds for a device, by name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "kernels/gpu/device.h"

namespace coppice::gpu {

// A row of cubins.inc, which kernels/compile.py writes.
struct EmbeddedKernel {
  const char* name;
  const char* entry;  // the function's name in the cubin
  int architecture;   // 90 for sm_90
  int shared_bytes;   // dynamic shared memory
  int warps;
  const char* arguments;  // a letter for each: p pointer, i int32, f float
  int64_t offset;         // of the cubin in EmbeddedCubins()
  int64_t bytes;
};

// Ends with a row without a name; only that row in a build without kernels.
const EmbeddedKernel* EmbeddedKernels();
const std::byte* EmbeddedCubins();

// The architecture of `built` (90 for sm_90) whose cubins run on a device of architecture `device`. A cubin
// runs on devices of its own major version, from its own minor version on; one for sm_90 or later on this
// version alone, because it uses instructions of that architecture only (CUDA C++ Programming Guide, Binary
// Compatibility, and Architecture-Specific Features).
std::optional<int> CubinsFor(int device, std::span<const int> built);
// The architectures that this program holds kernels for, except the tests' device.
std::set<int> BuiltArchitectures();

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Programs of a kernel.
struct Grid {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
};

class KernelTable {
 public:
  // Throws Error if the program has no kernels for the device.
  explicit KernelTable(Device& device);

  // Starts a kernel with these arguments: CUdeviceptr, int64_t (which must fit into 32 bits) or float, in the
  // order of kernels/README.md. Does nothing if the grid is empty. Throws Error if the device fails.
  template <typename... Arguments>
  void Launch(std::string_view name, const Grid& grid, const Arguments&... arguments) {
    static_assert(sizeof...(arguments) <= ArgumentList::kMost);
    ArgumentList list;
    (list.Add(arguments), ...);
    Start(name, grid, list);
  }

 private:
  // The arguments of a launch, each in eight bytes, and their letters.
  struct ArgumentList {
    static constexpr int kMost = 32;
    void Add(CUdeviceptr address);
    void Add(int64_t number);
    void Add(float number);
    char letters[kMost + 1] = {};
    uint64_t values[kMost] = {};
    int count = 0;
  };
  struct Kernel {
    std::string entry;
    std::string arguments;
    const void* image = nullptr;
    int shared_bytes = 0;
    int warps = 0;
    CUfunction function = nullptr;  // loaded when it is first started
  };

  void Start(std::string_view name, const Grid& grid, ArgumentList& arguments);
  void Load(Kernel& kernel);

  Device& device_;
  std::map<std::string, Kernel, std::less<>> kernels_;
};

}  // namespace coppice::gpu
