#include "eval/summary.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/error.h"
#include "base/new_file.h"
#include "eval/intervals.h"
#include "formats/json.h"

namespace coppice {

namespace {

using Runs = std::vector<const SampleResult*>;

struct Group {
  std::string task, prune, metric;
  int64_t length = 0;
  Runs runs = {};                                       // of the arm
  Runs dense = {};                                      // of the same samples
  std::map<double, std::vector<double>> by_depth = {};  // scores
  // The attention mass of dense runs, by layer.
  std::vector<const std::vector<std::vector<double>>*> masses = {};
};

// The values of the runs that have one.
template <typename T>
std::vector<double> Values(const Runs& runs, std::optional<T> SampleResult::*field) {
  std::vector<double> values;
  for (const SampleResult* run : runs) {
    if (run->*field) values.push_back(static_cast<double>(*(run->*field)));
  }
  return values;
}

double Sum(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

double Mean(const std::vector<double>& values, double scale = 1) {
  return values.empty() ? NAN : scale * Sum(values) / static_cast<double>(values.size());
}

double Median(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Position by position, over the runs that have the list.
std::vector<double> MeanList(const Runs& runs, std::vector<double> SampleResult::*field) {
  std::vector<double> mean;
  double count = 0;
  for (const SampleResult* run : runs) {
    const std::vector<double>& list = run->*field;
    if (list.empty()) continue;
    mean.resize(std::max(mean.size(), list.size()));
    for (size_t i = 0; i < list.size(); ++i) mean[i] += list[i];
    ++count;
  }
  for (double& value : mean) value /= count;
  return mean;
}

std::optional<PartTimes> MeanParts(const Runs& runs) {
  std::optional<PartTimes> mean;
  double count = 0;
  for (const SampleResult* run : runs) {
    if (!run->parts_ms) continue;
    if (!mean) mean.emplace();
    for (size_t i = 0; i < mean->ms.size(); ++i) mean->ms[i] += run->parts_ms->ms[i];
    ++count;
  }
  if (mean) {
    for (double& ms : mean->ms) ms /= count;
  }
  return mean;
}

double Rounded(double share) { return std::round(share * 1e4) / 1e4; }

// The share of each tenth of the prompt that a layer misses, without the `left_out` last layers; empty where
// no layer misses any.
std::vector<std::vector<double>> MissingByPlace(const Runs& runs, std::vector<PlaceRow> SampleResult::*field,
                                                size_t left_out) {
  std::vector<std::vector<double>> sum;
  double count = 0;
  for (const SampleResult* run : runs) {
    const size_t layers = run->kept_per_layer.size();
    const auto places = AllPlaces(run->*field, layers - std::min(left_out, layers));
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
  if (most == 0) sum.clear();
  return sum;
}

// Position by position; a shorter list continues with its last number.
std::vector<double> MeanOfLists(const std::vector<std::vector<double>>& lists) {
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

std::vector<double> MeanUse(const Runs& runs, std::vector<double> TokenUse::*part) {
  std::vector<std::vector<double>> lists;
  for (const SampleResult* run : runs) {
    if (!(run->used_by_step.*part).empty()) lists.push_back(run->used_by_step.*part);
  }
  return MeanOfLists(lists);
}

std::vector<LayerUse> MeanLayerUse(const Runs& runs) {
  std::vector<std::vector<std::vector<double>>> lists;  // [layers][runs]
  for (const SampleResult* run : runs) {
    const auto uses = AllUses(run->used_by_step.layers, run->kept_per_layer.size());
    if (uses.empty() || (!lists.empty() && lists.size() != uses.size())) continue;
    lists.resize(uses.size());
    for (size_t l = 0; l < uses.size(); ++l) lists[l].push_back(uses[l]);
  }
  std::vector<std::vector<double>> mean;
  for (const auto& of_layer : lists) mean.push_back(MeanOfLists(of_layer));
  return UseRows(mean);
}

// [layers - 1][kMassPoints].
std::vector<std::vector<double>> AttentionMass(const Group& group) {
  std::vector<std::vector<std::vector<double>>> by_layer;
  for (const auto* mass : group.masses) {
    by_layer.resize(std::max(by_layer.size(), mass->size()));
    for (size_t l = 0; l < mass->size(); ++l) {
      if ((*mass)[l].size() == kMassPoints) by_layer[l].push_back((*mass)[l]);
    }
  }
  std::vector<std::vector<double>> mean;
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

double Perplexity(const Group& group) {
  const double tokens = Sum(Values(group.runs, &SampleResult::scored_tokens));
  return tokens > 0 ? std::exp(Sum(Values(group.runs, &SampleResult::nll)) / tokens) : NAN;
}

// 95 %. Perplexity's interval is normal, of the logarithm, and needs two samples.
Interval IntervalOf(const Group& group, const std::vector<double>& scores) {
  constexpr double kZ = 1.959964;
  const auto n = static_cast<double>(scores.size());
  if (group.metric == "perplexity") {
    const double whole = Perplexity(group);
    std::vector<double> logs;
    for (const double score : scores) logs.push_back(std::log(score));
    if (logs.size() < 2) return {NAN, NAN};
    const double half = kZ * Deviation(logs) / std::sqrt(n);
    return {whole * std::exp(-half), whole * std::exp(half)};
  }
  if (scores.empty()) return {NAN, NAN};
  const Interval interval = WilsonInterval(Sum(scores) / n, n);
  return {100 * interval.low, 100 * interval.high};
}

// The median over samples of dense's time over the arm's.
double SpeedUp(const Group& group, std::optional<double> SampleResult::*time) {
  std::vector<double> ratios;
  for (size_t i = 0; i < group.runs.size(); ++i) {
    const double own = (group.runs[i]->*time).value_or(0);
    if (group.dense[i] != nullptr && own > 0) ratios.push_back((group.dense[i]->*time).value_or(0) / own);
  }
  return Median(ratios);
}

// By depth if samples lie on a grid of depths, else by tenths of the text.
std::vector<DepthScore> Depths(const Group& group) {
  constexpr size_t kMostPlaces = 40;
  std::map<double, std::vector<double>> places;
  for (const auto& [depth, scores] : group.by_depth) {
    const double tenth = std::min(std::floor(depth * 10), 9.0) / 10;
    std::vector<double>& place = places[group.by_depth.size() > kMostPlaces ? tenth : depth];
    place.insert(place.end(), scores.begin(), scores.end());
  }
  std::vector<DepthScore> rows;
  for (const auto& [depth, scores] : places)
    rows.push_back({depth, Mean(scores, 100), static_cast<int64_t>(scores.size())});
  return rows;
}

void AddScores(const Group& group, ResultRow& row) {
  const bool perplexity = group.metric == "perplexity";
  const std::vector<double> scores = Values(group.runs, &SampleResult::score);
  row.score = perplexity ? Perplexity(group) : Mean(scores, 100);
  row.score_error = (perplexity ? 1 : 100) * Deviation(scores) /
                    std::sqrt(std::max(1.0, static_cast<double>(scores.size())));
  row.score_interval = IntervalOf(group, scores);
  row.score_norm = Mean(Values(group.runs, &SampleResult::score_norm), 100);
  row.kl = Mean(Values(group.runs, &SampleResult::kl));
  row.by_depth = Depths(group);
}

void AddCosts(const Runs& runs, ResultRow& row) {
  row.ttft_ms = Median(Values(runs, &SampleResult::ttft_ms));
  row.total_ms = Median(Values(runs, &SampleResult::total_ms));
  row.decode_tokens_per_second = Median(Values(runs, &SampleResult::decode_tokens_per_second));
  row.flops = Mean(Values(runs, &SampleResult::flops));
  const double dense_flops = Sum(Values(runs, &SampleResult::flops_dense));
  if (dense_flops > 0) row.flops_ratio = Sum(Values(runs, &SampleResult::flops)) / dense_flops;
  row.prompt_tokens = Mean(Values(runs, &SampleResult::prompt_tokens));
  row.generated_tokens = Mean(Values(runs, &SampleResult::generated_tokens));
  row.kv_bytes = Mean(Values(runs, &SampleResult::kv_bytes));
  row.kv_bytes_dense = Mean(Values(runs, &SampleResult::kv_bytes_dense));
  row.aux_bytes = Mean(Values(runs, &SampleResult::aux_bytes));
  row.cold_bytes = Mean(Values(runs, &SampleResult::cold_bytes));
  row.peak_held_bytes = Mean(Values(runs, &SampleResult::peak_held_bytes));
  row.peak_memory_bytes = Mean(Values(runs, &SampleResult::peak_memory_bytes));
  row.parts_ms = MeanParts(runs);
}

void AddPruned(const Runs& runs, ResultRow& row) {
  row.active = std::count_if(runs.begin(), runs.end(), [](const SampleResult* run) { return run->active; });
  for (const SampleResult* run : runs) {
    if (!run->spec.empty()) row.spec = run->spec;
    if (!run->reason.empty()) row.reason = run->reason;
    if (!run->auto_reason.empty()) row.auto_reason = run->auto_reason;
  }
  row.kept_per_layer = MeanList(runs, &SampleResult::kept_per_layer);
  row.ffn_per_layer = MeanList(runs, &SampleResult::ffn_per_layer);
  row.density_per_layer = MeanList(runs, &SampleResult::density_per_layer);
  row.dropped_by_place = MissingByPlace(runs, &SampleResult::kept_by_place, 0);
  row.ffn_skipped_by_place = MissingByPlace(runs, &SampleResult::ffn_by_place, 1);
  row.used_by_step = {MeanUse(runs, &TokenUse::all), MeanUse(runs, &TokenUse::last), MeanLayerUse(runs)};
}

ResultRow RowOf(const Group& group) {
  ResultRow row;
  row.task = group.task;
  row.length = group.length;
  row.prune = group.prune;
  row.metric = group.metric;
  row.n = static_cast<int64_t>(group.runs.size());
  AddScores(group, row);
  AddCosts(group.runs, row);
  row.speed_up = SpeedUp(group, &SampleResult::ttft_ms);
  row.total_speed_up = SpeedUp(group, &SampleResult::total_ms);
  AddPruned(group.runs, row);
  row.attention_mass = AttentionMass(group);
  return row;
}

}  // namespace

std::vector<ResultRow> Summarize(const std::vector<SampleRecord>& records) {
  std::vector<Group> groups;
  std::map<std::tuple<std::string, int64_t, std::string>, size_t> index;
  for (const SampleRecord& record : records) {
    const SampleResult* dense = nullptr;
    for (const SampleResult& run : record.arms) {
      if (run.prune == "none") dense = &run;
      const auto [found, is_new] =
          index.emplace(std::tuple(record.task, record.length, run.prune), groups.size());
      if (is_new) {
        groups.push_back(
            {.task = record.task, .prune = run.prune, .metric = record.metric, .length = record.length});
      }
      Group& group = groups[found->second];
      group.runs.push_back(&run);
      group.dense.push_back(dense);
      if (run.prune == "none" && !record.attention_mass.empty())
        group.masses.push_back(&record.attention_mass);
      if (record.depth) group.by_depth[*record.depth].push_back(run.score.value_or(0));
    }
  }
  std::vector<ResultRow> rows;
  for (const Group& group : groups) rows.push_back(RowOf(group));
  return rows;
}

void WriteRows(const std::vector<ResultRow>& rows, const std::string& path) {
  NewFile file(path, "eval");
  file.Append("[\n");
  for (size_t i = 0; i < rows.size(); ++i)
    file.Append(ToJson(rows[i]).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                (i + 1 < rows.size() ? ",\n" : "\n"));
  file.Append("]\n");
  file.Commit();
}

std::vector<ResultRow> ReadResults(const std::string& path) {
  ReadJsonFile(path);  // bounded depth and size, no duplicate keys
  std::ifstream file(path);
  const auto rows = nlohmann::ordered_json::parse(file);
  if (!rows.is_array()) throw Error("[eval] {}: is no list of rows, as `coppice eval` writes", path);
  return RowsFromJson(rows);
}

void KeepVerdicts(const std::string& folder, std::vector<ResultRow>& rows) {
  std::vector<ResultRow> before;
  try {
    before = ReadResults(folder + "/results.json");
  } catch (const Error&) {
    return;
  }
  for (ResultRow& row : rows) {
    const auto same = std::find_if(before.begin(), before.end(), [&](const ResultRow& other) {
      return other.task == row.task && other.length == row.length && other.prune == row.prune;
    });
    if (same == before.end()) continue;
    row.win_rate = same->win_rate;
    row.verdicts = same->verdicts;
  }
}

}  // namespace coppice
