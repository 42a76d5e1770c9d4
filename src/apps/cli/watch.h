// Progress of a request's prefill on the terminal.
#pragma once

#include <string>

#include "apps/cli/terminal.h"
#include "engine/engine.h"

namespace coppice::cli {

// Progress lines for the phases of a prefill. Must outlive the request's run.
class Watch {
 public:
  Watch(const std::string& label, int layers, Request& request)
      : scoring_(label + ", a first pass scores the prompt", 1, ""), prefill_(label, layers, "layer") {
    request.scoring = [this](double share) { scoring_.Update(share); };
    request.progress = [this](double layers_done) { prefill_.Update(layers_done); };
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void Clear() {
    scoring_.Clear();
    prefill_.Clear();
  }

 private:
  ProgressLine scoring_;
  ProgressLine prefill_;
};

}  // namespace coppice::cli
