// Several processes that prefill together (comm/comm.h). Process 0 runs the program: it reads the command
// line and prints, samples and decodes. The others read no command line. They load what process 0 loads, and
// compute their rows of the prompts that it prefills.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "comm/comm.h"
#include "engine/engine.h"

namespace coppice {

// The program of a process other than 0. Returns when process 0's has ended.
void Follow(Comm& comm);
// Process 0: ends the others' Follow.
void SendEnd(Comm& comm);

// Process 0's commands. SendLoad returns the engine's number. `path`: of the model's files, the same in every
// process, or the shape.
int64_t SendLoad(Comm& comm, const std::string& path, bool shape, const EngineOptions& options);
void SendUnload(Comm& comm, int64_t engine);
// `spec`: the request's methods, resolved. Nothing of the request that concerns sampling is sent.
void SendPrefill(Comm& comm, int64_t engine, const Request& request, const std::string& spec);

// Throws Error in every process if any has an error ("": it has none), or if their engines have different
// fingerprints (FingerprintOf).
void AgreeOnLoad(Comm& comm, const std::string& error, const Fingerprint& print);

// Measures what this process does, from its construction on.
class WorkMeter {
 public:
  explicit WorkMeter(Comm& comm);
  // Of every process; all call it.
  std::vector<ProcessWork> OfAll(const ComputedRows& rows) const;

 private:
  Comm& comm_;
  CommCounts counts_;
  double cpu_seconds_;
};

}  // namespace coppice
