// roofline: this machine's limits as JSON, on one thread and on all.
//
//     roofline [--rounds N] [--threads N] [--no-memory]
//
// Limits are measured in turn, N rounds; each has its median, minimum and maximum. Rates are in 1e9 operations or
// bytes per second.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "base/error.h"
#include "base/threads.h"
#include "benchmarks/roofline.h"

namespace {

using namespace coppice;

struct Options {
  int rounds = 5;
  int threads = UsableCores();
  bool memory = true;
};

int WholeNumber(const char* name, const char* text) {
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, value);
  if (read.ec != std::errc() || read.ptr != end || value < 1)
    throw Error("{} {}: not a whole number from 1", name, text);
  return value;
}

Options Parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--no-memory") {
      o.memory = false;
    } else if ((word == "--rounds" || word == "--threads") && i + 1 < argc) {
      (word == "--rounds" ? o.rounds : o.threads) = WholeNumber(word.c_str(), argv[++i]);
    } else {
      throw Error("{}: usage: roofline [--rounds N] [--threads N] [--no-memory]", word);
    }
  }
  return o;
}

using Samples = std::map<std::string, std::map<int, std::vector<double>>>;  // by name and threads

nlohmann::ordered_json Summary(const Samples& samples) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const auto& [name, by_threads] : samples) {
    for (auto [threads, values] : by_threads) {
      std::sort(values.begin(), values.end());
      const size_t n = values.size();
      const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
      all[name][fmt::format("{}", threads)] = {
          {"median", median / 1e9}, {"min", values.front() / 1e9}, {"max", values.back() / 1e9}};
    }
  }
  return all;
}

void Measure(const Options& o) {
  if (!Cpu().avx2) throw Error("roofline: this CPU has no AVX2");
  std::vector<int> counts = {1};
  if (o.threads > 1) counts.push_back(o.threads);
  Samples peaks;
  Samples streams;
  std::unique_ptr<roofline::Memory> memory;
  if (o.memory) memory = std::make_unique<roofline::Memory>(o.threads);
  for (int round = 0; round < o.rounds; ++round) {
    for (const int threads : counts) {
      for (const roofline::PeakInfo& info : roofline::Peaks()) {
        if (info.there())
          peaks[std::string(info.name)][threads].push_back(roofline::MeasurePeak(info.peak, threads));
      }
      for (int s = 0; memory != nullptr && s < 3; ++s) {
        streams[std::string(roofline::kStreamNames[s])][threads].push_back(
            memory->Measure(static_cast<roofline::Stream>(s), threads));
      }
    }
  }
  const nlohmann::ordered_json json = {{"cpu", Cpu().model},
                                       {"threads", o.threads},
                                       {"rounds", o.rounds},
                                       {"gigaops_per_second", Summary(peaks)},
                                       {"gigabytes_per_second", Summary(streams)}};
  fmt::print("{}\n", json.dump(1));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Measure(Parse(argc, argv));
    return std::fflush(stdout) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "roofline: {}\n", error.what());
    return 1;
  }
}
