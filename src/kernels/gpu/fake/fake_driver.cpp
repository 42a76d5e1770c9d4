// A CUDA driver without a device: the entry points of kernels/gpu/cuda_api.h as a shared library, for tests.
//
// - Work on a stream is put off for as long as the API allows: until something waits for it. So a wait that
//   is missing shows as wrong data, always. (A real device may have finished by luck.)
// - Device memory faults when host code touches it; see fake_memory.h.
// - Every entry point can be told to fail: coppice_fake_fail, or COPPICE_FAKE_CUDA_FAIL="cuMemAllocAsync:3".
// - COPPICE_FAKE_CUDA_BYTES is the device's memory; 8 GiB without it.
// - COPPICE_FAKE_CUDA_CAPABILITY="90" makes it say that it is an sm_90, whose cubins it cannot load.
// - With COPPICE_FAKE_CUDA_AT_ONCE, streams beside the first one run their work at once.
//
// This file has devices, contexts, modules and launches; fake_transfers.cpp has memory and copies;
// fake_streams.cpp has streams, events and graphs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "kernels/gpu/fake/fake_state.h"

using coppice::gpu::fake::FakeDevice;
using namespace coppice::gpu;  // NOLINT: the API's own names

extern "C" {

CUresult cuInit(unsigned /*flags*/) {
  COPPICE_ENTER_ANYWHERE("cuInit");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  COPPICE_ENTER_ANYWHERE("cuDeviceGetCount");
  const char* text = std::getenv("COPPICE_FAKE_CUDA_DEVICES");
  *count = text != nullptr ? std::atoi(text) : 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* to, int ordinal) {
  COPPICE_ENTER_ANYWHERE("cuDeviceGet");
  *to = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice /*device*/) {
  COPPICE_ENTER_ANYWHERE("cuDeviceGetName");
  std::snprintf(name, static_cast<size_t>(length), "fake device");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice /*device*/) {
  COPPICE_ENTER_ANYWHERE("cuDeviceGetAttribute");
  // Compute capability 0.0, which no device has: compile.py --fake lists the kernels for it.
  const char* capability = std::getenv("COPPICE_FAKE_CUDA_CAPABILITY");
  const int architecture = capability != nullptr ? std::atoi(capability) : 0;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = architecture / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = architecture % 10;
      break;
    default:
      *value = attribute == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED ? 1
               : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 2
                                                                       : 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice /*device*/) {
  COPPICE_ENTER_ANYWHERE("cuDevicePrimaryCtxRetain");
  *context = device.RetainContext();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice /*device*/) {
  COPPICE_ENTER_ANYWHERE("cuDevicePrimaryCtxRelease_v2");
  device.ReleaseContext();
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  COPPICE_ENTER_ANYWHERE("cuCtxSetCurrent");
  device.SetContext(context);
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  COPPICE_ENTER("cuModuleLoadData");
  if (std::strcmp(static_cast<const char*>(image), "fake") != 0) return CUDA_ERROR_INVALID_VALUE;
  *module = new CUmod_st;
  ++device.objects;
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  COPPICE_ENTER("cuModuleUnload");
  delete module;
  --device.objects;
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  COPPICE_ENTER("cuModuleGetFunction");
  for (const fake::FakeKernel& kernel : fake::AllKernels()) {
    if (std::strcmp(kernel.name, name) != 0) continue;
    module->functions.push_back(std::make_unique<CUfunc_st>(CUfunc_st{kernel}));
    *function = module->functions.back().get();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuFuncSetAttribute(CUfunction /*function*/, int /*attribute*/, int /*value*/) {
  COPPICE_ENTER("cuFuncSetAttribute");
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned /*shared_bytes*/,
                        CUstream stream, void** parameters, void** /*extra*/) {
  COPPICE_ENTER("cuLaunchKernel");
  const unsigned grid[3] = {grid_x, grid_y, grid_z};
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || grid_y > 65535 || grid_z > 65535 ||
      block_x != 32 * static_cast<unsigned>(function->kernel.warps) || block_y != 1 || block_z != 1)
    return CUDA_ERROR_INVALID_VALUE;
  // The arguments are read now, and the buffers when the stream gets here.
  fake::KernelCall call(function->kernel.name, function->kernel.arguments, grid, parameters, device.memory);
  device.Add(stream, function->kernel.name, [call, run = function->kernel.run] { run(call); });
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult result, const char** name) {
  *name = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult /*result*/, const char** text) {
  *text = "the fake device failed";
  return CUDA_SUCCESS;
}

// ---- For tests.
// Kernel i: its name, or null if there are no more.
const char* coppice_fake_kernel(int i, const char** arguments, int* warps) {
  static const std::vector<fake::FakeKernel> kernels = fake::AllKernels();
  if (i >= static_cast<int>(kernels.size())) return nullptr;
  *arguments = kernels[static_cast<size_t>(i)].arguments;
  *warps = kernels[static_cast<size_t>(i)].warps;
  return kernels[static_cast<size_t>(i)].name;
}
// The `in`-th call of this entry point from now on fails; of any, if `name` is empty. 0: none.
void coppice_fake_fail(const char* name, int64_t in) { FakeDevice::Get().FailAt(name, in); }
int64_t coppice_fake_calls(const char* name) { return FakeDevice::Get().Calls(name); }
// The name of the last call that failed so.
const char* coppice_fake_failed() { return FakeDevice::Get().failed().c_str(); }
int64_t coppice_fake_objects() { return FakeDevice::Get().objects; }
int64_t coppice_fake_allocations() { return FakeDevice::Get().memory.allocations(); }
int64_t coppice_fake_pinned() { return FakeDevice::Get().memory.pinned(); }
// See FakeDevice.
void coppice_fake_lose_wait(int64_t in) { FakeDevice::Get().LoseWait(in); }
void coppice_fake_side_streams_at_once(bool at_once) { FakeDevice::Get().RunSideStreamsAtOnce(at_once); }
// Runs everything that waits, as time would on a real device.
void coppice_fake_run_all() { FakeDevice::Get().RunAll(); }

}  // extern "C"
