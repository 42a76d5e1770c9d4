#include "eval/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/new_file.h"
#include "eval/intervals.h"
#include "eval/trace_sums.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

struct Group {
  std::string task, prune, metric;
  int64_t length = 0;
  std::vector<const ordered_json*> runs;   // of the method
  std::vector<const ordered_json*> dense;  // of the same samples
  std::map<double, std::vector<double>> by_depth;
  std::vector<const ordered_json*> masses;  // how dense's attention adds up
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

double Rounded(double share) { return std::round(share * 1e4) / 1e4; }

// Of each layer and tenth of the prompt, the share that the layer holds no keys of; null where nothing is missing.
ordered_json DroppedByPlace(const std::vector<const ordered_json*>& runs) {
  std::vector<std::vector<double>> sum;
  double count = 0;
  for (const ordered_json* run : runs) {
    const size_t layers = run->value("kept_per_layer", ordered_json::array()).size();
    const auto places = AllPlaces(run->value("kept_by_place", ordered_json()), layers);
    if (places.empty() || (!sum.empty() && sum.size() != places.size())) continue;
    sum.resize(places.size(), std::vector<double>(kPlaces));
    for (size_t l = 0; l < places.size(); ++l) {
      for (size_t p = 0; p < kPlaces; ++p) sum[l][p] += 1 - places[l][p];
    }
    ++count;
  }
  double most = 0;
  for (std::vector<double>& layer : sum) {
    for (double& share : layer) {
      share = Rounded(share / count);
      most = std::max(most, share);
    }
  }
  return most > 0 ? ordered_json(sum) : ordered_json();
}

// Position by position; a list that ends has come to rest at its last number.
ordered_json MeanOfLists(const std::vector<std::vector<double>>& lists) {
  size_t longest = 0;
  for (const std::vector<double>& list : lists) longest = std::max(longest, list.size());
  std::vector<double> mean;
  for (size_t i = 0; i < longest; ++i) {
    double sum = 0;
    for (const std::vector<double>& list : lists) sum += list[std::min(i, list.size() - 1)];
    mean.push_back(Rounded(sum / static_cast<double>(lists.size())));
  }
  return mean;
}

std::vector<double> Numbers(const ordered_json& list) {
  std::vector<double> numbers;
  for (const ordered_json& x : list) {
    if (x.is_number()) numbers.push_back(x.get<double>());
  }
  return numbers;
}

ordered_json UsedByStep(const std::vector<const ordered_json*>& runs) {
  ordered_json used;
  for (const char* name : {"all", "last"}) {
    std::vector<std::vector<double>> lists;
    for (const ordered_json* run : runs) {
      const ordered_json of_run = run->value("used_by_step", ordered_json::object());
      std::vector<double> list =
          of_run.is_object() ? Numbers(of_run.value(name, ordered_json::array())) : std::vector<double>{};
      if (!list.empty()) lists.push_back(std::move(list));
    }
    if (!lists.empty()) used[name] = MeanOfLists(lists);
  }
  return used;
}

// [layers - 1][kMassPoints].
ordered_json AttentionMass(const std::vector<const ordered_json*>& masses) {
  std::vector<std::vector<std::vector<double>>> by_layer;
  for (const ordered_json* mass : masses) {
    for (size_t l = 0; mass->is_array() && l < mass->size(); ++l) {
      std::vector<double> curve = Numbers((*mass)[l]);
      if (curve.size() != kMassPoints) continue;
      by_layer.resize(std::max(by_layer.size(), l + 1));
      by_layer[l].push_back(std::move(curve));
    }
  }
  ordered_json mean = ordered_json::array();
  for (const auto& lists : by_layer) mean.push_back(MeanOfLists(lists));
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

// Where the score lies with 95 % confidence. Perplexity's interval is normal, of the logarithm, and needs two samples.
ordered_json IntervalOf(const Group& group, const std::vector<double>& scores) {
  constexpr double kZ = 1.959964;
  const auto n = static_cast<double>(scores.size());
  if (group.metric == "perplexity") {
    const ordered_json whole = Perplexity(group);
    std::vector<double> logs;
    for (const double score : scores) logs.push_back(std::log(score));
    if (!whole.is_number() || logs.size() < 2) return {};
    const double half = kZ * Deviation(logs) / std::sqrt(n);
    return {whole.get<double>() * std::exp(-half), whole.get<double>() * std::exp(half)};
  }
  if (scores.empty()) return {};
  const Interval interval = WilsonInterval(Sum(scores) / n, n);
  return {100 * interval.low, 100 * interval.high};
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
  row["score_interval"] = IntervalOf(group, scores);
  row["score_norm"] = Mean(Values(group.runs, "score_norm"), 100);
  row["n"] = group.runs.size();
  AddTimes(group, row);
  row["kl"] = Mean(Values(group.runs, "kl"));
  row["active"] = std::count_if(group.runs.begin(), group.runs.end(),
                                [](const ordered_json* run) { return run->value("active", false); });
  for (const ordered_json* run : group.runs) {
    for (const char* name : {"spec", "reason", "auto"}) {
      if (run->contains(name)) row[name] = (*run)[name];
    }
  }
  for (const char* name : {"total_ms", "decode_tokens_per_second"})
    row[name] = Median(Values(group.runs, name));
  for (const char* name : {"prompt_tokens", "generated_tokens", "kv_bytes", "kv_bytes_dense", "aux_bytes",
                           "cold_bytes", "peak_held_bytes", "peak_memory_bytes"}) {
    row[name] = Mean(Values(group.runs, name));
  }
  for (const char* name : {"kept_per_layer", "ffn_per_layer", "density_per_layer", "parts_ms"})
    row[name] = MeanOfParts(group.runs, name);
  if (const ordered_json dropped = DroppedByPlace(group.runs); !dropped.is_null())
    row["dropped_by_place"] = dropped;
  row["used_by_step"] = UsedByStep(group.runs);
  if (!group.masses.empty()) row["attention_mass"] = AttentionMass(group.masses);
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
        groups.push_back({record["task"],
                          prune,
                          record.value("metric", ""),
                          record["length"].get<int64_t>(),
                          {},
                          {},
                          {},
                          {}});
      Group& group = groups[found->second];
      group.runs.push_back(&run);
      group.dense.push_back(dense);
      if (prune == "none" && record.contains("attention_mass"))
        group.masses.push_back(&record["attention_mass"]);
      const double depth = record.value("depth", -1.0);
      if (depth >= 0) group.by_depth[depth].push_back(run.value("score", 0.0));
    }
  }
  ordered_json rows = ordered_json::array();
  for (const Group& group : groups) rows.push_back(RowOf(group));
  return rows;
}

void WriteRows(const ordered_json& rows, const std::string& path) {
  NewFile file(path, "eval");
  file.Append("[\n");
  for (size_t i = 0; i < rows.size(); ++i)
    file.Append(rows[i].dump(-1, ' ', false, ordered_json::error_handler_t::replace) +
                (i + 1 < rows.size() ? ",\n" : "\n"));
  file.Append("]\n");
  file.Commit();
}

}  // namespace coppice
