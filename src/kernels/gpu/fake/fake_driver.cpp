// A CUDA driver without a device: the entry points of kernels/gpu/cuda_api.h as a shared library, for tests.
//
// - Work on a stream is put off for as long as the API allows: until something waits for it. So a wait that
//   is missing shows as wrong data, always. (A real device may have finished by luck.)
// - Device memory faults when host code touches it; see fake_memory.h.
// - Every entry point can be told to fail: coppice_fake_fail, or COPPICE_FAKE_CUDA_FAIL="cuMemAllocAsync:3".
// - COPPICE_FAKE_CUDA_BYTES is the device's memory; 8 GiB without it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "kernels/gpu/cuda_api.h"
#include "kernels/gpu/fake/fake_device.h"
#include "kernels/gpu/fake/fake_kernels.h"
#include "kernels/gpu/fake/fake_memory.h"

namespace coppice::gpu::fake {

struct Work {
  std::string kind;  // two graphs with works of the same kinds in order have the same shape
  std::function<void()> run;
};

}  // namespace coppice::gpu::fake

namespace coppice::gpu {

using fake::Fault;
using fake::Work;

struct CUgraph_st {
  std::vector<Work> works;
};
struct CUgraphExec_st {
  std::vector<Work> works;
};
struct CUstream_st {
  std::deque<Work> waiting;
  int64_t added = 0;  // works ever added; added - waiting.size() have run
  std::optional<CUgraph_st> capture;
};
struct CUevent_st {
  CUstream_st* stream = nullptr;
  int64_t after = 0;  // works of the stream
};
struct CUfunc_st {
  fake::FakeKernel kernel;
};
struct CUmod_st {
  std::vector<std::unique_ptr<CUfunc_st>> functions;
};

}  // namespace coppice::gpu

namespace coppice::gpu::fake {

namespace {

int64_t TotalBytes() {
  const char* bytes = std::getenv("COPPICE_FAKE_CUDA_BYTES");
  return bytes != nullptr ? std::atoll(bytes) : int64_t{8} << 30;
}

class FakeDevice {
 public:
  static FakeDevice& Get() {
    static FakeDevice device;
    return device;
  }

  std::recursive_mutex mutex;
  DeviceBytes memory{TotalBytes()};
  std::set<CUstream_st*> streams;
  std::set<CUevent_st*> events;

  // Counts the call, and returns true if it is the one that shall fail.
  bool Fails(const std::string& name) {
    ++calls_[name];
    ++all_calls_;
    if (fail_in_ == 0 || (!fail_name_.empty() && fail_name_ != name)) return false;
    return --fail_in_ == 0;
  }
  void FailAt(const std::string& name, int64_t in) {
    fail_name_ = name;
    fail_in_ = in;
  }
  int64_t Calls(const std::string& name) { return name.empty() ? all_calls_ : calls_[name]; }

  CUstream_st& At(CUstream stream) {
    if (!streams.contains(stream)) Fault("a stream that does not exist");
    return *stream;
  }
  CUevent_st& At(CUevent event) {
    if (!events.contains(event)) Fault("an event that does not exist");
    return *event;
  }
  void Add(CUstream stream, std::string kind, std::function<void()> run) {
    CUstream_st& at = At(stream);
    if (at.capture) {
      at.capture->works.push_back({std::move(kind), std::move(run)});
      return;
    }
    at.waiting.push_back({std::move(kind), std::move(run)});
    ++at.added;
  }
  // Runs the stream's works up to the one with this number.
  void RunUntil(CUstream_st& stream, int64_t number) {
    while (stream.added - static_cast<int64_t>(stream.waiting.size()) < number) {
      const Work work = std::move(stream.waiting.front());
      stream.waiting.pop_front();
      work.run();
    }
  }
  void RunAll() {
    for (CUstream_st* stream : streams) RunUntil(*stream, stream->added);
  }

 private:
  FakeDevice() {
    const char* fail = std::getenv("COPPICE_FAKE_CUDA_FAIL");
    if (fail == nullptr) return;
    const std::string text = fail;
    const size_t colon = text.find(':');
    FailAt(text.substr(0, colon), colon == std::string::npos ? 1 : std::atoll(text.c_str() + colon + 1));
  }

