#include "eval/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace coppice {

namespace {

using nlohmann::ordered_json;

struct Group {
  std::string task, prune, metric;
  int64_t length = 0;
  std::vector<const ordered_json*> runs;   // of the method
  std::vector<const ordered_json*> dense;  // of the same samples
  std::map<double, std::vector<double>> by_depth;
};

// What the runs hold under a name, those that do.
std::vector<double> Values(const std::vector<const ordered_json*>& runs, const char* name) {
  std::vector<double> values;
  for (const ordered_json* run : runs) {
    if (run->contains(name) && (*run)[name].is_number()) values.push_back((*run)[name].get<double>());
  }
  return values;
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

ordered_json Mean(const std::vector<double>& values, double scale = 1) {
  return values.empty() ? ordered_json()
                        : ordered_json(scale * Sum(values) / static_cast<double>(values.size()));
}

ordered_json Median(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Element by element, of lists or objects of numbers.
ordered_json MeanOfParts(const std::vector<const ordered_json*>& runs, const char* name) {
  ordered_json mean;
  double count = 0;
  for (const ordered_json* run : runs) {
    if (!run->contains(name)) continue;
    const ordered_json& parts = (*run)[name];
    if (count++ == 0) {
      mean = parts;
      continue;
    }
    const ordered_json flat = parts.flatten();
    for (const auto& [key, value] : flat.items()) {
      ordered_json& slot = mean[ordered_json::json_pointer(key)];
      slot = slot.is_number() ? slot.get<double>() + value.get<double>() : value.get<double>();
    }
  }
  if (count == 0) return {};
  for (auto& value : mean) value = value.get<double>() / count;
  return mean;
}

double Deviation(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  if (values.size() < 2) return 0;
  double squares = 0;
  for (const double value : values) squares += (value - Sum(values) / n) * (value - Sum(values) / n);
  return std::sqrt(squares / (n - 1));
}

ordered_json Perplexity(const Group& group) {
  const double tokens = Sum(Values(group.runs, "scored_tokens"));
  return tokens > 0 ? ordered_json(std::exp(Sum(Values(group.runs, "nll")) / tokens)) : ordered_json();
}

void AddTimes(const Group& group, ordered_json& row) {
  row["ttft_ms"] = Median(Values(group.runs, "ttft_ms"));
  std::vector<double> ratios;
  for (size_t i = 0; i < group.runs.size(); ++i) {
    const double own = group.runs[i]->value("ttft_ms", 0.0);
    if (group.dense[i] != nullptr && own > 0) ratios.push_back(group.dense[i]->value("ttft_ms", 0.0) / own);
  }
  row["speed_up"] = Median(ratios);
  const double dense = Sum(Values(group.runs, "flops_dense"));
  row["flops_ratio"] = dense > 0 ? ordered_json(Sum(Values(group.runs, "flops")) / dense) : ordered_json();
}

// A grid's depths as they are; where answers lie anywhere, by tenths of the text.
ordered_json Depths(const Group& group) {
  constexpr size_t kMostPlaces = 40;
  std::map<double, std::vector<double>> places;
  for (const auto& [depth, scores] : group.by_depth) {
    const double tenth = std::min(std::floor(depth * 10), 9.0) / 10;
    std::vector<double>& place = places[group.by_depth.size() > kMostPlaces ? tenth : depth];
    place.insert(place.end(), scores.begin(), scores.end());
  }
  ordered_json rows = ordered_json::array();
  for (const auto& [depth, scores] : places)
    rows.push_back({{"depth", depth}, {"score", Mean(scores, 100)}, {"n", scores.size()}});
  return rows;
}

ordered_json RowOf(const Group& group) {
  const bool perplexity = group.metric == "perplexity";
  const std::vector<double> scores = Values(group.runs, "score");
  ordered_json row = {
      {"task", group.task}, {"length", group.length}, {"prune", group.prune}, {"metric", group.metric}};
  row["score"] = perplexity ? Perplexity(group) : Mean(scores, 100);
  row["score_error"] = (perplexity ? 1 : 100) * Deviation(scores) /
                       std::sqrt(std::max(1.0, static_cast<double>(scores.size())));
  row["score_norm"] = Mean(Values(group.runs, "score_norm"), 100);
  row["n"] = group.runs.size();
  AddTimes(group, row);
  row["kl"] = Mean(Values(group.runs, "kl"));
  row["active"] = std::count_if(group.runs.begin(), group.runs.end(),
                                [](const ordered_json* run) { return run->value("active", false); });
  for (const ordered_json* run : group.runs) {
    if (run->contains("reason")) row["reason"] = (*run)["reason"];
  }
  for (const char* name : {"total_ms", "decode_tokens_per_second"})
    row[name] = Median(Values(group.runs, name));
  for (const char* name : {"prompt_tokens", "generated_tokens", "kv_bytes", "kv_bytes_dense", "aux_bytes",
                           "cold_bytes", "peak_held_bytes", "peak_memory_bytes"}) {
    row[name] = Mean(Values(group.runs, name));
  }
  for (const char* name : {"kept_per_layer", "ffn_per_layer", "density_per_layer", "parts_ms"})
    row[name] = MeanOfParts(group.runs, name);
  if (!group.by_depth.empty()) row["by_depth"] = Depths(group);
  return row;
}

}  // namespace

ordered_json Summarize(const std::vector<ordered_json>& records) {
  std::vector<Group> groups;
  std::map<std::string, size_t> index;
  for (const ordered_json& record : records) {
    const ordered_json* dense = nullptr;
    for (const ordered_json& run : record["arms"]) {
      const std::string prune = run.value("prune", "");
      if (prune == "none") dense = &run;
      const std::string key =
          record["task"].get<std::string>() + "\n" + record["length"].dump() + "\n" + prune;
      const auto [found, is_new] = index.emplace(key, groups.size());
      if (is_new)
        groups.push_back(
            {record["task"], prune, record.value("metric", ""), record["length"].get<int64_t>(), {}, {}, {}});
      Group& group = groups[found->second];
      group.runs.push_back(&run);
      group.dense.push_back(dense);
      const double depth = record.value("depth", -1.0);
      if (depth >= 0) group.by_depth[depth].push_back(run.value("score", 0.0));
    }
  }
  ordered_json rows = ordered_json::array();
  for (const Group& group : groups) rows.push_back(RowOf(group));
  return rows;
}

}  // namespace coppice
