// A GPU: its context, its memory, the one stream on which operations run in order, and a stream of copies
// beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/gpu/driver.h"
#include "kernels/gpu/recorder.h"

namespace coppice::gpu {

// What cuLaunchKernel needs besides the arguments.
struct LaunchShape {
  unsigned grid[3] = {1, 1, 1};
  unsigned threads = 0;  // of a block
  unsigned shared_bytes = 0;
};

// All functions throw Error if the device fails, and may be called from any thread. Work is ordered by the
// calls: every function but Download, Synchronize and FreeBytes only appends to the stream.
class Device {
 public:
  // Throws Error if there is no driver or no such device.
  explicit Device(int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return driver_; }
  const std::string& name() const { return name_; }
  int architecture() const { return architecture_; }  // 90 for sm_90
  int multiprocessors() const { return multiprocessors_; }
  // Held during an operation, whose steps must follow each other.
  std::recursive_mutex& mutex() { return mutex_; }

  CUdeviceptr Allocate(int64_t bytes);  // aligned to 256
  void Free(CUdeviceptr address) noexcept;
  // Bytes that Allocate could still give out.
  int64_t FreeBytes();

  // The stream of copies runs beside that of the operations and is never recorded. Calls fn(driver, stream of
  // operations, stream of copies) while neither records: what was recorded starts before.
  template <typename Fn>
  void WithoutRecording(Fn&& fn) {
    const std::lock_guard lock(mutex_);
    Use();
    recorder_->Flush();
    fn(driver_, stream_, copies_);
    Resume();
  }
  // Of the two streams, lets `then` go on only after what `first` holds now. Call it without recording.
  void Order(CUstream first, CUstream then);
  CUdeviceptr AllocateForCopies(int64_t bytes);        // to be used by a copy first
  void FreeAfterCopies(CUdeviceptr address) noexcept;  // used by a copy last
  void WaitForCopies() noexcept;

  // Rows of `width` bytes. The source has been read when Upload returns; the destination of Download is
  // complete. Device ranges of Copy must not overlap.
  struct Rows {
    int64_t count = 0;
    int64_t width = 0;
  };
  void Upload(const std::byte* from, int64_t from_stride, CUdeviceptr to, int64_t to_stride, Rows rows);
  void Download(CUdeviceptr from, int64_t from_stride, std::byte* to, int64_t to_stride, Rows rows);
  void Copy(CUdeviceptr from, int64_t from_stride, CUdeviceptr to, int64_t to_stride, Rows rows);
  void Zero(CUdeviceptr to, int64_t stride, Rows rows);
  void Synchronize();

  void Launch(CUfunction function, const LaunchShape& shape, std::span<void*> parameters);
  CUmodule LoadModule(const void* image);  // unloaded with the device

  // Between these, the calling thread's work is recorded and starts as one graph at the end, or where the
  // host waits. Another thread's work is never part of it: it starts what was recorded so far, and runs after
  // it. If that start fails, the step's thread gets the error. While a thread's step is open, that of another
  // thread is not recorded.
  void BeginStep();
  void EndStep();
  const GraphRecorder& recorder() const { return *recorder_; }

  // Memory of the host that the device reads and writes by itself.
  class Pinned {
   public:
    Pinned(Device& device, int64_t bytes);
    ~Pinned();
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    std::byte* data() const { return data_; }
    int64_t bytes() const { return bytes_; }

   private:
    Device& device_;
    int64_t bytes_;
    std::byte* data_ = nullptr;
  };

  CUstream stream() const { return stream_; }
  // Makes the context the calling thread's, and the stream record or not, as BeginStep says. Call it with the
  // mutex held, before anything is added to the stream.
  void Use();

 private:
  void Start();  // what must be undone if it fails half way
  void Stop() noexcept;
  bool OwnsStep() const { return step_thread_ == std::this_thread::get_id(); }
  CUdeviceptr AllocateOn(CUstream stream, int64_t bytes);
  void Resume();  // records again, if the step is the calling thread's
  void FreeDeferred();
  std::byte* Stage(int64_t bytes);

  // Pinned memory through which transfers pass, in segments that are filled in turn. A segment is filled
  // again only after the transfers out of it have ended.
  struct Segment {
    std::unique_ptr<Pinned> memory;
    CUevent ended = nullptr;
    bool in_use = false;
  };

  Driver driver_;
  int ordinal_;
  CUdevice device_ = 0;
  std::string name_;
  int architecture_ = 0;
  int multiprocessors_ = 0;
  CUcontext context_ = nullptr;
  CUmemoryPool pool_ = nullptr;
  CUstream stream_ = nullptr;
  CUstream side_stream_ = nullptr;  // for allocations while the main stream records
  CUstream copies_ = nullptr;
  CUevent order_ = nullptr;
  std::unique_ptr<GraphRecorder> recorder_;
  std::thread::id step_thread_;    // whose step is open; no thread's if none is
  std::exception_ptr step_error_;  // of that step, where another thread's work started it
  std::vector<CUmodule> modules_;
  std::vector<Segment> segments_;
  size_t segment_ = 0;
  int64_t staged_ = 0;              // bytes of the current segment
  std::vector<CUdeviceptr> freed_;  // while the stream records
  std::recursive_mutex mutex_;
};

}  // namespace coppice::gpu
