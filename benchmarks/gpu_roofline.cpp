// gpu_roofline: a GPU's limits as JSON.
//
//     gpu_roofline [--rounds N]
//
// bf16 products by cuBLASLt and by the project's own kernel, copies within the device, copies to and from pinned
// host memory, and the cold tier there: its rates alone, and which share of a read's time a product hides. Limits are
// measured in turn, N rounds; each has its median, minimum and maximum. Rates are in 1e9 operations or bytes per
// second. A time is that of enough calls for 50 ms or more, between two waits.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/gpu/gpu.h"

namespace {

using namespace coppice;
using Clock = std::chrono::steady_clock;

// A product's rows, outputs and inputs: large enough to fill any device, and the FFN of llama-3.1-8b.
struct Shape {
  int64_t rows, outputs, k;
};
constexpr Shape kSquare = {8192, 8192, 8192};
constexpr Shape kFfn = {512, 14336, 4096};

// Calls per second of `call`, which only appends to the streams.
double RateOf(gpu::Device& device, const std::function<void()>& call) {
  call();
  device.Synchronize();
  for (int64_t calls = 1;; calls *= 2) {
    const Clock::time_point begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    device.Synchronize();
    device.WaitForCopies();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds >= 0.05) return static_cast<double>(calls) / seconds;
  }
}

using Samples = std::map<std::string, std::vector<double>>;

Tensor Plain(DType type, int64_t rows, int64_t cols, DeviceMemory* memory) {
  return Tensor::Zeros(type, rows, cols, memory);
}

// Zeros take as long as other values, apart from the device's power limit, which random values reach sooner; so the
// factors are random.
Tensor Random(int64_t rows, int64_t cols, DeviceMemory* memory) {
  Tensor host(DType::kBF16, rows, cols);
  uint32_t state = 1;
  for (int64_t i = 0; i < rows; ++i) {
    for (BF16& value : host.mutable_view().Row<BF16>(i)) {
      state = state * 1664525u + 1013904223u;
      value = ToBF16(static_cast<float>(state >> 8) / (1 << 24) - 0.5f);
    }
  }
  Tensor device(DType::kBF16, rows, cols, memory);
  CopyRows(host.view(), device.mutable_view());
  return device;
}

gpu::CUdeviceptr AddressOf(const Tensor& t) { return gpu::AddressOf(t.view().data); }

// y [rows, outputs] = x [rows, k] w^T, by the project's own kernel.
void OwnProduct(gpu::Gpu& gpu, const Shape& s, const Tensor& x, const Tensor& w, const Tensor& y) {
  const gpu::CUdeviceptr none = 0;
  gpu.kernels().Launch("product_bf16", {(s.rows + 127) / 128 * ((s.outputs + 127) / 128)}, AddressOf(x),
                       AddressOf(w), none, none, none, none, none, AddressOf(y), s.rows, s.outputs, s.k, s.k,
                       s.outputs, 0.0f, int64_t{0}, int64_t{0});
}

void MeasureProducts(gpu::Gpu& gpu, const std::string& name, const Shape& s, Samples& samples) {
  const Tensor x = Random(s.rows, s.k, &gpu.heap());
  const Tensor w = Random(s.outputs, s.k, &gpu.heap());
  Tensor y(DType::kF32, s.rows, s.outputs, &gpu.heap());
  const double flops =
      2e-9 * static_cast<double>(s.rows) * static_cast<double>(s.outputs) * static_cast<double>(s.k);
  samples["product_own_" + name].push_back(flops *
                                           RateOf(gpu.device(), [&] { OwnProduct(gpu, s, x, w, y); }));
  if (gpu.cublaslt() == nullptr) return;
  samples["product_cublaslt_" + name].push_back(flops * RateOf(gpu.device(), [&] {
                                                  gpu.cublaslt()->Multiply({.x = AddressOf(x),
                                                                            .y = AddressOf(y),
                                                                            .rows = s.rows,
                                                                            .outputs = s.outputs,
                                                                            .y_stride = s.outputs},
                                                                           AddressOf(w), s.k);
                                                }));
}

