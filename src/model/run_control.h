// How a caller watches, delays and stops a run.
#pragma once

#include <atomic>
#include <functional>

#include "base/error.h"

namespace coppice {

// The model uses all three between tiles.
struct RunControl {
  // Gets the number of layers done, from 0 to `layers`, never falling. May be empty.
  std::function<void(double layers_done)> progress;
  const std::atomic<bool>* cancelled = nullptr;  // may be null
  // May block and let other sequences use the backend: between two operations the backend holds no data of
  // this sequence. May throw Cancelled. May be empty.
  std::function<void()> pause = {};

  // Calls `pause`, then throws Cancelled if the run was cancelled. Anything that computes for more than some
  // tenths of a second calls this on the way.
  void Pause() const {
    if (pause) pause();
    ThrowIfCancelled(cancelled);
  }
  // As Pause, and reports progress.
  void Tick(double layers_done) const {
    Pause();
    if (progress) progress(layers_done);
  }
};

}  // namespace coppice
