#include "kernels/gpu/fake/fake_kernels.h"

#include <cstring>

namespace coppice::gpu::fake {

namespace {

// Takes the next "name:type" off the list.
std::pair<std::string_view, std::string_view> Next(std::string_view& list) {
  const size_t end = list.find(' ');
  const std::string_view argument = list.substr(0, end);
  list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  const size_t colon = argument.find(':');
  return {argument.substr(0, colon), argument.substr(colon + 1)};
}

}  // namespace

KernelCall::KernelCall(std::string_view kernel, std::string_view arguments, const unsigned* grid,
                       void** parameters, DeviceBytes& memory)
    : kernel_(kernel), grid_{grid[0], grid[1], grid[2]}, memory_(memory) {
  for (int i = 0; !arguments.empty(); ++i) {
    const auto [name, type] = Next(arguments);
    const bool aligned = type.ends_with('!');
    Argument argument;
    argument.pointer = type.find('*') != std::string_view::npos;
    if (argument.pointer) {
      std::memcpy(&argument.address, parameters[i], sizeof(argument.address));
      if (aligned && argument.address % 16 != 0)
        Fault(kernel_ + ": " + std::string(name) + " is not aligned");
    } else if (type.starts_with("i32")) {
      int32_t value = 0;
      std::memcpy(&value, parameters[i], sizeof(value));
      argument.integer = value;
      if (aligned && value % 16 != 0) Fault(kernel_ + ": " + std::string(name) + " is no multiple of 16");
    } else {
      std::memcpy(&argument.number, parameters[i], sizeof(argument.number));
    }
    arguments_.emplace(name, argument);
  }
}

const KernelCall::Argument& KernelCall::Find(std::string_view name) const {
  const auto found = arguments_.find(name);
  if (found == arguments_.end()) Fault(kernel_ + " has no argument " + std::string(name));
  return found->second;
}

int64_t KernelCall::I(std::string_view name) const { return Find(name).integer; }
float KernelCall::F(std::string_view name) const { return Find(name).number; }

void KernelCall::CheckGrid(int64_t x, int64_t y, int64_t z) const {
  const int64_t wanted[3] = {x, y, z};
  for (int axis = 0; axis < 3; ++axis) {
    if (wanted[axis] != kAny && wanted[axis] != grid_[axis])
      Fault(kernel_ + ": axis " + std::to_string(axis) + " of the grid has " + std::to_string(grid_[axis]) +
            " programs, not " + std::to_string(wanted[axis]));
  }
}

std::vector<FakeKernel> AllKernels() {
  std::vector<FakeKernel> all;
  for (const std::span<const FakeKernel> some :
       {RowKernels(), ProductKernels(), AttentionKernels(), ScoreKernels()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace coppice::gpu::fake
