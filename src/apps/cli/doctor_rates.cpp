#include "apps/cli/doctor_rates.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "base/seconds.h"
#include "base/threads.h"
#include "model/layer.h"
#include "model/synthetic.h"

namespace coppice::cli {

namespace {

constexpr int64_t kTileRows = 768;  // EngineOptions::tile_rows
constexpr int64_t kFewestRows = 16;
constexpr int64_t kMostOutputs = 2048;   // of a large matrix, a part
constexpr double kLongestProduct = 0.1;  // seconds; a slow machine multiplies fewer rows

double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::max(Seconds(std::chrono::steady_clock::now() - start), 1e-9);
}

// The median of repeated calls, for some `seconds`, after one that warms up.
double MedianSeconds(double seconds, const std::function<void()>& work) {
  work();
  std::vector<double> times;
  const auto start = std::chrono::steady_clock::now();
  do {
    times.push_back(SecondsOf(work));
  } while (Seconds(std::chrono::steady_clock::now() - start) < seconds);
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  return times[times.size() / 2];
}

// As many rows as a tile, or as many as take kLongestProduct.
int64_t RowsOf(const std::function<void(int64_t rows)>& work) {
  double took = SecondsOf([&] { work(kFewestRows); });
  for (int i = 0; i < 3 && took < kLongestProduct; ++i)
    took = std::min(took, SecondsOf([&] { work(kFewestRows); }));
  const auto rows = static_cast<int64_t>(kFewestRows * std::min(kLongestProduct / took, 1e6));
  return std::clamp(rows, kFewestRows, kTileRows);
}

Tensor RandomRows(int64_t rows, int64_t cols) {
  Tensor x(DType::kF32, rows, cols);
  Random random(1);
  for (int64_t i = 0; i < rows; ++i) {
    for (float& value : x.mutable_view().Row<float>(i))
      value = static_cast<float>(random.Below(2001)) / 1000 - 1;
  }
  return x;
}

}  // namespace

ProductRates MeasureProducts(Backend& backend, const TensorView& weight, double seconds) {
  const TensorView w = weight.Rows(0, std::min(weight.rows, kMostOutputs));
  const auto values = static_cast<double>(w.rows) * static_cast<double>(w.cols);
  const Tensor x = RandomRows(kTileRows, w.cols);
  Tensor y(DType::kF32, kTileRows, w.rows);
  PackedMatrix packed;
  const double pack = MedianSeconds(seconds / 6, [&] { backend.Pack(w, packed); });
  const auto product = [&](int64_t rows) {
    backend.Product(x.view().Rows(0, rows), packed, {}, y.mutable_view().Rows(0, rows));
  };
  const int64_t rows = RowsOf(product);
  const double took = MedianSeconds(seconds * 2 / 3, [&] { product(rows); });
  const double step = MedianSeconds(
      seconds / 6, [&] { backend.DecodeProduct(x.view().Rows(0, 1), w, {}, y.mutable_view().Rows(0, 1)); });
  return {.flops = 2 * values * static_cast<double>(rows) / took,
          .packed_values = values / pack,
          .decoded_values = values / step};
}

Tensor RandomWeights(DType type) {
  const int64_t size = 2048;
  Tensor weights(type, size, size);
  const MutableTensorView view = weights.mutable_view();
  FillSynthetic({.name = "doctor", .shape = {size, size}, .type = type},
                {view.data, static_cast<size_t>(weights.bytes())}, ThreadPool(1));
  return weights;
}

double MeasureAttention(Backend& backend, const ModelConfig& config, const Weights& weights, double seconds) {
  const std::vector<LayerShape>& layers = config.shape.layers;
  const auto found = std::ranges::find_if(layers, &LayerShape::attends);
  if (found == layers.end()) return 0;
  const auto layer = static_cast<int>(found - layers.begin());
  const std::vector<float> slopes = config.shape.alibi ? AlibiSlopes(found->heads) : std::vector<float>{};
  constexpr int64_t kKeys = 2048;
  const Tensor queries = RandomRows(kTileRows, found->query_width());
  const Tensor exact = RandomRows(kKeys, found->key_width());
  Tensor keys(backend.cache_dtype(), kKeys, found->key_width());
  backend.Convert(exact.view(), keys.mutable_view());
  Tensor out(DType::kF32, kTileRows, found->query_width());
  std::vector<int32_t> positions(kKeys);
  std::iota(positions.begin(), positions.end(), 0);
  const std::span<const int32_t> all(positions);
  PackedCache packed;
  packed.Begin(found->kv_heads, kKeys);
  const auto attend = [&](int64_t rows) {  // the last rows of the prompt
    AttentionInput in{.shape = AttentionOf(config, layer, weights.layers[static_cast<size_t>(layer)], slopes),
                      .queries = queries.view().Rows(0, rows),
                      .keys = keys.view(),
                      .values = keys.view(),
                      .query_positions = all.last(static_cast<size_t>(rows)),
                      .key_positions = all,
                      .packed = &packed};
    in.shape.window = 0;
    backend.Attention(in, out.mutable_view().Rows(0, rows));
  };
  const int64_t rows = RowsOf(attend);
  const double took = MedianSeconds(seconds, [&] { attend(rows); });
  const auto pairs = static_cast<double>(rows * (kKeys - rows) + rows * (rows + 1) / 2);
  return 4 * static_cast<double>(found->query_width()) * pairs / took;
}

TensorView MainWeight(const Weights& weights) {
  std::map<DType, int64_t> bytes;
  std::map<DType, TensorView> largest;
  const auto add = [&](const Linear& linear) {
    const TensorView& w = linear.weight;
    if (w.empty()) return;
    bytes[w.dtype] += w.rows * BytesOf(w.dtype, w.cols);
    TensorView& most = largest[w.dtype];
    if (w.rows * w.cols > most.rows * most.cols) most = w;
  };
  for (const LayerWeights& layer : weights.layers) {
    for (const Linear* one : {&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate, &layer.up,
                              &layer.down, &layer.recurrent.mixed, &layer.recurrent.gate})
      add(*one);
    for (const auto* experts : {&layer.mixture.gate, &layer.mixture.up, &layer.mixture.down})
      std::ranges::for_each(*experts, add);
  }
  if (bytes.empty()) return {};
  return largest[std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; })->first];
}

}  // namespace coppice::cli
