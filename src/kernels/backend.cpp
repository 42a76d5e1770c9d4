#include "kernels/backend.h"

#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/op_checks.h"
#include "kernels/reference/recurrence.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/reference/rows.h"
#include "tensor/device_memory.h"
#include "tensor/tensor.h"

namespace coppice {

namespace {

void CheckCacheType(std::string_view name, const BackendOptions& options) {
  if (!options.cache_type) return;
  const DType type = *options.cache_type;
  if (type != DType::kF32 && type != DType::kBF16 && type != DType::kQ8_0) {
    throw Error("[kernels] keys and values cannot be kept in {}; there are: bf16, q8_0, f32",
                Info(type).name);
  }
  if (type != DType::kF32 && (options.exact || name == "reference")) {
    throw Error("[kernels] {} keeps keys and values in f32, not in {}",
                options.exact ? "exact arithmetic" : "the reference backend", Info(type).name);
  }
}

}  // namespace

void Backend::MeanRows(const TensorView& x, int64_t block, MutableTensorView means) {
  CheckMeanRows(x, block, means);
  const HostRows host(x);
  reference::MeanRows(host.view(), block, means);
}

void Backend::DecodeProducts(std::span<const DecodeTask> tasks) {
  for (const auto& [x, w, bias, y] : tasks) DecodeProduct(x, w, bias, y);
}

void Backend::Scale(MutableTensorView x, float factor) {
  COPPICE_CHECK(x.dtype == DType::kF32 && x.memory == nullptr);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (float& value : x.Row<float>(i)) value *= factor;
  }
}

void Backend::AddScaledRows(const TensorView& x, std::span<const int32_t> rows, std::span<const float> scales,
                            MutableTensorView y) {
  CheckAddScaledRows(x, rows, scales, y);
  for (size_t i = 0; i < rows.size(); ++i)
    reference::AddScaled(x.Row<float>(static_cast<int64_t>(i)), scales[i], y.Row<float>(rows[i]));
}

void Backend::Route(const TensorView& logits, const TensorView& bias, const RouterRule& rule, Routes to) {
  RouteRows(logits, bias, rule, to);
}

void Backend::Recur(const RecurrenceShape& shape, const RecurrenceWeights& weights,
                    std::span<const RecurrenceRows> sequences) {
  for (const RecurrenceRows& rows : sequences) {
    CheckRecur(shape, weights, rows);
    reference::Recur(shape, weights, rows);
  }
}

void Backend::Convolve(const TensorView& x, const TensorView& before, const Convolution& by,
                       MutableTensorView y) {
  CheckConvolve(x, before, by, y);
  reference::Convolve(x, before, by, y);
}

void Backend::DecodeAttentions(std::span<const AttentionInput> inputs, MutableTensorView out) {
  int64_t first = 0;
  for (const AttentionInput& in : inputs) {
    DecodeAttention(in, {}, out.Rows(first, in.queries.rows));
    first += in.queries.rows;
  }
  COPPICE_CHECK(first == out.rows);
}

void Backend::DecodeAttentionOver(const AttentionInput& in, std::span<const int32_t> rows,
                                  MutableTensorView out) {
  CheckAttention(in, out);
  CheckAscendingRows(rows, in.keys.rows);
  Tensor keys(in.keys.dtype, std::ssize(rows), in.keys.cols, memory());
  Tensor values(in.keys.dtype, std::ssize(rows), in.keys.cols, memory());
  GatherRows(in.keys, rows, keys.mutable_view());
  GatherRows(in.values, rows, values.mutable_view());
  std::vector<int32_t> positions;
  for (const int32_t row : rows) positions.push_back(in.key_positions[static_cast<size_t>(row)]);
  AttentionInput some = in;
  some.keys = keys.view();
  some.values = values.view();
  some.key_positions = positions;
  DecodeAttention(some, {}, out);
}

std::unique_ptr<Backend> MakeBackend(std::string_view name, const BackendOptions& options) {
  CheckCacheType(name, options);
  if (name == "reference") return MakeReferenceBackend();
  if (name == "cpu") return MakeCpuBackend(options);
  if (name == "gpu") return MakeGpuBackend(options);
  throw Error("[kernels] no backend '{}'; there are: cpu, gpu, reference", name);
}

}  // namespace coppice
