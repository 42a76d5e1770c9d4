// coppice doctor: what this machine lets the engine do, what slows it down, and what to expect of a model.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "apps/cli/commands.h"
#include "apps/cli/doctor_model.h"
#include "apps/cli/doctor_rates.h"
#include "apps/cli/doctor_report.h"
#include "apps/cli/options.h"
#include "apps/cli/report.h"
#include "apps/cli/terminal.h"
#include "apps/cli/version.h"
#include "base/available_memory.h"
#include "base/error.h"
#include "base/memory_rate.h"
#include "base/threads.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/gpu_backend.h"
#include "kv/io_queue.h"

namespace coppice::cli {

namespace {

struct DoctorOptions {
  std::string model;
  int threads = 0;
  bool json = false;
};

Finding ProgramFinding() {
  return {.key = "program",
          .what = "coppice",
          .finding = fmt::format("{} ({}), {}", kVersion, kBuildType, kCompiler),
          .facts = {{"version", kVersion}, {"build", kBuildType}, {"compiler", kCompiler}}};
}

IsaFacts ReadIsaFacts() {
  const char* forced = std::getenv("COPPICE_ISA");
  IsaFacts facts{.cpu = Cpu(), .best = BestIsa(), .forced = forced == nullptr ? "" : forced};
  try {
    facts.used = ChooseIsa();
  } catch (const Error& error) {
    facts.error = error.what();
  }
  return facts;
}

ThreadFacts ReadThreadFacts(int wanted) {
  const int usable = AllowedCores();
  return {.wanted = wanted,
          .online = std::max(usable, static_cast<int>(std::thread::hardware_concurrency())),
          .cores = PhysicalCores(),
          .usable = usable,
          .quota = CpuQuota(),
          .load = LoadAverage()};
}

Finding GpuFinding() {
  Finding f{.key = "gpu",
            .what = "GPU",
            .finding = "",
            .facts = {{"kernels_built", HasGpuKernels()}, {"device", nullptr}}};
  const std::string built = HasGpuKernels() ? "kernels are built in" : "built without kernels";
  try {
    gpu::Device device(0);
    f.facts["device"] = device.name();
    f.facts["architecture"] = device.architecture();
    f.facts["free_bytes"] = device.FreeBytes();
    f.finding = fmt::format("{}, sm_{}, {} free; {}", device.name(), device.architecture(),
                            BytesText(device.FreeBytes()), built);
    if (!HasGpuKernels())
      f.hints.push_back("this program has no kernels for it; a build with Triton has: docs/gpu.md");
  } catch (const Error& error) {
    constexpr std::string_view kPart = "[gpu] ";
    std::string_view why = error.what();
    if (why.starts_with(kPart)) why.remove_prefix(kPart.size());
    f.finding = fmt::format("none: {}; {}", why, built);
  }
  return f;
}

// `backend`: null where no kernels can run.
Finding ArithmeticFinding(Backend* backend) {
  Finding f{.key = "arithmetic", .what = "products", .finding = ""};
  for (const auto& [type, key] :
       {std::pair{DType::kBF16, "bf16_flops_per_second"}, std::pair{DType::kQ4_0, "q4_0_flops_per_second"}}) {
    f.facts[key] = nullptr;
    if (backend == nullptr) continue;
    const Tensor weights = RandomWeights(type);
    const double rate = MeasureProducts(*backend, weights.view(), 0.4).flops;
    f.finding +=
        fmt::format("{}{:.1f} GFLOP/s in {}", f.finding.empty() ? "" : ", ", rate / 1e9, Info(type).name);
    f.facts[key] = rate;
  }
  if (backend == nullptr) f.finding = "not measured, because no kernels can run";
  return f;
}

struct ReadRate {
  double rate = 0;    // bytes a second
  int64_t bytes = 0;  // that were read
};
ReadRate MeasureReading(int threads, int64_t usable_bytes) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const int64_t most = usable_bytes > 0 ? std::max(usable_bytes / 4, kMiB) : 64 * kMiB;
  const int64_t bytes = std::min(MoreThanCaches(), most);
  return {MemoryReadRate(ThreadPool(threads), bytes, 0.4), bytes};
}

Finding ReadingFinding(const ReadRate& read) {
  return {.key = "memory_bandwidth",
          .what = "memory read",
          .finding = fmt::format("{:.1f} GB/s over {}", read.rate / 1e9, BytesText(read.bytes)),
          .facts = {{"bytes_per_second", read.rate}, {"read_bytes", read.bytes}}};
}

// What this machine is and lets the process do.
std::vector<Finding> MachineFindings(const IsaFacts& isa, const ThreadFacts& threads, int64_t usable) {
  std::vector<Finding> findings = {
      ProgramFinding(),
      {.key = "cpu", .what = "CPU", .finding = isa.cpu.model, .facts = {{"model", isa.cpu.model}}}};
  std::ranges::move(IsaFindings(isa), std::back_inserter(findings));
  std::ranges::move(ThreadFindings(threads), std::back_inserter(findings));
  findings.push_back(MemoryFinding(ReadSystemMemory(), GroupMemoryLimit(), usable));
  findings.push_back(HugePagesFinding(TransparentHugePages()));
  int error = 0;
  MakeUringQueue(-1, error);  // only transfers need a file
  findings.push_back(UringFinding(error));
  findings.push_back(GpuFinding());
  return findings;
}

void Doctor(const DoctorOptions& o) {
  std::optional<DoctorModel> model;  // opened first: it may be absent
  if (!o.model.empty()) model.emplace(o.model);
  const IsaFacts isa = ReadIsaFacts();
  const ThreadFacts threads = ReadThreadFacts(o.threads);
  const int64_t usable = AvailableMemoryBytes();
  std::vector<Finding> findings = MachineFindings(isa, threads, usable);
  const ReadRate read = MeasureReading(threads.threads(), usable);
  std::unique_ptr<Backend> backend;
  if (isa.used) backend = MakeBackend("cpu", {.threads = threads.threads()});
  findings.push_back(ArithmeticFinding(backend.get()));
  findings.push_back(ReadingFinding(read));
  if (model) {
    TellNote(model->opened.tokenizer.get());
    std::ranges::move(ModelFindings(*model, usable), std::back_inserter(findings));
    if (backend)
      std::ranges::move(ExpectedFindings(*model, *backend, read.rate), std::back_inserter(findings));
  }
  if (o.json) {
    fmt::print("{}\n", Dump(FindingsJson(findings), 1));
  } else {
    fmt::print("{}", FindingsText(findings));
  }
}

}  // namespace

void AddDoctor(CLI::App& app) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* doctor =
      app.add_subcommand("doctor", "what this machine can do, what slows it down, what to expect");
  doctor->add_option("-m,--model,model", o->model, "GGUF file, or Hugging Face folder: what to expect of it");
  doctor->add_option("-t,--threads", o->threads, "threads; 0: all usable cores")->check(CLI::Range(0, 1024));
  doctor->add_flag("--json", o->json, "print JSON");
  doctor->footer(
      "Measures for about two seconds. Hints are no errors: the exit code is 1 only if the model cannot be "
      "opened.");
  doctor->callback([o] { Doctor(*o); });
}

}  // namespace coppice::cli
