#include "apps/cli/bench_bounds.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace coppice::cli {

namespace {

// Of all layers that carry a state.
double RecurrentRows(const ModelShape& shape, const Ledger& ledger) {
  int64_t rows = 0;
  for (int l = 0; l < shape.layer_count(); ++l) {
    if (shape.layer(l).has_state()) rows += ledger.layers()[static_cast<size_t>(l)].kv_rows;
  }
  return static_cast<double>(rows);
}

}  // namespace

double PartMs(const BenchSample& sample, OpKind kind) {
  const size_t n = sample.times.size();
  std::vector<size_t> rounds(n);
  std::iota(rounds.begin(), rounds.end(), 0);
  if (n == sample.ttft_ms.size())
    std::ranges::stable_sort(rounds, {}, [&](size_t i) { return sample.ttft_ms[i]; });
  const auto seconds = [&](size_t rank) { return sample.times[rounds[rank]].of(kind); };
  return 1000 * (seconds((n - 1) / 2) + seconds(n / 2)) / 2;
}

Bounds BoundsOf(const ModelShape& shape, const Ledger& ledger, bool is_second, const BenchSample& dense) {
  const PrefillFlops parts = ledger.prefill_parts();
  const PrefillFlops all = dense.last.ledger.prefill_parts();
  const double products_ms = PartMs(dense, OpKind::kProduct);
  const double attention_ms = PartMs(dense, OpKind::kAttention);
  // A prompt of one token has no products of many rows.
  const double products = all.products > 0 ? products_ms * parts.products / all.products : 0;
  const double attention = all.attention > 0 ? attention_ms * parts.attention / all.attention : 0;
  const double both_ms = products_ms + attention_ms;
  // On a device, the parts are of a round of their own, and may exceed the others' time.
  double rest = std::max(0.0, SpreadOf(dense.ttft_ms).median - both_ms);
  const double recurrence_ms = std::min(rest, PartMs(dense, OpKind::kRecurrence));
  const double all_rows = RecurrentRows(shape, dense.last.ledger);
  const double recurrence = all_rows > 0 ? recurrence_ms * RecurrentRows(shape, ledger) / all_rows : 0;
  rest -= recurrence_ms;
  const auto reads = static_cast<double>(ledger.experts_read());
  const auto all_reads = static_cast<double>(dense.last.ledger.experts_read());
  const double dense_packing = std::min(rest, PartMs(dense, OpKind::kPack));
  const double packing = dense_packing * (all_reads > 0 ? std::min(1.0, reads / all_reads) : 1);
  rest -= dense_packing;
  if (is_second && products_ms > 0) rest *= products / products_ms;
  rest += packing;
  return {.time_ms = rest + products + attention + recurrence,
          .rate = products + attention > 0 ? both_ms / (products + attention) : 1};
}

}  // namespace coppice::cli
