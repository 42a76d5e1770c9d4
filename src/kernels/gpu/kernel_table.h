// The kernels of kernels/*.py that this program holds for a device, by name.
#pragma once

#include <cstdint>
#include <map>
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

  void AddEmbedded();
  void AddFake();
  void Start(std::string_view name, const Grid& grid, ArgumentList& arguments);
  void Load(Kernel& kernel);

  Device& device_;
  std::map<std::string, Kernel, std::less<>> kernels_;
};

}  // namespace coppice::gpu
