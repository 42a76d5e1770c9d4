// The cold tier: keys and values that gave up their place in hot memory, in records of fixed size. On a CPU a
// file on disk; the same interface will hold pinned host memory for a GPU.
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

  // Begins to write `record` (record_bytes of it, copied before the call returns) to a slot, which may hold
  // an older one. Slots are numbers from 0; the store grows as needed.
  virtual void Write(int64_t slot, std::span<const std::byte> record) = 0;
  // Begins to read a slot that was written, so that Read does not wait. At most once until Read.
  virtual void Prefetch(int64_t slot) = 0;
  // Waits for the record (begins it where Prefetch did not) and copies it out.
  virtual void Read(int64_t slot, std::span<std::byte> record) = 0;
  // Waits until everything written is in the store.
  virtual void Flush() = 0;

  virtual int64_t record_bytes() const = 0;
  virtual std::string_view kind() const = 0;  // "io_uring", "threads", "sync"
};

// How a file is read and written: asynchronously by io_uring, or by threads where the kernel lacks it (kAuto
// takes the first that works), or in the call itself.
enum class ColdIo { kAuto, kUring, kThreads, kSync };

struct ColdOptions {
  std::string folder;  // where the file is made; empty: $TMPDIR, else /var/tmp
  ColdIo io = ColdIo::kAuto;
};

// An unnamed file, gone with the store, whatever ends the process. Every call throws Error, naming the file's
// folder and the cause (no space left, a short write, a file that was cut), also for a transfer that an
// earlier call began; the store is then of no more use, but may be destroyed.
std::unique_ptr<ColdStore> OpenColdFile(const ColdOptions& options, int64_t record_bytes);

}  // namespace coppice
