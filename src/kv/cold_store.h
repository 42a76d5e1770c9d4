// The cold tier: keys and values moved out of hot memory, in records of fixed size. For keys in host memory
// it is a file on disk; for those in a device's memory it is host memory that the device reaches by itself,
// or the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/device_memory.h"
#include "tensor/record_store.h"

namespace coppice {

// How the file is read and written: asynchronously with io_uring; by a thread pool, where the kernel lacks
// io_uring; or within the call. kAuto uses the first that works, in this order.
enum class ColdIo { kAuto, kUring, kThreads, kSync };

struct ColdOptions {
  std::string folder;  // where to create the file; empty: $TMPDIR, else /var/tmp
  ColdIo io = ColdIo::kAuto;
};

// The folder that it will be in.
std::string ColdFolderOf(const ColdOptions& options);
// Opens an unnamed file, which the system removes when the store or the process ends. Every call throws
// Error, naming the folder and the cause (no space left, a short write, a truncated file), including for a
// transfer that an earlier call started. After an error the store can only be destroyed.
std::unique_ptr<RecordStore> OpenColdFile(const ColdOptions& options, int64_t record_bytes);

// The cold tier of keys and values in `memory` (null: host memory). A device's memory brings its own store,
// which is used unless `options` name a folder or a way to read the file.
std::unique_ptr<RecordStore> OpenColdTier(const ColdOptions& options, int64_t record_bytes,
                                          DeviceMemory* memory);

}  // namespace coppice