  std::map<std::string, int64_t> calls_;
  int64_t all_calls_ = 0;
  std::string fail_name_;
  int64_t fail_in_ = 0;
};

}  // namespace

void Submit(CUstream stream, std::string kind, std::function<void()> run) {
  const std::lock_guard lock(FakeDevice::Get().mutex);
  FakeDevice::Get().Add(stream, std::move(kind), std::move(run));
}

std::byte* UseBytes(uint64_t address, int64_t bytes, const char* what) {
  return FakeDevice::Get().memory.Use(address, bytes, what);
}

namespace {

CUresult ErrorOf(const std::string& name) {
  return name == "cuMemAllocAsync" || name == "cuMemHostAlloc" ? CUDA_ERROR_OUT_OF_MEMORY
                                                               : CUDA_ERROR_ILLEGAL_ADDRESS;
}

}  // namespace

}  // namespace coppice::gpu::fake

using coppice::gpu::fake::ErrorOf;
using coppice::gpu::fake::FakeDevice;
using namespace coppice::gpu;  // NOLINT: the API's own names

#define COPPICE_ENTER(name)                 \
  FakeDevice& device = FakeDevice::Get();   \
  const std::lock_guard lock(device.mutex); \
  if (device.Fails(name)) return ErrorOf(name)

extern "C" {

CUresult cuInit(unsigned /*flags*/) {
  COPPICE_ENTER("cuInit");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  COPPICE_ENTER("cuDeviceGetCount");
  const char* text = std::getenv("COPPICE_FAKE_CUDA_DEVICES");
  *count = text != nullptr ? std::atoi(text) : 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* to, int ordinal) {
  COPPICE_ENTER("cuDeviceGet");
  *to = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice /*device*/) {
  COPPICE_ENTER("cuDeviceGetName");
  std::snprintf(name, static_cast<size_t>(length), "fake device");
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice /*device*/) {
  COPPICE_ENTER("cuDeviceGetAttribute");
  *value = attribute == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED ? 1
           : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 2
                                                                   : 0;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice /*device*/) {
  COPPICE_ENTER("cuDevicePrimaryCtxRetain");
  *context = reinterpret_cast<CUcontext>(&device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice /*device*/) {
  COPPICE_ENTER("cuDevicePrimaryCtxRelease_v2");
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext /*context*/) {
  COPPICE_ENTER("cuCtxSetCurrent");
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  COPPICE_ENTER("cuMemGetInfo_v2");
  *total = static_cast<size_t>(device.memory.total());
  *free = static_cast<size_t>(device.memory.total() - device.memory.used());
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice /*device*/) {
  COPPICE_ENTER("cuDeviceGetDefaultMemPool");
  *pool = reinterpret_cast<CUmemoryPool>(&device);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool /*pool*/, int /*attribute*/, void* /*value*/) {
  COPPICE_ENTER("cuMemPoolSetAttribute");
  return CUDA_SUCCESS;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool /*pool*/, int /*attribute*/, void* value) {
  COPPICE_ENTER("cuMemPoolGetAttribute");
  *static_cast<uint64_t*>(value) = static_cast<uint64_t>(device.memory.used());
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool /*pool*/, size_t /*keep*/) {
  COPPICE_ENTER("cuMemPoolTrimTo");
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  COPPICE_ENTER("cuMemAlloc_v2");
  *address = device.memory.Allocate(bytes);
  return *address != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  COPPICE_ENTER("cuMemFree_v2");
  device.RunAll();
  device.memory.MarkFreed(address);
  device.memory.Release(address);
  return CUDA_SUCCESS;
}
CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  COPPICE_ENTER("cuMemAllocAsync");
  if (device.At(stream).capture) Fault("an allocation on a stream that records");
  *address = device.memory.Allocate(bytes);
  if (*address == 0) {
    device.RunAll();  // frees that wait
    *address = device.memory.Allocate(bytes);
  }
  return *address != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  COPPICE_ENTER("cuMemFreeAsync");
  if (device.At(stream).capture) Fault("a free on a stream that records");
  device.memory.MarkFreed(address);
  device.Add(stream, "free", [&device, address] { device.memory.Release(address); });
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned /*flags*/) {
  COPPICE_ENTER("cuMemHostAlloc");
  *address = device.memory.Pin(bytes);
  return *address != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void* address) {
  COPPICE_ENTER("cuMemFreeHost");
  device.RunAll();
  device.memory.Unpin(address);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  COPPICE_ENTER("cuMemcpyHtoDAsync_v2");
  device.Add(stream, "to device", [&device, to, from, bytes] {
    device.memory.CheckPinned(from, bytes, "cuMemcpyHtoDAsync");
    std::memcpy(device.memory.Use(to, static_cast<int64_t>(bytes), "cuMemcpyHtoDAsync"), from, bytes);
  });
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  COPPICE_ENTER("cuMemcpyDtoHAsync_v2");
  device.Add(stream, "to host", [&device, to, from, bytes] {
    device.memory.CheckPinned(to, bytes, "cuMemcpyDtoHAsync");
    std::memcpy(to, device.memory.Use(from, static_cast<int64_t>(bytes), "cuMemcpyDtoHAsync"), bytes);
  });
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  COPPICE_ENTER("cuMemcpyDtoDAsync_v2");
  device.Add(stream, "within device", [&device, to, from, bytes] {
    std::byte* target = device.memory.Use(to, static_cast<int64_t>(bytes), "cuMemcpyDtoDAsync");
    const std::byte* source = device.memory.Use(from, static_cast<int64_t>(bytes), "cuMemcpyDtoDAsync");
    if (source < target + bytes && target < source + bytes) Fault("cuMemcpyDtoDAsync: the ranges overlap");
    std::memcpy(target, source, bytes);
  });
  return CUDA_SUCCESS;
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  COPPICE_ENTER("cuMemcpy2DAsync_v2");
  if (copy->WidthInBytes > copy->srcPitch || copy->WidthInBytes > copy->dstPitch)
    return CUDA_ERROR_INVALID_VALUE;
  device.Add(stream, "rows", [&device, c = *copy] {
    for (size_t row = 0; row < c.Height; ++row) {
      const auto width = static_cast<int64_t>(c.WidthInBytes);
      const auto* from = static_cast<const std::byte*>(c.srcHost) + row * c.srcPitch;
      auto* to = static_cast<std::byte*>(c.dstHost) + row * c.dstPitch;
      if (c.srcMemoryType == CU_MEMORYTYPE_DEVICE) {
        from = device.memory.Use(c.srcDevice + row * c.srcPitch, width, "cuMemcpy2DAsync");
      } else {
        device.memory.CheckPinned(from, c.WidthInBytes, "cuMemcpy2DAsync");
      }
      if (c.dstMemoryType == CU_MEMORYTYPE_DEVICE) {
        to = device.memory.Use(c.dstDevice + row * c.dstPitch, width, "cuMemcpy2DAsync");
      } else {
        device.memory.CheckPinned(to, c.WidthInBytes, "cuMemcpy2DAsync");
      }
      std::memcpy(to, from, c.WidthInBytes);
    }
  });
  return CUDA_SUCCESS;
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
  COPPICE_ENTER("cuMemsetD2D8Async");
  device.Add(stream, "set", [&device, to, pitch, value, width, height] {
    for (size_t row = 0; row < height; ++row)
      std::memset(device.memory.Use(to + row * pitch, static_cast<int64_t>(width), "cuMemsetD2D8Async"),
                  value, width);
  });
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned /*flags*/) {
  COPPICE_ENTER("cuStreamCreate");
  *stream = new CUstream_st;
  device.streams.insert(*stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  COPPICE_ENTER("cuStreamDestroy_v2");
  device.RunUntil(device.At(stream), stream->added);
  device.streams.erase(stream);
  delete stream;
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  COPPICE_ENTER("cuStreamSynchronize");
  if (device.At(stream).capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  device.RunUntil(*stream, stream->added);
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned /*flags*/) {
  COPPICE_ENTER("cuStreamWaitEvent");
  const CUevent_st at = device.At(event);
  if (at.stream == nullptr) return CUDA_SUCCESS;
  device.Add(stream, "wait", [&device, at] { device.RunUntil(*at.stream, at.after); });
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned /*flags*/) {
  COPPICE_ENTER("cuEventCreate");
  *event = new CUevent_st;
  device.events.insert(*event);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  COPPICE_ENTER("cuEventDestroy_v2");
  device.At(event);
  device.events.erase(event);
  delete event;
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  COPPICE_ENTER("cuEventRecord");
  if (device.At(stream).capture) Fault("an event on a stream that records");
  device.At(event) = {stream, stream->added};
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent event) {
  COPPICE_ENTER("cuEventSynchronize");
  const CUevent_st at = device.At(event);
  if (at.stream != nullptr) device.RunUntil(*at.stream, at.after);
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, int /*mode*/) {
  COPPICE_ENTER("cuStreamBeginCapture_v2");
  if (device.At(stream).capture) return CUDA_ERROR_INVALID_VALUE;
  stream->capture.emplace();
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  FakeDevice& device = FakeDevice::Get();
  const std::lock_guard lock(device.mutex);
  if (device.Fails("cuStreamEndCapture")) {
    device.At(stream).capture.reset();  // a recording that failed has ended too
    return ErrorOf("cuStreamEndCapture");
  }
  if (!device.At(stream).capture) return CUDA_ERROR_INVALID_VALUE;
  *graph = new CUgraph_st(std::move(*stream->capture));
  stream->capture.reset();
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, uint64_t /*flags*/) {
  COPPICE_ENTER("cuGraphInstantiateWithFlags");
  *exec = new CUgraphExec_st{graph->works};
  return CUDA_SUCCESS;
}
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* /*info*/) {
  COPPICE_ENTER("cuGraphExecUpdate_v2");
  const auto same = [](const Work& a, const Work& b) { return a.kind == b.kind; };
  if (!std::equal(exec->works.begin(), exec->works.end(), graph->works.begin(), graph->works.end(), same))
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  exec->works = graph->works;
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  COPPICE_ENTER("cuGraphLaunch");
  for (const Work& work : exec->works) device.Add(stream, work.kind, work.run);
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  COPPICE_ENTER("cuGraphExecDestroy");
  delete exec;
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  COPPICE_ENTER("cuGraphDestroy");
  delete graph;
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  COPPICE_ENTER("cuModuleLoadData");
  if (std::strcmp(static_cast<const char*>(image), "fake") != 0) return CUDA_ERROR_INVALID_VALUE;
  *module = new CUmod_st;
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  COPPICE_ENTER("cuModuleUnload");
  delete module;
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

// ---- For the host code: the list of kernels, in place of a build's cubins. Returns entry i, or null.
const char* coppice_fake_kernel(int i, const char** arguments, int* warps) {
  static const std::vector<fake::FakeKernel> kernels = fake::AllKernels();
  if (i >= static_cast<int>(kernels.size())) return nullptr;
  *arguments = kernels[static_cast<size_t>(i)].arguments;
  *warps = kernels[static_cast<size_t>(i)].warps;
  return kernels[static_cast<size_t>(i)].name;
}

// ---- For tests.
// The `in`-th call of this entry point from now on fails; of any, if `name` is empty. 0: none.
void coppice_fake_fail(const char* name, int64_t in) { FakeDevice::Get().FailAt(name, in); }
int64_t coppice_fake_calls(const char* name) { return FakeDevice::Get().Calls(name); }
int64_t coppice_fake_allocations() { return FakeDevice::Get().memory.allocations(); }
int64_t coppice_fake_pinned() { return FakeDevice::Get().memory.pinned(); }
// Runs everything that waits, as time would on a real device.
void coppice_fake_run_all() { FakeDevice::Get().RunAll(); }

}  // extern "C"
