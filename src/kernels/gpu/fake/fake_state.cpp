#include "kernels/gpu/fake/fake_state.h"

#include <cstdlib>
#include <utility>

#include "kernels/gpu/fake/fake_device.h"

namespace coppice::gpu::fake {

namespace {

int64_t TotalBytes() {
  const char* bytes = std::getenv("COPPICE_FAKE_CUDA_BYTES");
  return bytes != nullptr ? std::atoll(bytes) : int64_t{8} << 30;
}

thread_local uintptr_t current_context = 0;

}  // namespace

FakeDevice& FakeDevice::Get() {
  static FakeDevice device;
  return device;
}

FakeDevice::FakeDevice() : memory(TotalBytes()) {
  side_streams_at_once_ = std::getenv("COPPICE_FAKE_CUDA_AT_ONCE") != nullptr;
  const char* fail = std::getenv("COPPICE_FAKE_CUDA_FAIL");
  if (fail == nullptr) return;
  const std::string text = fail;
  const size_t colon = text.find(':');
  FailAt(text.substr(0, colon), colon == std::string::npos ? 1 : std::atoll(text.c_str() + colon + 1));
}

bool FakeDevice::Fails(const std::string& name) {
  ++calls_[name];
  ++all_calls_;
  if (fail_in_ == 0 || (!fail_name_.empty() && fail_name_ != name)) return false;
  if (--fail_in_ > 0) return false;
  failed_ = name;
  return true;
}

void FakeDevice::FailAt(const std::string& name, int64_t in) {
  fail_name_ = name;
  fail_in_ = in;
}

int64_t FakeDevice::Calls(const std::string& name) { return name.empty() ? all_calls_ : calls_[name]; }

CUcontext FakeDevice::RetainContext() {
  if (context_users_++ == 0) ++contexts_;
  first_stream = nullptr;  // also after a backend whose calls failed left its streams
  ++objects;
  return reinterpret_cast<CUcontext>(contexts_);
}

void FakeDevice::ReleaseContext() {
  if (context_users_-- == 0) Fault("a context that was released too often");
  --objects;
}

void FakeDevice::SetContext(CUcontext context) { current_context = reinterpret_cast<uintptr_t>(context); }

void FakeDevice::RequireContext(const std::string& name) const {
  if (context_users_ == 0 || current_context != contexts_)
    Fault(name + ": the calling thread has no context of the device");
}

CUstream_st& FakeDevice::At(CUstream stream) {
  if (!streams.contains(stream)) Fault("a stream that does not exist");
  return *stream;
}

CUevent_st& FakeDevice::At(CUevent event) {
  if (!events.contains(event)) Fault("an event that does not exist");
  return *event;
}

void FakeDevice::Add(CUstream stream, std::string kind, std::function<void()> run) {
  CUstream_st& at = At(stream);
  if (at.capture) {
    at.capture->works.push_back({std::move(kind), std::move(run)});
    return;
  }
  at.waiting.push_back({std::move(kind), std::move(run)});
  ++at.added;
  if (side_streams_at_once_ && stream != first_stream) RunUntil(at, at.added);
}

void FakeDevice::RunUntil(CUstream_st& stream, int64_t number) {
  while (stream.added - static_cast<int64_t>(stream.waiting.size()) < number) {
    const Work work = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    work.run();
  }
}

void FakeDevice::RunAll() {
  for (CUstream_st* stream : streams) RunUntil(*stream, stream->added);
}

CUresult ErrorOf(const std::string& name) {
  return name == "cuMemAllocAsync" || name == "cuMemHostAlloc" ? CUDA_ERROR_OUT_OF_MEMORY
                                                               : CUDA_ERROR_ILLEGAL_ADDRESS;
}

void Submit(CUstream stream, std::string kind, std::function<void()> run) {
  const std::lock_guard lock(FakeDevice::Get().mutex);
  FakeDevice::Get().RequireContext(kind);
  FakeDevice::Get().Add(stream, std::move(kind), std::move(run));
}

bool Fails(const char* name) {
  const std::lock_guard lock(FakeDevice::Get().mutex);
  return FakeDevice::Get().Fails(name);
}

void CountObject(int64_t more) {
  const std::lock_guard lock(FakeDevice::Get().mutex);
  FakeDevice::Get().objects += more;
}

std::byte* UseBytes(uint64_t address, int64_t bytes, const char* what) {
  return FakeDevice::Get().memory.Use(address, bytes, what);
}

}  // namespace coppice::gpu::fake
