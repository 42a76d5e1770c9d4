#include "eval/report/report_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::string TextOf(const ordered_json& row, const char* name) {
  const auto found = row.find(name);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

template <typename Item, typename Same>
size_t IndexOf(std::vector<Item>& items, Item item, const Same& same) {
  const auto found = std::find_if(items.begin(), items.end(), same);
  if (found != items.end()) return static_cast<size_t>(found - items.begin());
  items.push_back(std::move(item));
  return items.size() - 1;
}

}  // namespace

std::string ReportGroup::name() const { return length == 0 ? task : fmt::format("{} {}", task, length); }

ReportData::ReportData(const ordered_json& rows, const ordered_json& settings) : settings_(settings) {
  arms_.push_back({.prune = "none", .spec = "none", .name = "dense", .reason = {}, .mark = {}});
  for (const ordered_json& row : rows) {
    if (!row.is_object() || TextOf(row, "prune").empty() || TextOf(row, "task").empty()) continue;
    const std::string prune = TextOf(row, "prune"), task = TextOf(row, "task");
    const int64_t length =
        row.value("length", ordered_json()).is_number_integer() ? row["length"].get<int64_t>() : int64_t{0};
    const size_t arm = IndexOf(
        arms_, {.prune = prune, .spec = prune, .name = prune, .reason = {}, .stood_aside = true, .mark = {}},
        [&](const ReportArm& a) { return a.prune == prune; });
    const size_t group = IndexOf(groups_, {task, length, TextOf(row, "metric") == "perplexity"},
                                 [&](const ReportGroup& g) { return g.task == task && g.length == length; });
    if (rows_.size() < groups_.size()) rows_.resize(groups_.size());
    if (rows_[group].size() <= arm) rows_[group].resize(arm + 1);
    rows_[group][arm] = row;
    if (!TextOf(row, "spec").empty()) arms_[arm].spec = TextOf(row, "spec");
    if (row.value("active", ordered_json()) != 0) arms_[arm].stood_aside = false;
    arms_[arm].reason = TextOf(row, "reason");
  }
  NameArms();
  FindSweeps();
}

void ReportData::NameArms() {
  std::vector<std::string> specs;
  for (const ReportArm& arm : arms_) specs.push_back(arm.prune);
  const std::vector<Mark> marks = MarksOf(specs);
  const std::vector<std::string> names = ShortNames(specs);
  for (size_t a = 0; a < arms_.size(); ++a) {
    arms_[a].mark = marks[a];
    arms_[a].name = names[a];
  }
}

void ReportData::FindSweeps() {
  std::vector<std::string> given, whole;
  for (const ReportArm& arm : arms_) {
    given.push_back(arm.prune);
    whole.push_back(arm.spec);
  }
  sweeps_ = SweepsOf(given, whole);
}

std::vector<int64_t> ReportData::lengths() const {
  std::vector<int64_t> lengths;
  for (const ReportGroup& group : groups_) {
    if (group.length > 0) lengths.push_back(group.length);
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

std::string ReportData::model() const {
  const std::string path = settings_.is_object() ? TextOf(settings_, "model") : "";
  return path.substr(path.find_last_of('/') + 1);
}

const ordered_json& ReportData::Row(size_t group, size_t arm) const {
  static const ordered_json none;
  return arm < rows_[group].size() ? rows_[group][arm] : none;
}

double ReportData::Value(size_t group, size_t arm, const char* name) const {
  const ordered_json& row = Row(group, arm);
  if (!row.is_object()) return kNone;
  const auto found = row.find(name);
  return found != row.end() && found->is_number() ? found->get<double>() : kNone;
}

std::vector<double> ReportData::List(size_t group, size_t arm, const char* name) const {
  const ordered_json& row = Row(group, arm);
  if (!row.is_object()) return {};
  const auto found = row.find(name);
  if (found == row.end() || !found->is_array()) return {};
  std::vector<double> list;
  for (const ordered_json& x : *found) list.push_back(x.is_number() ? x.get<double>() : kNone);
  return list;
}

std::vector<size_t> ReportData::Shared(const char* name, int64_t of_length) const {
  std::vector<size_t> shared;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (of_length >= 0 && groups_[g].length != of_length) continue;
    bool all = true;
    for (size_t a = 0; a < arms_.size(); ++a) all = all && std::isfinite(Value(g, a, name));
    if (all) shared.push_back(g);
  }
  return shared;
}

double ReportData::Mean(const std::vector<size_t>& groups, size_t arm, const char* name) const {
  double sum = 0;
  for (const size_t g : groups) sum += Value(g, arm, name);
  return groups.empty() ? kNone : sum / static_cast<double>(groups.size());
}

double ReportData::GeometricMean(const std::vector<size_t>& groups, size_t arm, const char* name) const {
  double sum = 0;
  for (const size_t g : groups) sum += std::log(Value(g, arm, name));
  return groups.empty() ? kNone : std::exp(sum / static_cast<double>(groups.size()));
}

std::vector<double> ReportData::MeanList(const std::vector<size_t>& groups, size_t arm,
                                         const char* name) const {
  std::vector<double> mean;
  double count = 0;
  for (const size_t g : groups) {
    const std::vector<double> list = List(g, arm, name);
    if (list.empty() || (!mean.empty() && list.size() != mean.size())) continue;
    mean.resize(list.size());
    for (size_t i = 0; i < list.size(); ++i) mean[i] += list[i];
    ++count;
  }
  for (double& x : mean) x /= count;
  return mean;
}

// Where dense has a few points of partial credit from a handful of samples, a method has nothing to lose.
bool ReportData::IsAnswered(size_t group) const {
  const double low = ScoreInterval(group, 0).low;
  return Value(group, 0, "score") > 0 && !(low < 1);
}

std::vector<size_t> ReportData::Scored() const {
  std::vector<size_t> scored = Shared("score");
  std::erase_if(scored, [&](size_t g) { return groups_[g].perplexity || !IsAnswered(g); });
  return scored;
}

size_t ReportData::LeftOut() const {
  const std::vector<size_t> shared = Shared("score");
  return static_cast<size_t>(std::count_if(
      shared.begin(), shared.end(), [&](size_t g) { return !groups_[g].perplexity && !IsAnswered(g); }));
}

Interval ReportData::ScoreInterval(size_t group, size_t arm) const {
  const std::vector<double> ends = List(group, arm, "score_interval");
  return ends.size() == 2 ? Interval{ends[0], ends[1]} : Interval{kNone, kNone};
}

// Lower and upper halves add up as independent errors do, each side by itself: intervals of shares are not symmetric
// (Zou and Donner, 2008).
Interval ReportData::MeanInterval(const std::vector<size_t>& groups, size_t arm) const {
  double below = 0, above = 0;
  for (const size_t g : groups) {
    const double score = Value(g, arm, "score");
    const Interval interval = ScoreInterval(g, arm);
    below += (score - interval.low) * (score - interval.low);
    above += (interval.high - score) * (interval.high - score);
  }
  const double mean = Mean(groups, arm, "score");
  const auto n = static_cast<double>(groups.size());
  return {std::max(mean - std::sqrt(below) / n, 0.0), std::min(mean + std::sqrt(above) / n, 100.0)};
}

}  // namespace coppice
