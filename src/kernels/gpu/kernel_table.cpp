#include "kernels/gpu/kernel_table.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace coppice::gpu {

namespace {

// Above this, a function must be told to use more (CUDA's limit for every architecture).
constexpr int kPlainShared = 48 << 10;
// From here on, Triton compiles for the "a" of an architecture, such as sm_90a: warpgroup MMA and tcgen05
// exist only there (PTX ISA, .target).
constexpr int kFirstSpecific = 90;
constexpr int kTestsDevice = 0;  // the architecture of fake/, in builds with tests

}  // namespace

void KernelTable::ArgumentList::Add(CUdeviceptr address) {
  letters[count] = 'p';
  values[count++] = address;
}

void KernelTable::ArgumentList::Add(int64_t number) {
  COPPICE_CHECK(number >= std::numeric_limits<int32_t>::min() &&
                number <= std::numeric_limits<int32_t>::max());
  const auto value = static_cast<int32_t>(number);
  letters[count] = 'i';
  std::memcpy(&values[count++], &value, sizeof(value));
}

void KernelTable::ArgumentList::Add(float number) {
  letters[count] = 'f';
  std::memcpy(&values[count++], &number, sizeof(number));
}

std::optional<int> CubinsFor(int device, std::span<const int> built) {
  std::optional<int> best;
  for (const int architecture : built) {
    const bool later_minor =
        architecture < kFirstSpecific && architecture / 10 == device / 10 && architecture < device;
    if (architecture == device || later_minor) best = std::max(best.value_or(0), architecture);
  }
  return best;
}

std::set<int> BuiltArchitectures() {
  std::set<int> built;
  for (const EmbeddedKernel* k = EmbeddedKernels(); k->name != nullptr; ++k) {
    if (k->architecture != kTestsDevice) built.insert(k->architecture);
  }
  return built;
}

KernelTable::KernelTable(Device& device) : device_(device) {
  const int wanted = device.architecture();
  const std::set<int> built = BuiltArchitectures();
  const std::optional<int> best =
      wanted == kTestsDevice ? wanted : CubinsFor(wanted, std::vector<int>(built.begin(), built.end()));
  for (const EmbeddedKernel* k = EmbeddedKernels(); k->name != nullptr; ++k) {
    if (best != k->architecture) continue;
    kernels_[k->name] = {.entry = k->entry,
                         .arguments = k->arguments,
                         .image = EmbeddedCubins() + k->offset,
                         .shared_bytes = k->shared_bytes,
                         .warps = k->warps};
  }
  if (!kernels_.empty()) return;
  if (built.empty()) throw Error("[gpu] this program was built without GPU kernels: its build had no Triton");
  std::string names;
  for (const int architecture : built) names += " sm_" + std::to_string(architecture);
  throw Error("[gpu] {} is sm_{}; this program has kernels for{}", device.name(), wanted, names);
}

void KernelTable::Load(Kernel& kernel) {
  const Driver& d = device_.driver();
  CUmodule module = device_.LoadModule(kernel.image);
  CUfunction function = nullptr;
  d.Check(d.cuModuleGetFunction(&function, module, kernel.entry.c_str()), "finding a kernel");
  if (kernel.shared_bytes > kPlainShared) {
    d.Check(
        d.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel.shared_bytes),
        "giving a kernel its shared memory");
  }
  kernel.function = function;
}

void KernelTable::Start(std::string_view name, const Grid& grid, ArgumentList& arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr int64_t kMostOfAxis = 65535;
  COPPICE_CHECK(grid.x > 0 && grid.x <= std::numeric_limits<int32_t>::max());
  COPPICE_CHECK(grid.y > 0 && grid.y <= kMostOfAxis && grid.z > 0 && grid.z <= kMostOfAxis);
  const auto found = kernels_.find(name);
  COPPICE_CHECK(found != kernels_.end());
  Kernel& kernel = found->second;
  COPPICE_CHECK(kernel.arguments == arguments.letters);
  const std::lock_guard lock(device_.mutex());
  device_.Use();
  if (kernel.function == nullptr) Load(kernel);
  void* parameters[ArgumentList::kMost + 2];
  for (int i = 0; i < arguments.count; ++i) parameters[i] = &arguments.values[i];
  CUdeviceptr none = 0;  // Triton's scratch areas
  parameters[arguments.count] = &none;
  parameters[arguments.count + 1] = &none;
  device_.Launch(
      kernel.function,
      {.grid = {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z)},
       .threads = 32 * static_cast<unsigned>(kernel.warps),
       .shared_bytes = static_cast<unsigned>(kernel.shared_bytes)},
      std::span(parameters, static_cast<size_t>(arguments.count) + 2));
}

}  // namespace coppice::gpu
