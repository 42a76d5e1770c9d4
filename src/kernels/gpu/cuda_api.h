// The part of the CUDA driver API that the backend uses, declared from its public documentation, so that no
// CUDA package is needed to build. Names and values are the API's own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coppice::gpu {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;  // NOLINT(google-runtime-int): the API's own type
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

inline constexpr CUresult CUDA_SUCCESS = 0;
inline constexpr CUresult CUDA_ERROR_INVALID_VALUE = 1;
inline constexpr CUresult CUDA_ERROR_OUT_OF_MEMORY = 2;
inline constexpr CUresult CUDA_ERROR_NOT_FOUND = 500;
inline constexpr CUresult CUDA_ERROR_ILLEGAL_ADDRESS = 700;
inline constexpr CUresult CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900;
inline constexpr CUresult CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910;

inline constexpr int CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16;
inline constexpr int CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75;
inline constexpr int CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76;
inline constexpr int CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115;
inline constexpr int CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;
inline constexpr int CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4;
inline constexpr int CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5;
inline constexpr int CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7;
inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_EVENT_DISABLE_TIMING = 2;
inline constexpr int CU_STREAM_CAPTURE_MODE_RELAXED = 2;
inline constexpr int CU_MEMORYTYPE_HOST = 1;
inline constexpr int CU_MEMORYTYPE_DEVICE = 2;

struct CUDA_MEMCPY2D {
  size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  int dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
};

struct CUgraphExecUpdateResultInfo {
  int result;
  void* errorNode;
  void* errorFromNode;
};

// Every entry point that is used: name, exported symbol, parameters. All return CUresult.
#define COPPICE_CUDA_API(X)                                                                                 \
  X(cuInit, "cuInit", (unsigned flags))                                                                     \
  X(cuDeviceGetCount, "cuDeviceGetCount", (int* count))                                                     \
  X(cuDeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal))                                           \
  X(cuDeviceGetName, "cuDeviceGetName", (char* name, int length, CUdevice device))                          \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int* value, int attribute, CUdevice device))             \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))           \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                           \
  X(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext context))                                                \
  X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t * free, size_t * total))                                       \
  X(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", (CUmemoryPool * pool, CUdevice device))         \
  X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", (CUmemoryPool pool, int attribute, void* value))        \
  X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", (CUmemoryPool pool, int attribute, void* value))        \
  X(cuMemPoolTrimTo, "cuMemPoolTrimTo", (CUmemoryPool pool, size_t keep))                                   \
  X(cuMemAllocAsync, "cuMemAllocAsync", (CUdeviceptr * address, size_t bytes, CUstream stream))             \
  X(cuMemFreeAsync, "cuMemFreeAsync", (CUdeviceptr address, CUstream stream))                               \
  X(cuMemHostAlloc, "cuMemHostAlloc", (void** address, size_t bytes, unsigned flags))                       \
  X(cuMemFreeHost, "cuMemFreeHost", (void* address))                                                        \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                              \
    (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                                      \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void* to, CUdeviceptr from, size_t bytes, CUstream stream)) \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                                              \
    (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                                      \
  X(cuMemcpy2DAsync, "cuMemcpy2DAsync_v2", (const CUDA_MEMCPY2D* copy, CUstream stream))                    \
  X(cuMemsetD2D8Async, "cuMemsetD2D8Async",                                                                 \
    (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream))      \
  X(cuStreamCreate, "cuStreamCreate", (CUstream * stream, unsigned flags))                                  \
  X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                               \
  X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                          \
  X(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned flags))               \
  X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream stream, int mode))                           \
  X(cuStreamEndCapture, "cuStreamEndCapture", (CUstream stream, CUgraph * graph))                           \
  X(cuGraphInstantiate, "cuGraphInstantiateWithFlags", (CUgraphExec * exec, CUgraph graph, uint64_t flags)) \
  X(cuGraphExecUpdate, "cuGraphExecUpdate_v2",                                                              \
    (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo * info))                                  \
  X(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec exec, CUstream stream))                                    \
  X(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec exec))                                           \
  X(cuGraphDestroy, "cuGraphDestroy", (CUgraph graph))                                                      \
  X(cuEventCreate, "cuEventCreate", (CUevent * event, unsigned flags))                                      \
  X(cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                                                   \
  X(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))                                       \
  X(cuEventSynchronize, "cuEventSynchronize", (CUevent event))                                              \
  X(cuModuleLoadData, "cuModuleLoadData", (CUmodule * module, const void* image))                           \
  X(cuModuleUnload, "cuModuleUnload", (CUmodule module))                                                    \
  X(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction * function, CUmodule module, const char* name)) \
  X(cuFuncSetAttribute, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))              \
  X(cuLaunchKernel, "cuLaunchKernel",                                                                       \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,              \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,         \
     void** extra))                                                                                         \
  X(cuGetErrorName, "cuGetErrorName", (CUresult result, const char** name))                                 \
  X(cuGetErrorString, "cuGetErrorString", (CUresult result, const char** text))

}  // namespace coppice::gpu
