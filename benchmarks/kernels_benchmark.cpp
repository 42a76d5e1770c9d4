// The operations of a backend, each beside the machine's limit measured between its runs.
//
//     kernels_benchmark [--benchmark_filter=...] [--benchmark_format=json]
//
// The backend is the one that `coppice` would take: COPPICE_ISA chooses another ISA. Counters: FLOP/s
// (bytes/s where memory is the limit), and `share` of the limit, medians of both over the interleaved runs.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "benchmarks/roofline.h"
#include "formats/quants.h"
#include "kernels/backend.h"

namespace {

using namespace coppice;
using Clock = std::chrono::steady_clock;

Backend& TheBackend() {
  static const std::unique_ptr<Backend> backend = MakeBackend("cpu", {});
  return *backend;
}

roofline::Memory& TheMemory() {
  static roofline::Memory memory(TheBackend().threads());
  return memory;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs `operation` and `limit` (which returns a rate) in turn.
void Interleave(benchmark::State& state, double work, const char* unit,
                const std::function<void()>& operation, const std::function<double()>& limit) {
  std::vector<double> rates;
  std::vector<double> limits;
  operation();  // once for the caches and what is set up at first use
  for (auto _ : state) {
    limits.push_back(limit());
    const Clock::time_point begin = Clock::now();
    operation();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    state.SetIterationTime(seconds);
    rates.push_back(work / seconds);
  }
  if (rates.empty()) return;
  state.counters[unit] = Median(rates);
  state.counters["limit"] = Median(limits);
  state.counters["share"] = Median(rates) / Median(limits);
}

// After Interleave of the same work.
void AddTimePerRow(benchmark::State& state, double work, const char* unit, int64_t rows) {
  const double rate = state.counters[unit].value;
  if (rate > 0) state.counters["us/row"] = 1e6 * work / rate / static_cast<double>(rows);
}

std::function<double()> PeakFor(bool int8) {
  static const roofline::Peak peaks[] = {roofline::BestPeak(ChooseIsa(), false, TheBackend().threads()),
                                         roofline::BestPeak(ChooseIsa(), true, TheBackend().threads())};
  return [peak = peaks[int8 ? 1 : 0]] { return roofline::MeasurePeak(peak, TheBackend().threads(), 0.005); };
}

std::function<double()> ReadLimit() {
  return [] { return TheMemory().Measure(roofline::Stream::kRead, TheBackend().threads()); };
}
// Of operations that write elsewhere: an ordinary store reads its line first, as the triad's does.
std::function<double()> TriadLimit() {
  return [] { return TheMemory().Measure(roofline::Stream::kTriad, TheBackend().threads()); };
}
// Of operations in place, which have read the line anyway.
std::function<double()> InPlaceLimit() {
  return [] { return TheMemory().Measure(roofline::Stream::kTriadNonTemporal, TheBackend().threads()); };
}

uint32_t Random() {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(state >> 33);
}

Tensor RandomRows(int64_t rows, int64_t cols) {
  Tensor t(DType::kF32, rows, cols);
  for (int64_t i = 0; i < rows; ++i) {
    for (float& x : t.mutable_view().Row<float>(i)) x = static_cast<float>(Random() % 2001) / 1000 - 1;
  }
  return t;
}

// Quantised blocks of masked random bytes: whichever of them are a block's scales, they are finite halves
// below 1.
Tensor RandomWeights(DType type, int64_t rows, int64_t cols) {
  Tensor t(type, rows, cols);
  const auto bytes = static_cast<size_t>(BytesOf(type, cols));
  Tensor row = RandomRows(1, cols);
  for (int64_t i = 0; i < rows; ++i) {
    std::byte* at = t.mutable_view().RowBytes(i);
    if (Info(type).block_elements == 1) {
      row.mutable_view().Row<float>(0)[static_cast<size_t>(i % cols)] =
          static_cast<float>(Random() % 100) / 100;
      QuantizeRow(type, row.view().Row<float>(0), at);
      continue;
    }
    for (size_t b = 0; b < bytes; ++b) at[b] = static_cast<std::byte>(Random() & 0x3b);
  }
  return t;
}

bool IsQuantised(DType type) { return Info(type).block_elements > 1; }

struct Shape {
  const char* name;
  int64_t outputs, inputs;
};
// Of llama-3.2-1b and llama-2-7b.
constexpr Shape kShapes[] = {{"1b_qo", 2048, 2048},   {"1b_kv", 512, 2048},    {"1b_up", 8192, 2048},
                             {"1b_down", 2048, 8192}, {"7b_qkvo", 4096, 4096}, {"7b_up", 11008, 4096},
                             {"7b_down", 4096, 11008}};

void BM_Product(benchmark::State& state, const Shape& shape, DType type, int64_t m) {
  const Tensor w = RandomWeights(type, shape.outputs, shape.inputs);
  PackedMatrix packed;
  TheBackend().Pack(w.view(), packed);
  const Tensor x = RandomRows(m, shape.inputs);
  Tensor y(DType::kF32, m, shape.outputs);
  const double flops =
      2.0 * static_cast<double>(m) * static_cast<double>(shape.outputs) * static_cast<double>(shape.inputs);
  Interleave(
      state, flops, "FLOP/s", [&] { TheBackend().Product(x.view(), packed, {}, y.mutable_view()); },
      PeakFor(IsQuantised(type)));
}

void BM_Pack(benchmark::State& state, const Shape& shape, DType type) {
  const Tensor w = RandomWeights(type, shape.outputs, shape.inputs);
  PackedMatrix packed;
  const double bytes = static_cast<double>(shape.outputs * BytesOf(type, shape.inputs));
  Interleave(
      state, bytes, "bytes/s", [&] { TheBackend().Pack(w.view(), packed); }, ReadLimit());
}

// As many matrices in turn as fill 256 MiB: a decoder reads each weight once per token, never from a cache.
void BM_DecodeProduct(benchmark::State& state, const Shape& shape, DType type) {
  const int64_t size = shape.outputs * BytesOf(type, shape.inputs);
  const int64_t copies = std::max<int64_t>(2, (int64_t{256} << 20) / size);
  const Tensor w = RandomWeights(type, shape.outputs * copies, shape.inputs);
  const Tensor x = RandomRows(1, shape.inputs);
  Tensor y(DType::kF32, 1, shape.outputs);
  Interleave(
      state, static_cast<double>(size * copies), "bytes/s",
      [&] {
        for (int64_t i = 0; i < copies; ++i)
          TheBackend().DecodeProduct(x.view(), w.view().Rows(i * shape.outputs, shape.outputs), {},
                                     y.mutable_view());
      },
      ReadLimit());
}

struct Heads {
  const char* name;
  int heads, kv_heads, head_dim;
};
constexpr Heads kHeads[] = {{"1b", 32, 8, 64}, {"7b", 32, 32, 128}};

// What attention may round to 8 bits.
struct EightBits {
  bool values = false;
  bool keys = false;
};

// The last tile of a prompt: 512 queries over all keys, causal; or a decode step.
void BM_Attention(benchmark::State& state, const Heads& h, int64_t keys, int64_t queries, EightBits bits) {
  Backend& be = TheBackend();
  const auto cached = [&] {
    const Tensor exact = RandomRows(keys, int64_t{h.kv_heads} * h.head_dim);
    Tensor t(be.cache_dtype(), exact.rows(), exact.cols());
    be.Convert(exact.view(), t.mutable_view());
    return t;
  };
  const Tensor k = cached();
  const Tensor v = cached();
  const Tensor q = RandomRows(queries, int64_t{h.heads} * h.head_dim);
  Tensor out(DType::kF32, q.rows(), q.cols());
  std::vector<int32_t> positions(static_cast<size_t>(keys));
  std::iota(positions.begin(), positions.end(), 0);
  const AttentionInput in{{.heads = h.heads,
                           .kv_heads = h.kv_heads,
                           .head_dim = h.head_dim,
                           .scale = 1 / std::sqrt(static_cast<float>(h.head_dim)),
                           .int8_values = bits.values,
                           .key_bits = bits.keys ? 8 : 0},
                          q.view(),
                          k.view(),
                          v.view(),
                          std::span(positions).last(static_cast<size_t>(queries)),
                          positions};
  const auto run = [&] {
    queries == 1 ? be.DecodeAttention(in, {}, out.mutable_view()) : be.Attention(in, out.mutable_view());
  };
  if (queries == 1) {
    const double bytes =
        2 * static_cast<double>(keys * BytesOf(be.cache_dtype(), int64_t{h.kv_heads} * h.head_dim));
    return Interleave(state, bytes, "bytes/s", run, ReadLimit());
  }
  const double pairs =
      static_cast<double>(queries) * (static_cast<double>(keys) - static_cast<double>(queries - 1) / 2);
  Interleave(state, 4.0 * h.heads * h.head_dim * pairs, "FLOP/s", run, PeakFor(false));
}

struct Recurrent {
  const char* name;
  RecurrenceShape shape;
  int64_t channels, taps;
};
constexpr Recurrent kRecurrent[] = {
    {"qwen35_4b", {RecurrenceRule::kGatedDelta, 16, 32, 128, 128, true}, 8192, 4},
    {"mamba2_48", {RecurrenceRule::kMamba2, 1, 48, 128, 64}, 3328, 4},
    {"mamba2_128", {RecurrenceRule::kMamba2, 8, 128, 128, 64}, 10240, 4},
};

// Rows of a prompt, with q, k and v as columns of one matrix; or a decode step of as many layers as fill 128
// MiB, whose states come from memory.
void BM_Recur(benchmark::State& state, const Recurrent& of, int64_t m) {
  const RecurrenceShape& s = of.shape;
  const int64_t keys = s.key_width();
  const int64_t state_rows = int64_t{s.value_heads} * s.key_dim;
  const int64_t layers = m == 1 ? (int64_t{128} << 20) / (4 * state_rows * s.value_dim) : 1;
  const Tensor mixed = RandomRows(m, 2 * keys + s.value_width());
  const Tensor gates = RandomRows(m, 2 * s.value_heads);
  const Tensor of_heads = RandomRows(2, s.value_heads);
  Tensor rates(DType::kF32, 1, s.value_heads);
  for (float& rate : rates.mutable_view().Row<float>(0)) rate = -0.05F;
  Tensor states = RandomRows(layers * state_rows, s.value_dim);
  Tensor out(DType::kF32, m, s.value_width());
  const RecurrenceWeights weights{rates.view(), of_heads.view().Rows(0, 1), of_heads.view().Rows(1, 1)};
  RecurrenceRows rows;
  rows.q = mixed.view().Cols(0, keys);
  rows.k = mixed.view().Cols(keys, keys);
  rows.v = mixed.view().Cols(2 * keys, s.value_width());
  rows.step = gates.view().Cols(0, s.value_heads);
  rows.beta = gates.view().Cols(s.value_heads, s.value_heads);
  rows.out = out.mutable_view();
  const auto run = [&] {
    for (int64_t layer = 0; layer < layers; ++layer) {
      rows.state = states.mutable_view().Rows(layer * state_rows, state_rows);
      TheBackend().Recur(s, weights, {&rows, 1});
    }
  };
  if (m == 1) {
    const double bytes = 2 * static_cast<double>(states.bytes());
    Interleave(state, bytes, "bytes/s", run, InPlaceLimit());
    return AddTimePerRow(state, bytes, "bytes/s", layers);
  }
  const double flops = (s.rule == RecurrenceRule::kGatedDelta ? 7.0 : 5.0) * static_cast<double>(m) *
                       static_cast<double>(s.value_width()) * s.key_dim;
  Interleave(state, flops, "FLOP/s", run, PeakFor(false));
  AddTimePerRow(state, flops, "FLOP/s", m);
}

void BM_Convolve(benchmark::State& state, const Recurrent& of, int64_t m) {
  const Tensor x = RandomRows(m, of.channels);
  const Tensor before = RandomRows(of.taps - 1, of.channels);
  const Tensor weight = RandomRows(of.taps, of.channels);
  Tensor y(DType::kF32, m, of.channels);
  const double bytes = 8 * static_cast<double>(m * of.channels);
  Interleave(
      state, bytes, "bytes/s",
      [&] {
        TheBackend().Convolve(x.view(), before.view(), {weight.view(), {}, true}, y.mutable_view());
      },
      TriadLimit());
  AddTimePerRow(state, bytes, "bytes/s", m);
}

// Over rows of the residual stream; bytes are what is read and written.
void BM_Rows(benchmark::State& state, const std::string& what) {
  constexpr int64_t kRows = 8192;
  constexpr int64_t kCols = 2048;
  Backend& be = TheBackend();
  const Tensor x = RandomRows(kRows, kCols);
  const Tensor weight = RandomRows(1, kCols);
  Tensor y = RandomRows(kRows, kCols);
  Tensor narrow(DType::kBF16, kRows, kCols);
  std::vector<int32_t> even(kRows / 2);
  for (size_t i = 0; i < even.size(); ++i) even[i] = static_cast<int32_t>(2 * i);
  const MutableTensorView half = y.mutable_view().Rows(0, kRows / 2);
  const double plain = static_cast<double>(kRows * kCols) * 4;
  if (what == "rms_norm")
    Interleave(
        state, 2 * plain, "bytes/s", [&] { be.RmsNorm(x.view(), weight.view(), 1e-5f, y.mutable_view()); },
        TriadLimit());
  if (what == "silu_mul")
    Interleave(
        state, 3 * plain, "bytes/s", [&] { be.GateMul(y.mutable_view(), x.view(), Activation::kSilu); },
        InPlaceLimit());
  if (what == "add")
    Interleave(
        state, 3 * plain, "bytes/s", [&] { be.Add(x.view(), y.mutable_view()); }, InPlaceLimit());
  if (what == "gather")
    Interleave(
        state, plain, "bytes/s", [&] { be.GatherRows(x.view(), even, half); }, TriadLimit());
  if (what == "convert")
    Interleave(
        state, 1.5 * plain, "bytes/s", [&] { be.Convert(x.view(), narrow.mutable_view()); }, TriadLimit());
}

void RegisterAll() {
  const auto add = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Unit(benchmark::kMillisecond);
  };
  for (const Shape& shape : kShapes) {
    for (const DType type : {DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
      const std::string of = fmt::format("{}/{}", shape.name, Info(type).name);
      for (const int64_t m : {512, 2048, 8192}) {
        add(fmt::format("Product/{}/{}", of, m),
            [&shape, type, m](auto& state) { BM_Product(state, shape, type, m); });
      }
    }
    for (const DType type : {DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ4_K}) {
      add(fmt::format("Pack/{}/{}", shape.name, Info(type).name),
          [&shape, type](auto& state) { BM_Pack(state, shape, type); });
    }
    for (const DType type :
         {DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
      add(fmt::format("DecodeProduct/{}/{}", shape.name, Info(type).name),
          [&shape, type](auto& state) { BM_DecodeProduct(state, shape, type); });
    }
  }
  for (const Heads& heads : kHeads) {
    for (const int64_t keys : {1024, 4096, 16384, 32768}) {
      for (const int64_t queries : {512, 1}) {
        add(fmt::format("Attention/{}/{}/{}", heads.name, keys, queries),
            [&heads, keys, queries](auto& state) { BM_Attention(state, heads, keys, queries, {}); });
      }
      add(fmt::format("Attention/{}/{}/512/int8_values", heads.name, keys),
          [&heads, keys](auto& state) { BM_Attention(state, heads, keys, 512, {.values = true}); });
      add(fmt::format("Attention/{}/{}/512/int8", heads.name, keys), [&heads, keys](auto& state) {
        BM_Attention(state, heads, keys, 512, {.values = true, .keys = true});
      });
    }
  }
  for (const Recurrent& recurrent : kRecurrent) {
    for (const int64_t rows : {512, 1})
      add(fmt::format("Recur/{}/{}", recurrent.name, rows),
          [&recurrent, rows](auto& state) { BM_Recur(state, recurrent, rows); });
    add(fmt::format("Convolve/{}/512", recurrent.name),
        [&recurrent](auto& state) { BM_Convolve(state, recurrent, 512); });
  }
  for (const std::string what : {"rms_norm", "silu_mul", "add", "gather", "convert"})
    add("Rows/" + what, [what](auto& state) { BM_Rows(state, what); });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    benchmark::AddCustomContext("cpu", Cpu().model);
    benchmark::AddCustomContext("isa", std::string(TheBackend().isa()));
    benchmark::AddCustomContext("threads", fmt::format("{}", TheBackend().threads()));
    benchmark::AddCustomContext(
        "limit_bf16", std::string(NameOf(roofline::BestPeak(ChooseIsa(), false, TheBackend().threads()))));
    benchmark::AddCustomContext(
        "limit_int8", std::string(NameOf(roofline::BestPeak(ChooseIsa(), true, TheBackend().threads()))));
    RegisterAll();
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernels_benchmark: {}\n", error.what());
    return 1;
  }
  benchmark::Shutdown();
  return 0;
}
