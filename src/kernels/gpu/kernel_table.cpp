#include "kernels/gpu/kernel_table.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "base/check.h"
#include "base/error.h"

namespace coppice::gpu {

namespace {

// Above this, a function must be told to use more (CUDA's limit for every architecture).
constexpr int kPlainShared = 48 << 10;

// The letters of a list as in kernels/README.md: "x:f32* n:i32! scale:f32" is "pif".
std::string Letters(std::string_view arguments) {
  std::string letters;
  while (!arguments.empty()) {
    const size_t end = arguments.find(' ');
    const std::string_view one = arguments.substr(0, end);
    const std::string_view type = one.substr(one.find(':') + 1);
    letters += type.find('*') != std::string_view::npos ? 'p' : type.front();
    arguments = end == std::string_view::npos ? std::string_view() : arguments.substr(end + 1);
  }
  return letters;
}

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

KernelTable::KernelTable(Device& device) : device_(device) {
  AddFake();
  if (kernels_.empty()) AddEmbedded();
}

// A cubin runs on devices of its own major version, from its own minor version on.
void KernelTable::AddEmbedded() {
  const int device = device_.architecture();
  int best = 0;
  std::string built;
  for (const EmbeddedKernel* k = EmbeddedKernels(); k->name != nullptr; ++k) {
    const std::string name = " sm_" + std::to_string(k->architecture);
    if (built.find(name) == std::string::npos) built += name;
    if (k->architecture / 10 == device / 10 && k->architecture <= device)
      best = std::max(best, k->architecture);
  }
  if (built.empty()) throw Error("[gpu] this program was built without GPU kernels: its build had no Triton");
  if (best == 0)
    throw Error("[gpu] {} is sm_{}; this program has kernels for{}", device_.name(), device, built);
  for (const EmbeddedKernel* k = EmbeddedKernels(); k->name != nullptr; ++k) {
    if (k->architecture != best) continue;
    kernels_[k->name] = {.entry = k->entry,
                         .arguments = k->arguments,
                         .image = EmbeddedCubins() + k->offset,
                         .shared_bytes = k->shared_bytes,
                         .warps = k->warps};
  }
}

// The tests' driver (fake/fake_driver.cpp) computes the kernels itself and lists them.
void KernelTable::AddFake() {
  using List = const char* (*)(int, const char**, int*);
  const auto list = reinterpret_cast<List>(device_.driver().library().Find("coppice_fake_kernel"));
  if (list == nullptr) return;
  const char* arguments = nullptr;
  int warps = 0;
  for (int i = 0; const char* name = list(i, &arguments, &warps); ++i) {
    kernels_[name] = {.entry = name, .arguments = Letters(arguments), .image = "fake", .warps = warps};
  }
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
