#include "kernels/gpu/attention_operands.h"

#include <vector>

#include "base/error.h"

namespace coppice::gpu {

namespace {

constexpr int64_t kWidestHead = 128;  // of the variants "_any"

// Rows of a cache as bf16.
Operands::Place AsBf16(Gpu& gpu, Operands& op, const TensorView& cache) {
  const Operands::Place stored = op.In(cache);
  if (cache.dtype == DType::kBF16 || cache.empty()) return stored;
  const CUdeviceptr widened = op.Scratch(cache.rows * cache.cols * 2);
  const Grid grid{cache.rows, CeilDiv(cache.cols, 1024)};
  if (cache.dtype == DType::kQ8_0) {
    gpu.kernels().Launch("convert_q8_0_bf16", {cache.rows, CeilDiv(cache.cols / 32, 32)}, stored.address,
                         widened, cache.cols, stored.stride, cache.cols);
  } else {
    gpu.kernels().Launch(cache.dtype == DType::kF16 ? "convert_f16_bf16" : "convert_f32_bf16", grid,
                         stored.address, widened, cache.cols, cache.cols, stored.stride, cache.cols);
  }
  return {widened, cache.cols};
}

}  // namespace

bool IsAligned(const Operands::Place& place, int64_t element_bytes) {
  return place.address % 16 == 0 && place.stride % 16 == 0 && place.stride * element_bytes % 16 == 0;
}

void CheckHeads(int64_t head_dim) {
  if (head_dim > kWidestHead)
    throw Error("[gpu] heads of {} channels: the kernels take up to {}", head_dim, kWidestHead);
}

AttentionOperands::AttentionOperands(Gpu& gpu, Operands& op, const AttentionInput& in, bool with_values,
                                     bool positions)
    : m(in.queries.rows),
      n(in.keys.rows),
      heads(in.shape.heads),
      group(in.shape.heads / in.shape.kv_heads),
      head_dim(in.shape.head_dim),
      window(in.shape.window),
      scale(in.shape.scale),
      alibi(!in.shape.alibi_slopes.empty()) {
  CheckHeads(head_dim);
  q = op.In(in.queries);
  k = AsBf16(gpu, op, in.keys);
  if (with_values) v = AsBf16(gpu, op, in.values);
  aligned = IsAligned(q, 4) && IsAligned(k, 2) && IsAligned(v, 2);
  if (!positions) return;
  query_positions = op.List(in.query_positions);
  key_positions = gpu.CachedList(in.key_positions);
  slopes = op.List(alibi ? in.shape.alibi_slopes : std::vector<float>(static_cast<size_t>(heads)));
}

std::string AttentionOperands::Variant(std::string_view kernel, bool has_alibi) const {
  std::string name(kernel);
  const bool exact = aligned && (head_dim == 64 || head_dim == 128) && (!alibi || has_alibi);
  if (!exact) return name + "_any";
  return name + (alibi ? "_alibi" : "") + (head_dim == 64 ? "_d64" : "_d128");
}

}  // namespace coppice::gpu
