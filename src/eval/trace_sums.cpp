#include "eval/trace_sums.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace coppice {

namespace {

double Rounded(double share) { return std::round(share * 1e4) / 1e4; }

int PlaceOf(int64_t token, int64_t tokens) { return static_cast<int>(token * kPlaces / tokens); }

std::vector<double> SharesOf(const TraceLayer& layer, const Trace& trace) {
  std::vector<double> held(kPlaces), there(kPlaces);
  for (int64_t t = 0; t < trace.prompt_tokens; ++t) ++there[PlaceOf(t, trace.prompt_tokens)];
  for (const int32_t position : layer.kept) {
    const int64_t token = trace.entered.empty() ? position : trace.entered[static_cast<size_t>(position)];
    if (token < trace.prompt_tokens) ++held[PlaceOf(token, trace.prompt_tokens)];
  }
  const double heads =
      layer.kept.empty() ? 1
                         : static_cast<double>(layer.rows_per_head) / static_cast<double>(layer.kept.size());
  for (int p = 0; p < kPlaces; ++p) held[p] = there[p] > 0 ? Rounded(heads * held[p] / there[p]) : 0;
  return held;
}

}  // namespace

std::vector<PlaceRow> PlacesOf(const Trace& trace) {
  std::vector<PlaceRow> rows;
  for (size_t layer = 0; layer < trace.prefill.size(); ++layer) {
    std::vector<double> shares = SharesOf(trace.prefill[layer], trace);
    if (rows.empty() || shares != rows.back().shares)
      rows.push_back({static_cast<int64_t>(layer), std::move(shares)});
  }
  return rows;
}

std::vector<std::vector<double>> AllPlaces(const std::vector<PlaceRow>& rows, size_t layers) {
  std::vector<std::vector<double>> all;
  for (const PlaceRow& row : rows) {
    const auto layer = static_cast<size_t>(row.layer);
    if (row.layer < 0 || layer < all.size() || layer >= layers || (all.empty() && layer != 0)) return {};
    if (layer > 0) all.resize(layer, all.back());
    all.push_back(row.shares);
  }
  if (!all.empty()) all.resize(layers, all.back());
  return all;
}

TokenUse UseOf(const Trace& trace, std::span<const int64_t> prefill) {
  if (prefill.empty() || trace.prompt_tokens == 0) return {};
  const auto tokens = static_cast<double>(trace.prompt_tokens);
  const auto last_layer = static_cast<int>(prefill.size()) - 1;
  auto all = static_cast<double>(std::accumulate(prefill.begin(), prefill.end(), int64_t{0}));
  auto last = static_cast<double>(prefill.back());
  std::vector<double> all_shares, last_shares;
  const auto note = [&] {
    all_shares.push_back(Rounded(all / (tokens * static_cast<double>(prefill.size()))));
    last_shares.push_back(Rounded(last / tokens));
  };
  note();
  for (const TraceStep& step : trace.steps) {
    for (const TraceEvent& event : step.events) {
      if (event.kind != TraceEventKind::kRevived) continue;
      const auto count = static_cast<double>(event.positions.size());
      all += count;
      if (event.layer == last_layer) last += count;
    }
    note();
  }
  const auto cut = [](std::vector<double>& shares) {
    while (shares.size() > 1 && shares[shares.size() - 2] == shares.back()) shares.pop_back();
  };
  cut(all_shares);
  cut(last_shares);
  return {std::move(all_shares), std::move(last_shares)};
}

std::vector<double> MassCurve(std::span<const float> mass) {
  std::vector<double> sorted(mass.begin(), mass.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const double total = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  std::vector<double> curve;
  double sum = 0;
  size_t at = 0;
  for (int point = 1; point <= kMassPoints; ++point) {
    const auto end =
        static_cast<size_t>(std::llround(static_cast<double>(sorted.size()) * point / kMassPoints));
    while (at < std::min(end, sorted.size())) sum += sorted[at++];
    curve.push_back(total > 0 ? Rounded(sum / total) : 0);
  }
  return curve;
}

}  // namespace coppice
