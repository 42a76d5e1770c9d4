// The fake driver: streams, events and graphs.
#include <algorithm>
#include <utility>

#include "kernels/gpu/fake/fake_state.h"

using coppice::gpu::fake::ErrorOf;
using coppice::gpu::fake::FakeDevice;
using coppice::gpu::fake::Fault;
using coppice::gpu::fake::Work;
using namespace coppice::gpu;  // NOLINT: the API's own names

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned /*flags*/) {
  COPPICE_ENTER("cuStreamCreate");
  *stream = new CUstream_st;
  ++device.objects;
  if (device.first_stream == nullptr) device.first_stream = *stream;
  device.streams.insert(*stream);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  COPPICE_ENTER("cuStreamDestroy_v2");
  device.RunUntil(device.At(stream), stream->added);
  device.streams.erase(stream);
  delete stream;
  --device.objects;
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
  if (at.stream == nullptr || device.LosesWait()) return CUDA_SUCCESS;
  device.Add(stream, "wait", [&device, at] { device.RunUntil(*at.stream, at.after); });
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned /*flags*/) {
  COPPICE_ENTER("cuEventCreate");
  *event = new CUevent_st;
  ++device.objects;
  device.events.insert(*event);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  COPPICE_ENTER("cuEventDestroy_v2");
  device.At(event);
  device.events.erase(event);
  delete event;
  --device.objects;
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
  device.RequireContext("cuStreamEndCapture");
  if (device.Fails("cuStreamEndCapture")) {
    device.At(stream).capture.reset();  // a recording that failed has ended too
    return ErrorOf("cuStreamEndCapture");
  }
  if (!device.At(stream).capture) return CUDA_ERROR_INVALID_VALUE;
  *graph = new CUgraph_st(std::move(*stream->capture));
  ++device.objects;
  stream->capture.reset();
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, uint64_t /*flags*/) {
  COPPICE_ENTER("cuGraphInstantiateWithFlags");
  *exec = new CUgraphExec_st{graph->works};
  ++device.objects;
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
  --device.objects;
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  COPPICE_ENTER("cuGraphDestroy");
  delete graph;
  --device.objects;
  return CUDA_SUCCESS;
}

}  // extern "C"
