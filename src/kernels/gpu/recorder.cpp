#include "kernels/gpu/recorder.h"

#include <utility>

namespace coppice::gpu {

namespace {

// Graphs of a step that are kept. A step in which a policy acts waits a few times per layer; beyond this many
// waits the work is started directly.
constexpr size_t kMostGraphs = 256;

}  // namespace

GraphRecorder::~GraphRecorder() {
  if (capturing_) {
    CUgraph graph = nullptr;
    if (driver_.cuStreamEndCapture(stream_, &graph) == CUDA_SUCCESS && graph != nullptr)
      driver_.cuGraphDestroy(graph);
  }
  for (CUgraphExec exec : graphs_) {
    if (exec != nullptr) driver_.cuGraphExecDestroy(exec);
  }
}

void GraphRecorder::Begin() {
  next_ = 0;
  in_step_ = true;
  try {
    Resume();
  } catch (...) {
    in_step_ = false;
    throw;
  }
}

void GraphRecorder::Resume() {
  if (!in_step_ || capturing_ || next_ >= kMostGraphs) return;
  driver_.Check(driver_.cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "recording a step");
  capturing_ = true;
}

void GraphRecorder::End() {
  in_step_ = false;
  Flush();
}

void GraphRecorder::Flush() {
  if (!std::exchange(capturing_, false)) return;
  CUgraph graph = nullptr;
  try {
    driver_.Check(driver_.cuStreamEndCapture(stream_, &graph), "recording a step");
    Launch(graph);
  } catch (...) {
    ++lost_;
    if (graph != nullptr) driver_.cuGraphDestroy(graph);
    throw;
  }
  driver_.Check(driver_.cuGraphDestroy(graph), "freeing a graph");
}

void GraphRecorder::Launch(CUgraph graph) {
  if (next_ == graphs_.size()) graphs_.push_back(nullptr);
  CUgraphExec& exec = graphs_[next_++];
  CUgraphExecUpdateResultInfo info = {};
  // A graph of another shape cannot be updated to this one; the error then only says so.
  if (exec != nullptr && driver_.cuGraphExecUpdate(exec, graph, &info) != CUDA_SUCCESS) {
    driver_.Check(driver_.cuGraphExecDestroy(std::exchange(exec, nullptr)), "freeing a graph");
  }
  if (exec == nullptr) {
    driver_.Check(driver_.cuGraphInstantiate(&exec, graph, 0), "preparing a step");
    ++instantiated_;
  }
  driver_.Check(driver_.cuGraphLaunch(exec, stream_), "starting a step");
  ++launched_;
}

}  // namespace coppice::gpu
