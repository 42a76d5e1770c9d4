// The state of the fake device: its memory, its streams and events, and the call that shall fail. The entry
// points of the driver over it are in fake_driver.cpp, fake_transfers.cpp and fake_streams.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/gpu/cuda_api.h"
#include "kernels/gpu/fake/fake_kernels.h"
#include "kernels/gpu/fake/fake_memory.h"

namespace coppice::gpu::fake {

struct Work {
  std::string kind;  // two graphs with works of the same kinds in order have the same shape
  std::function<void()> run;
};

}  // namespace coppice::gpu::fake

namespace coppice::gpu {

struct CUgraph_st {
  std::vector<fake::Work> works;
};
struct CUgraphExec_st {
  std::vector<fake::Work> works;
};
struct CUstream_st {
  std::deque<fake::Work> waiting;
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

class FakeDevice {
 public:
  static FakeDevice& Get();

  std::recursive_mutex mutex;
  DeviceBytes memory;
  std::set<CUstream_st*> streams;
  CUstream_st* first_stream = nullptr;
  std::set<CUevent_st*> events;

  // Streams, events, modules, graphs, contexts and objects of cuBLASLt that were made and not destroyed.
  int64_t objects = 0;

  // Counts the call, and returns true if it is the one that shall fail.
  bool Fails(const std::string& name);
  const std::string& failed() const { return failed_; }  // the last call that failed so
  // The `in`-th call of this entry point from now on fails; of any, if `name` is empty. 0: none.
  void FailAt(const std::string& name, int64_t in);
  int64_t Calls(const std::string& name);  // of all entry points, if `name` is empty

  // The primary context. Each thread has its own current context, as with a real driver, and none at first.
  CUcontext RetainContext();
  void ReleaseContext();
  void SetContext(CUcontext context);
  void RequireContext(const std::string& name) const;  // faults if the calling thread has none

  // The `in`-th wait of a stream for an event from now on is lost; 0: none.
  void LoseWait(int64_t in) { lose_wait_in_ = in; }
  bool LosesWait() { return lose_wait_in_ > 0 && --lose_wait_in_ == 0; }
  // All streams but the device's first one run their work as soon as they get it, and not as late as
  // possible.
  void RunSideStreamsAtOnce(bool at_once) { side_streams_at_once_ = at_once; }

  // Fault if there is no such stream or event.
  CUstream_st& At(CUstream stream);
  CUevent_st& At(CUevent event);
  // Appends work to what the stream has to do, or to what it records.
  void Add(CUstream stream, std::string kind, std::function<void()> run);
  // Runs the stream's works up to the one with this number.
  void RunUntil(CUstream_st& stream, int64_t number);
  void RunAll();

 private:
  FakeDevice();

  int64_t context_users_ = 0;
  uintptr_t contexts_ = 0;  // contexts made so far; the last one's handle
  std::map<std::string, int64_t> calls_;
  int64_t all_calls_ = 0;
  std::string fail_name_;
  std::string failed_;
  int64_t fail_in_ = 0;
  int64_t lose_wait_in_ = 0;
  bool side_streams_at_once_ = false;
};

// What a call that shall fail returns.
CUresult ErrorOf(const std::string& name);

}  // namespace coppice::gpu::fake

// The beginning of an entry point: the device, locked, and a failure if it was asked for. Most entry points
// also need a context that is the calling thread's.
#define COPPICE_ENTER_ANYWHERE(name)                                              \
  coppice::gpu::fake::FakeDevice& device = coppice::gpu::fake::FakeDevice::Get(); \
  const std::lock_guard lock(device.mutex);                                       \
  if (device.Fails(name)) return coppice::gpu::fake::ErrorOf(name)
#define COPPICE_ENTER(name)     \
  COPPICE_ENTER_ANYWHERE(name); \
  device.RequireContext(name)
