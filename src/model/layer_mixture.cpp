// A mixture of experts in place of a layer's FFN, for many rows at once:
//   r    = router(n)                    n = norm(x)
//   mix  = sum_e w_e down_e(f(gate_e n) * up_e n)   over the experts that r chooses, ascending
//        + s shared(n)                  s = sigmoid(shared_router n), or 1
// Of experts without gates, down_e(f(up_e n)).
// The rows of an expert run together, so that its weights are packed, or read, once for all of them. A row's
// sum runs over its experts in ascending order, and no kernel is chosen by the number of rows: so the result
// for a row does not depend on the other rows.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "model/layer.h"

namespace coppice {

// The rows of each expert, ascending, with their weights.
struct ExpertRows {
  std::vector<size_t> begin;  // [experts + 1], in `rows`
  std::vector<int32_t> rows;
  std::vector<float> weights;

  std::span<const int32_t> RowsOf(size_t expert) const {
    return std::span(rows).subspan(begin[expert], begin[expert + 1] - begin[expert]);
  }
  int64_t Count(size_t expert) const { return std::ssize(RowsOf(expert)); }
  std::span<const float> WeightsOf(size_t expert) const {
    return std::span(weights).subspan(begin[expert], begin[expert + 1] - begin[expert]);
  }
};

namespace {

constexpr int64_t kRouterRows = 32;  // of a product of the router, whose inputs should stay in the L2 cache

// y = x w^T + bias with one kernel for prefill and decode: in fp32, few outputs.
void RouterProduct(const TensorView& x, const Linear& w, MutableTensorView y, Backend& be) {
  for (int64_t begin = 0; begin < x.rows; begin += kRouterRows) {
    const int64_t count = std::min(kRouterRows, x.rows - begin);
    be.DecodeProduct(x.Rows(begin, count), w.weight, w.bias, y.Rows(begin, count));
  }
}

// `routes` are those of each row, `used` after `used`.
ExpertRows ByExpert(const Routes& routes, const MixtureShape& shape) {
  ExpertRows by{std::vector<size_t>(static_cast<size_t>(shape.experts) + 1, 0),
                std::vector<int32_t>(routes.experts.size()), std::vector<float>(routes.experts.size())};
  for (const int32_t e : routes.experts) ++by.begin[static_cast<size_t>(e) + 1];
  std::partial_sum(by.begin.begin(), by.begin.end(), by.begin.begin());
  std::vector<size_t> next(by.begin.begin(), by.begin.end() - 1);
  for (size_t i = 0; i < routes.experts.size(); ++i) {
    const size_t at = next[static_cast<size_t>(routes.experts[i])]++;
    by.rows[at] = static_cast<int32_t>(i / static_cast<size_t>(shape.used));
    by.weights[at] = routes.weights[i];
  }
  return by;
}

}  // namespace

TensorView Layer::Mixture(const TensorView& x, ProductKind kind, Workspace& ws, const RunControl& control,
                          Backend& be) const {
  const MixtureShape& s = shape().mixture;
  const MixtureWeights& w = weights_.mixture;
  MixtureSpace& space = ws.mixture;
  space.normed.Resize(DType::kF32, x.rows, x.cols);
  space.sum.Resize(DType::kF32, x.rows, x.cols);
  const bool own_norms = !w.router_norm.weight.empty();
  const MutableTensorView normed = space.normed.mutable_view();
  const MutableTensorView sum = space.sum.mutable_view();
  ApplyNorm(own_norms ? w.router_norm : weights_.ffn_norm, x, normed, be);
  const ExpertRows by_expert = RouteByExpert(normed, space, be);

  if (own_norms) ApplyNorm(w.expert_norm, x, normed, be);
  std::fill_n(reinterpret_cast<float*>(sum.data), x.rows * x.cols, 0.0f);
  for (size_t e = 0; e < static_cast<size_t>(s.experts); ++e) {
    if (by_expert.Count(e) == 0) continue;
    ++space.experts_read;
    if (kind == ProductKind::kDecode) continue;
    control.Pause();
    const Linear* const gate = w.gate.empty() ? nullptr : &w.gate[e];
    RunExpert({gate, w.up[e], w.down[e]}, {by_expert.RowsOf(e), by_expert.WeightsOf(e)}, kind, ws, be);
  }
  if (kind == ProductKind::kDecode) StepExperts(by_expert, ws, be);
  if (s.shared_width > 0) control.Pause();
  if (own_norms) {
    // The sum of the experts waits, with its own norm, while the shared expert adds to an empty one.
    ApplyPostNorm(w.post_norm, sum, be);
    std::swap(space.sum, space.of_experts);
    space.sum.Resize(DType::kF32, x.rows, x.cols);
    const MutableTensorView shared = space.sum.mutable_view();
    std::fill_n(reinterpret_cast<float*>(shared.data), x.rows * x.cols, 0.0f);
    ApplyNorm(weights_.ffn_norm, x, normed, be);
    RunShared(kind, ws, be);
    ApplyPostNorm(w.shared_post_norm, shared, be);
    be.Add(space.of_experts.view(), shared);
  } else if (s.shared_width > 0) {
    RunShared(kind, ws, be);
  }
  const MutableTensorView all = space.sum.mutable_view();
  if (!weights_.ffn_post_norm.weight.empty()) ApplyPostNorm(weights_.ffn_post_norm, all, be);
  return all;
}

ExpertRows Layer::RouteByExpert(const TensorView& normed, MixtureSpace& space, Backend& be) const {
  const MixtureShape& s = shape().mixture;
  const MixtureWeights& w = weights_.mixture;
  space.logits.Resize(DType::kF32, normed.rows, s.experts);
  RouterProduct(normed, w.router, space.logits.mutable_view(), be);
  RouterRule rule = config_.router;
  rule.used = s.used;
  std::vector<int32_t> experts(static_cast<size_t>(normed.rows * s.used));
  std::vector<float> weights(experts.size());
  be.Route(space.logits.view(), w.selection_bias, rule, {experts, weights});
  for (size_t i = 0; i < experts.size() && !w.expert_scale.empty(); ++i)
    weights[i] *= w.expert_scale.Row<float>(0)[static_cast<size_t>(experts[i])];
  return ByExpert({experts, weights}, s);
}

void Layer::RunExpert(const Expert& expert, const WeightedRows& on, ProductKind kind, Workspace& ws,
                      Backend& be) const {
  std::vector<Tile> tiles = TilesOf(std::ssize(on.rows), 0, ws.tile_rows);
  for (Tile& tile : tiles) tile.kind = kind;
  if (expert.gate != nullptr) {
    ws.gate_up.PrepareGated(*expert.gate, expert.up, ActivationOf(config_.ffn), tiles, ws.kept, be);
  } else {
    ws.gate_up.Prepare(expert.up, tiles, ws.kept, be);
  }
  ws.down.Prepare(expert.down, tiles, ws.kept, be);
  ws.inner.Resize(DType::kF32, ws.tile_rows, expert.up.weight.rows);
  for (const Tile& tile : tiles) {
    const auto rows = on.rows.subspan(static_cast<size_t>(tile.begin), static_cast<size_t>(tile.count));
    const auto weights = on.weights.subspan(static_cast<size_t>(tile.begin), rows.size());
    const MutableTensorView in = ws.normed.mutable_view().Rows(0, tile.count);
    const MutableTensorView inner = ws.inner.mutable_view().Rows(0, tile.count);
    const MutableTensorView out = ws.out.mutable_view().Rows(0, tile.count);
    be.GatherRows(ws.mixture.normed.view(), rows, in);
    ws.gate_up(in, kind, ProductEnd::kStore, inner, be);
    if (expert.gate == nullptr) Activate(inner, be);
    ws.down(inner, kind, ProductEnd::kStore, out, be);
    be.AddScaledRows(out, rows, weights, ws.mixture.sum.mutable_view());
  }
}

void Layer::StepExperts(const ExpertRows& by_expert, Workspace& ws, Backend& be) const {
  const MixtureShape& s = shape().mixture;
  const MixtureWeights& w = weights_.mixture;
  MixtureSpace& space = ws.mixture;
  const auto all = std::ssize(by_expert.rows);
  const bool gated = !w.gate.empty();
  if (gated) space.gate.Resize(DType::kF32, all, s.width);
  space.up.Resize(DType::kF32, all, s.width);
  space.out.Resize(DType::kF32, all, space.normed.view().cols);
  TensorView in = space.normed.view();
  if (in.rows > 1) {  // a single row is the input of all its experts
    space.chosen.Resize(DType::kF32, all, in.cols);
    be.GatherRows(in, by_expert.rows, space.chosen.mutable_view());
    in = space.chosen.view();
  }
  std::vector<DecodeTask> inner, outer;
  for (size_t e = 0; e < static_cast<size_t>(s.experts); ++e) {
    const int64_t count = by_expert.Count(e);
    if (count == 0) continue;
    const auto begin = static_cast<int64_t>(by_expert.begin[e]);
    const TensorView x = space.normed.view().rows > 1 ? in.Rows(begin, count) : in;
    const MutableTensorView up = space.up.mutable_view().Rows(begin, count);
    const MutableTensorView gate = gated ? space.gate.mutable_view().Rows(begin, count) : up;
    if (gated) inner.push_back({x, w.gate[e].weight, w.gate[e].bias, gate});
    inner.push_back({x, w.up[e].weight, w.up[e].bias, up});
    outer.push_back({gate, w.down[e].weight, w.down[e].bias, space.out.mutable_view().Rows(begin, count)});
  }
  be.DecodeProducts(inner);
  if (gated) {
    be.GateMul(space.gate.mutable_view(), space.up.view(), ActivationOf(config_.ffn));
  } else {
    Activate(space.up.mutable_view(), be);
  }
  be.DecodeProducts(outer);
  for (size_t e = 0; e < static_cast<size_t>(s.experts); ++e) {
    if (by_expert.Count(e) == 0) continue;
    const auto begin = static_cast<int64_t>(by_expert.begin[e]);
    be.AddScaledRows(space.out.view().Rows(begin, by_expert.Count(e)), by_expert.RowsOf(e),
                     by_expert.WeightsOf(e), space.sum.mutable_view());
  }
}

void Layer::RunShared(ProductKind kind, Workspace& ws, Backend& be) const {
  const MixtureWeights& w = weights_.mixture;
  const TensorView normed = ws.mixture.normed.view();
  std::vector<int32_t> rows(static_cast<size_t>(normed.rows));
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> weights(rows.size(), 1);
  if (shape().mixture.shared_gate) {
    RouterProduct(normed, w.shared_router, {weights.data(), DType::kF32, normed.rows, 1}, be);
    for (float& weight : weights) weight = 1 / (1 + std::exp(-weight));
  }
  const Linear* const gate = w.shared_gate.weight.empty() ? nullptr : &w.shared_gate;
  RunExpert({gate, w.shared_up, w.shared_down}, {rows, weights}, kind, ws, be);
}

}  // namespace coppice
