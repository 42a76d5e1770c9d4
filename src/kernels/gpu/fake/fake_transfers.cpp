// The fake driver: memory of the device and of the host, and copies between them.
#include <cstring>

#include "kernels/gpu/fake/fake_state.h"

using coppice::gpu::fake::Fault;
using namespace coppice::gpu;  // NOLINT: the API's own names

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  COPPICE_ENTER("cuMemGetInfo_v2");
  *total = static_cast<size_t>(device.memory.total());
  *free = static_cast<size_t>(device.memory.total() - device.memory.used());
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice /*device*/) {
  COPPICE_ENTER_ANYWHERE("cuDeviceGetDefaultMemPool");
  *pool = reinterpret_cast<CUmemoryPool>(&device);
  return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool /*pool*/, int /*attribute*/, void* /*value*/) {
  COPPICE_ENTER_ANYWHERE("cuMemPoolSetAttribute");
  return CUDA_SUCCESS;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool /*pool*/, int /*attribute*/, void* value) {
  COPPICE_ENTER_ANYWHERE("cuMemPoolGetAttribute");
  *static_cast<uint64_t*>(value) = static_cast<uint64_t>(device.memory.used());
  return CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool /*pool*/, size_t /*keep*/) {
  COPPICE_ENTER_ANYWHERE("cuMemPoolTrimTo");
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
  COPPICE_ENTER("cuMemFreeHost");  // waits for nothing: a transfer that is left then faults
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

}  // extern "C"
