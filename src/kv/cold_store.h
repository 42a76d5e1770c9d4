// The cold tier: keys and values moved out of hot memory, in records of fixed size. On a CPU it is a file on
// disk; for a GPU the same interface can hold pinned host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace coppice {

class ColdStore {
 public:
  virtual ~ColdStore() = default;

  // Starts writing `record` (record_bytes() bytes, copied before the call returns) to a slot, replacing its
  // record if it has one. Slots are numbered from 0; the store grows as needed.
  virtual void Write(int64_t slot, std::span<const std::byte> record) = 0;
  // Starts reading a written slot, so that the next Read of it need not wait for the device. A second call
  // before that Read does nothing.
  virtual void Prefetch(int64_t slot) = 0;
  // Waits for the record, starting the read if Prefetch did not, and copies it to `record`.
  virtual void Read(int64_t slot, std::span<std::byte> record) = 0;
  // Waits until every write has ended.
  virtual void Flush() = 0;

  virtual int64_t record_bytes() const = 0;
  virtual std::string_view kind() const = 0;  // "io_uring", "threads", "sync"
};

// How the file is read and written: asynchronously with io_uring; by a thread pool, where the kernel lacks
// io_uring; or within the call. kAuto uses the first that works, in this order.
enum class ColdIo { kAuto, kUring, kThreads, kSync };

struct ColdOptions {
  std::string folder;  // where to create the file; empty: $TMPDIR, else /var/tmp
  ColdIo io = ColdIo::kAuto;
};

// Opens an unnamed file, which the system removes when the store or the process ends. Every call throws
// Error, naming the folder and the cause (no space left, a short write, a truncated file), including for a
// transfer that an earlier call started. After an error the store can only be destroyed.
std::unique_ptr<ColdStore> OpenColdFile(const ColdOptions& options, int64_t record_bytes);

}  // namespace coppice