void MeasureMemory(gpu::Gpu& gpu, Samples& samples) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  gpu::Device& device = gpu.device();
  const Tensor from = Plain(DType::kF32, 1, kBytes / 4, &gpu.heap());
  Tensor to = Plain(DType::kF32, 1, kBytes / 4, &gpu.heap());
  const gpu::CUdeviceptr source = gpu::AddressOf(from.view().data);
  const gpu::CUdeviceptr target = gpu::AddressOf(to.view().data);
  // A copy reads and writes each byte.
  samples["memory_copy"].push_back(2e-9 * static_cast<double>(kBytes) * RateOf(device, [&] {
                                     device.Copy(source, kBytes, target, kBytes, {1, kBytes});
                                   }));
  constexpr int64_t kPinned = int64_t{64} << 20;
  const gpu::Device::Pinned pinned(device, kPinned);
  const gpu::Driver& d = device.driver();
  samples["host_to_device"].push_back(
      1e-9 * static_cast<double>(kPinned) * RateOf(device, [&] {
        d.Check(d.cuMemcpyHtoDAsync(target, pinned.data(), kPinned, device.stream()),
                "copying to the device");
      }));
  samples["device_to_host"].push_back(
      1e-9 * static_cast<double>(kPinned) * RateOf(device, [&] {
        d.Check(d.cuMemcpyDtoHAsync(pinned.data(), source, kPinned, device.stream()),
                "copying from the device");
      }));
}

// Records are blocks of 64 tokens of one layer of llama-3.1-8b. A read starts before a product, whose results it does
// not need, and ends after it, as in a decode step.
void MeasureColdTier(gpu::Gpu& gpu, Samples& samples) {
  constexpr int64_t kRecord = 64 * 2 * 1024 * 2;
  std::vector<int64_t> slots(64);
  std::iota(slots.begin(), slots.end(), 0);
  const double bytes = 1e-9 * static_cast<double>(kRecord) * static_cast<double>(slots.size());
  gpu::Device& device = gpu.device();
  const std::unique_ptr<RecordStore> store = gpu.heap().OpenRecordStore(kRecord);
  samples["cold_tier_write"].push_back(bytes * RateOf(device, [&] {
                                         store->Stage(std::ssize(slots));
                                         store->Write(slots);
                                       }));
  const double reads = RateOf(device, [&] { store->Read(slots); });
  samples["cold_tier_read"].push_back(bytes * reads);
  const Tensor x = Random(kFfn.rows, kFfn.k, &gpu.heap());
  const Tensor w = Random(kFfn.outputs, kFfn.k, &gpu.heap());
  Tensor y(DType::kF32, kFfn.rows, kFfn.outputs, &gpu.heap());
  const auto product = [&] { OwnProduct(gpu, kFfn, x, w, y); };
  const double products = RateOf(device, product);
  const double both = RateOf(device, [&] {
    store->Prefetch(slots);
    product();
    store->Read(slots);
  });
  // Of the shorter of the two times.
  samples["cold_tier_hidden_share"].push_back((1 / reads + 1 / products - 1 / both) /
                                              std::min(1 / reads, 1 / products));
}

nlohmann::ordered_json Summary(Samples samples) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (auto& [name, values] : samples) {
    std::sort(values.begin(), values.end());
    all[name] = {
        {"median", values[values.size() / 2]}, {"minimum", values.front()}, {"maximum", values.back()}};
  }
  return all;
}

int RoundsOf(int argc, char** argv) {
  int rounds = 5;
  if (argc == 1) return rounds;
  const char* text = argc == 3 && std::strcmp(argv[1], "--rounds") == 0 ? argv[2] : "";
  const char* end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, rounds);
  if (read.ec != std::errc() || read.ptr != end || rounds < 1)
    throw Error("usage: gpu_roofline [--rounds N]");
  return rounds;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int rounds = RoundsOf(argc, argv);
    const std::shared_ptr<gpu::Gpu> gpu = gpu::Gpu::Open();
    Samples samples;
    for (int round = 0; round < rounds; ++round) {
      MeasureProducts(*gpu, "8192", kSquare, samples);
      MeasureProducts(*gpu, "ffn", kFfn, samples);
      MeasureMemory(*gpu, samples);
      MeasureColdTier(*gpu, samples);
    }
    const nlohmann::ordered_json record = {{"device", gpu->device().name()},
                                           {"architecture", gpu->device().architecture()},
                                           {"multiprocessors", gpu->device().multiprocessors()},
                                           {"rounds", rounds},
                                           {"limits", Summary(std::move(samples))}};
    fmt::print("{}\n", record.dump(1));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_roofline: {}\n", error.what());
    return 1;
  }
}
