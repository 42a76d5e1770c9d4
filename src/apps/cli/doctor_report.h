// What `coppice doctor` finds, as a table and as JSON, and what it finds on any machine.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "base/machine_limits.h"

namespace coppice::cli {

struct Finding {
  std::string key;   // in JSON
  std::string what;  // in the table
  std::string finding;
  std::vector<std::string> hints = {};  // what to do, where something is wrong or slow
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();  // its values, by name
};

// A line for each finding, and below it one for each of its hints.
std::string FindingsText(const std::vector<Finding>& findings);
// {"KEY": {"finding": ..., values by name ..., "hints": [...]}, ...}
nlohmann::ordered_json FindingsJson(const std::vector<Finding>& findings);

// What the threads depend on.
struct ThreadFacts {
  int wanted = 0;  // --threads; 0: all usable cores
  int online = 1;  // CPUs of the machine
  int cores = 0;   // that these are threads of; 0: unknown
  int usable = 1;  // CPUs that the process may run on
  std::optional<double> quota = {};
  std::optional<double> load = {};  // programs that run, on average
  // What the quota leaves in whole CPUs, as UsableCores() counts.
  int paid() const;
  int threads() const { return wanted > 0 ? wanted : paid(); }
};
std::vector<Finding> ThreadFindings(const ThreadFacts& facts);

// What decides which kernels run.
struct IsaFacts {
  CpuFeatures cpu = {};
  Isa best = Isa::kScalar;       // of this CPU
  std::string forced = {};       // COPPICE_ISA
  std::optional<Isa> used = {};  // nothing if COPPICE_ISA names none that this CPU has:
  std::string error = {};        // what that says
};
std::vector<Finding> IsaFindings(const IsaFacts& facts);

Finding MemoryFinding(const SystemMemory& memory, std::optional<int64_t> group, int64_t usable);
Finding HugePagesFinding(const std::string& mode);
// `error`: the errno with which the kernel refuses io_uring; 0: it does not.
Finding UringFinding(int error);

}  // namespace coppice::cli
