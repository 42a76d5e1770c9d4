#include "eval/trace_sums.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace coppice {

namespace {

double Rounded(double share) { return std::round(share * 1e4) / 1e4; }

int PlaceOf(int64_t token, int64_t tokens) { return static_cast<int>(token * kPlaces / tokens); }

// The share of each part of the prompt that `positions` hold.
std::vector<double> SharesOf(std::span<const int32_t> positions, double heads, const Trace& trace) {
  std::vector<double> held(kPlaces), there(kPlaces);
  for (int64_t t = 0; t < trace.prompt_tokens; ++t) ++there[PlaceOf(t, trace.prompt_tokens)];
  for (const int32_t position : positions) {
    const int64_t token = trace.entered.empty() ? position : trace.entered[static_cast<size_t>(position)];
    if (token < trace.prompt_tokens) ++held[PlaceOf(token, trace.prompt_tokens)];
  }
  for (int p = 0; p < kPlaces; ++p) held[p] = there[p] > 0 ? Rounded(heads * held[p] / there[p]) : 0;
  return held;
}

void AddIfNew(int64_t layer, std::vector<double> shares, std::vector<PlaceRow>& rows) {
  if (rows.empty() || shares != rows.back().shares) rows.push_back({layer, std::move(shares)});
}

// [layers], each row's shares from its layer up to that of the next row.
template <typename Row>
std::vector<std::vector<double>> Spread(const std::vector<Row>& rows, size_t layers) {
  std::vector<std::vector<double>> all;
  for (const Row& row : rows) {
    const auto layer = static_cast<size_t>(row.layer);
    if (row.layer < 0 || layer < all.size() || layer >= layers || (all.empty() && layer != 0)) return {};
    if (layer > 0) all.resize(layer, all.back());
    all.push_back(row.shares);
  }
  if (!all.empty()) all.resize(layers, all.back());
  return all;
}

void CutRepeated(std::vector<double>& shares) {
  while (shares.size() > 1 && shares[shares.size() - 2] == shares.back()) shares.pop_back();
}

}  // namespace

std::vector<PlaceRow> PlacesOf(const Trace& trace) {
  std::vector<PlaceRow> rows;
  for (size_t l = 0; l < trace.prefill.size(); ++l) {
    const TraceLayer& layer = trace.prefill[l];
    const double heads = layer.kept.empty() ? 1
                                            : static_cast<double>(layer.rows_per_head) /
                                                  static_cast<double>(layer.kept.size());
    AddIfNew(static_cast<int64_t>(l), SharesOf(layer.kept, heads, trace), rows);
  }
  return rows;
}

std::vector<PlaceRow> FfnPlacesOf(const Trace& trace) {
  std::vector<PlaceRow> rows;
  for (size_t l = 0; l + 1 < trace.prefill.size(); ++l)
    AddIfNew(static_cast<int64_t>(l), SharesOf(trace.prefill[l].ffn, 1, trace), rows);
  return rows;
}

std::vector<std::vector<double>> AllPlaces(const std::vector<PlaceRow>& rows, size_t layers) {
  return Spread(rows, layers);
}

std::vector<std::vector<double>> AllUses(const std::vector<LayerUse>& rows, size_t layers) {
  return Spread(rows, layers);
}

std::vector<LayerUse> UseRows(const std::vector<std::vector<double>>& by_layer) {
  std::vector<LayerUse> rows;
  for (size_t l = 0; l < by_layer.size(); ++l) {
    if (rows.empty() || by_layer[l] != rows.back().shares)
      rows.push_back({static_cast<int64_t>(l), by_layer[l]});
  }
  return rows;
}

TokenUse UseOf(const Trace& trace, std::span<const int64_t> prefill) {
  if (prefill.empty() || trace.prompt_tokens == 0) return {};
  const auto tokens = static_cast<double>(trace.prompt_tokens);
  std::vector<int64_t> rows(prefill.begin(), prefill.end());
  std::vector<double> all_shares;
  std::vector<std::vector<double>> by_layer(rows.size());
  const auto note = [&] {
    const auto all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
    all_shares.push_back(Rounded(all / (tokens * static_cast<double>(rows.size()))));
    for (size_t l = 0; l < rows.size(); ++l)
      by_layer[l].push_back(Rounded(static_cast<double>(rows[l]) / tokens));
  };
  note();
  for (const TraceStep& step : trace.steps) {
    for (const TraceEvent& event : step.events) {
      if (event.kind != TraceEventKind::kRevived) continue;
      rows[static_cast<size_t>(event.layer)] += static_cast<int64_t>(event.positions.size());
    }
    note();
  }
  CutRepeated(all_shares);
  for (std::vector<double>& shares : by_layer) CutRepeated(shares);
  return {std::move(all_shares), by_layer.back(), UseRows(by_layer)};
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
