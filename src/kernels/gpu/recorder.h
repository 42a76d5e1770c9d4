// Records the work of a decode step and starts it as one graph.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/gpu/driver.h"

namespace coppice::gpu {

// A decode step launches hundreds of short kernels, and the next step the same ones with other arguments. The
// recorder captures the stream's work into a graph, which starts at once, and keeps the executable graphs:
// the next step's graph updates them, which costs less than a new one. Where the host must wait in the middle
// of a step, what was recorded so far starts, and another graph begins; graph i of a step updates graph i of
// the last one.
class GraphRecorder {
 public:
  // Both must outlive the recorder.
  GraphRecorder(const Driver& driver, CUstream stream) : driver_(driver), stream_(stream) {}
  ~GraphRecorder();
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;

  void Begin();
  void End();
  // Starts what was recorded, because the host is about to wait for it. Recording goes on with Resume. Throws
  // Error if it does not start: it is then lost.
  void Flush();
  void Resume();
  bool recording() const { return capturing_; }

  int64_t launched() const { return launched_; }          // graphs started
  int64_t lost() const { return lost_; }                  // graphs that failed before they started
  int64_t instantiated() const { return instantiated_; }  // of these, newly made

 private:
  void Launch(CUgraph graph);

  const Driver& driver_;
  CUstream stream_;
  bool in_step_ = false;
  bool capturing_ = false;
  size_t next_ = 0;  // graph of the step
  std::vector<CUgraphExec> graphs_;
  int64_t launched_ = 0;
  int64_t lost_ = 0;
  int64_t instantiated_ = 0;
};

}  // namespace coppice::gpu
