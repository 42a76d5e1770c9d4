#include "apps/cli/doctor_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/cli/terminal.h"

namespace coppice::cli {

std::string FindingsText(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& f : findings) width = std::max(width, f.what.size());
  std::string text;
  for (const Finding& f : findings) {
    text += fmt::format("{:<{}}  {}\n", f.what, width, f.finding);
    for (const std::string& hint : f.hints) text += fmt::format("{:<{}}  hint: {}\n", "", width, hint);
  }
  return text;
}

nlohmann::ordered_json FindingsJson(const std::vector<Finding>& findings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const Finding& f : findings) {
    nlohmann::ordered_json& one = json[f.key];
    one["finding"] = f.finding;
    for (const auto& [name, value] : f.facts.items()) one[name] = value;
    one["hints"] = f.hints;
  }
  return json;
}

namespace {

std::string CountOf(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

template <typename Value>
nlohmann::ordered_json OrNull(const std::optional<Value>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

Finding CoresFinding(const ThreadFacts& f) {
  std::string text = CountOf(f.online, "CPU");
  if (f.cores > 0 && f.cores < f.online) text += fmt::format(" on {}", CountOf(f.cores, "core"));
  if (f.usable < f.online) text += fmt::format(", of which this process may use {}", f.usable);
  if (f.quota) text += fmt::format("; the control group allows the time of {:.3g}", *f.quota);
  return {.key = "cores",
          .what = "CPUs",
          .finding = text,
          .facts = {{"online", f.online},
                    {"physical_cores", f.cores},
                    {"usable", f.usable},
                    {"quota", OrNull(f.quota)}}};
}

}  // namespace

int ThreadFacts::paid() const {
  return std::min(usable, std::max(1, static_cast<int>(std::min(quota.value_or(1e6), 1e6))));
}

std::vector<Finding> ThreadFindings(const ThreadFacts& f) {
  const int threads = f.threads();
  Finding used{.key = "threads",
               .what = "threads",
               .finding = fmt::format("{}{}", threads, f.wanted > 0 ? " (-t)" : ""),
               .facts = {{"used", threads}}};
  // Where the quota is used up, all threads wait for the next period.
  const int paid = f.paid();
  if (threads > f.usable) {
    used.hints.push_back(fmt::format("{} threads, but this process may use {}: -t {}", threads,
                                     CountOf(f.usable, "CPU"), paid));
  } else if (f.quota && threads > *f.quota && threads > paid) {
    used.hints.push_back(
        fmt::format("{} threads, but the control group allows {:.3g} CPUs: -t {}", threads, *f.quota, paid));
  }
  std::vector<Finding> findings = {CoresFinding(f), used};
  if (!f.load) return findings;
  Finding load{.key = "load",
               .what = "load",
               .finding = fmt::format("{:.2f} programs ran in the last minute", *f.load),
               .facts = {{"last_minute", *f.load}}};
  if (*f.load > 0.5 * f.online)
    load.hints.push_back("other programs use this machine: the rates below are lower than on a quiet one");
  findings.push_back(load);
  return findings;
}

namespace {

Finding KernelsFinding(const IsaFacts& f) {
  const auto name = [](std::optional<Isa> isa) {
    return isa ? nlohmann::ordered_json(IsaName(*isa)) : nlohmann::ordered_json();
  };
  Finding isa{
      .key = "isa",
      .what = "kernels",
      .finding = f.used ? std::string(IsaName(*f.used)) : fmt::format("none: {}", f.error),
      .facts = {{"found", IsaName(f.best)},
                {"used", name(f.used)},
                {"forced", f.forced.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(f.forced)}}};
  if (!f.used) {
    isa.hints.push_back("no command can compute with this COPPICE_ISA: unset it");
  } else if (*f.used < f.best) {
    isa.hints.push_back(
        fmt::format("COPPICE_ISA={} is set, but this CPU has {}: unset it", f.forced, IsaName(f.best)));
  } else {
    isa.finding += ", the best of this CPU";
    if (f.best == Isa::kScalar)
      isa.hints.push_back("this CPU has no AVX2 with FMA and F16C, so everything is many times slower");
  }
  return isa;
}

}  // namespace

std::vector<Finding> IsaFindings(const IsaFacts& f) {
  const CpuFeatures& cpu = f.cpu;
  std::string units;
  nlohmann::ordered_json present = nlohmann::ordered_json::array();
  const auto add = [&](bool there, const char* name, const char* key) {
    if (!there) return;
    units += fmt::format("{}{}", units.empty() ? "" : ", ", name);
    present.push_back(key);
  };
  add(cpu.avx2, "AVX2", "avx2");
  add(cpu.avx_vnni, "AVX-VNNI", "avx_vnni");
  add(cpu.avx512, "AVX-512", "avx512");
  add(cpu.avx512_vnni, "AVX-512 VNNI", "avx512_vnni");
  add(cpu.avx512_bf16, "AVX-512 BF16", "avx512_bf16");
  add(cpu.amx, "AMX", "amx");
  Finding vectors{.key = "vector_units",
                  .what = "vector units",
                  .finding = units.empty() ? "none that the kernels use" : units,
                  .facts = {{"present", present}, {"amx_on_chip", cpu.amx_on_chip}}};
  if (cpu.amx_on_chip && !cpu.amx) {
    vectors.finding += "; AMX is refused";
    vectors.hints.push_back(
        "AMX is on the chip, but the system refuses it: it takes Linux 5.16 or newer, and a container or "
        "virtual machine that passes tiles on and lets arch_prctl(ARCH_REQ_XCOMP_PERM) through");
  }
  return {KernelsFinding(f), vectors};
}

Finding MemoryFinding(const SystemMemory& memory, std::optional<int64_t> group, int64_t usable) {
  Finding f{.key = "memory",
            .what = "memory",
            .finding = "unknown",
            .facts = {{"total_bytes", memory.total},
                      {"available_bytes", memory.available},
                      {"group_limit_bytes", OrNull(group)},
                      {"usable_bytes", usable},
                      {"swap_bytes", memory.swap_total},
                      {"swap_used_bytes", memory.swap_total - memory.swap_free}}};
  if (memory.total > 0)
    f.finding = fmt::format("{}, {} available", BytesText(memory.total), BytesText(memory.available));
  if (group) f.finding += fmt::format("; the control group's limit is {}", BytesText(*group));
  f.finding += memory.swap_total == 0 ? "; no swap" : fmt::format("; swap {}", BytesText(memory.swap_total));
  return f;
}

Finding HugePagesFinding(const std::string& mode) {
  const std::string note =
      mode == "always" ? ", also for coppice" : ": coppice asks for none, so it has none";
  return {.key = "huge_pages",
          .what = "huge pages",
          .finding = mode.empty() ? "unknown" : fmt::format("transparent ones: {}{}", mode, note),
          .facts = {{"transparent", mode.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(mode)}}};
}

Finding UringFinding(int error) {
  Finding f{.key = "io_uring",
            .what = "io_uring",
            .finding = error == 0 ? "allowed" : fmt::format("refused: {}", std::strerror(error)),
            .facts = {{"allowed", error == 0}}};
  if (error != 0)
    f.hints.push_back(
        "threads write and read the cold tier's file instead, with the same answers; a container's seccomp "
        "profile or the sysctl kernel.io_uring_disabled may forbid io_uring");
  return f;
}

}  // namespace coppice::cli
