#include "eval/report/report_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

template <typename Item, typename Same>
size_t IndexOf(std::vector<Item>& items, Item item, const Same& same) {
  const auto found = std::find_if(items.begin(), items.end(), same);
  if (found != items.end()) return static_cast<size_t>(found - items.begin());
  items.push_back(std::move(item));
  return items.size() - 1;
}

}  // namespace

std::string ReportGroup::name() const { return length == 0 ? task : fmt::format("{} {}", task, length); }

ReportData::ReportData(const std::vector<ResultRow>& rows, const ordered_json& settings)
    : settings_(settings) {
  arms_.push_back({.prune = "none", .spec = "none", .name = "dense", .reason = {}, .mark = {}});
  for (const ResultRow& row : rows) {
    const size_t arm = IndexOf(arms_,
                               {.prune = row.prune,
                                .spec = row.prune,
                                .name = row.prune,
                                .reason = {},
                                .stood_aside = true,
                                .mark = {}},
                               [&](const ReportArm& a) { return a.prune == row.prune; });
    const size_t group =
        IndexOf(groups_, {row.task, row.length, row.metric == "perplexity"},
                [&](const ReportGroup& g) { return g.task == row.task && g.length == row.length; });
    if (rows_.size() < groups_.size()) rows_.resize(groups_.size());
    if (rows_[group].size() <= arm) rows_[group].resize(arm + 1);
    rows_[group][arm] = row;
    if (!row.spec.empty()) arms_[arm].spec = row.spec;
    if (row.active != 0) arms_[arm].stood_aside = false;
    arms_[arm].reason = row.reason;
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
  if (!settings_.is_object() || !settings_.contains("model") || !settings_["model"].is_string()) return "";
  const auto path = settings_["model"].get<std::string>();
  return path.substr(path.find_last_of('/') + 1);
}

std::vector<std::string> ReportData::AsideNotes() const {
  std::vector<ResultRow> all;
  for (const std::vector<ResultRow>& of_group : rows_)
    all.insert(all.end(), of_group.begin(), of_group.end());
  return coppice::AsideNotes(all);
}

const ResultRow& ReportData::Row(size_t group, size_t arm) const {
  static const ResultRow none;
  return arm < rows_[group].size() ? rows_[group][arm] : none;
}

std::vector<size_t> ReportData::Shared(Number column, int64_t of_length) const {
  std::vector<size_t> shared;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (of_length >= 0 && groups_[g].length != of_length) continue;
    bool all = true;
    for (size_t a = 0; a < arms_.size(); ++a) all = all && std::isfinite(Row(g, a).*column);
    if (all) shared.push_back(g);
  }
  return shared;
}

double ReportData::Mean(const std::vector<size_t>& groups, size_t arm, Number column) const {
  double sum = 0;
  for (const size_t g : groups) sum += Row(g, arm).*column;
  return groups.empty() ? kNone : sum / static_cast<double>(groups.size());
}

double ReportData::GeometricMean(const std::vector<size_t>& groups, size_t arm, Number column) const {
  double sum = 0;
  for (const size_t g : groups) sum += std::log(Row(g, arm).*column);
  return groups.empty() ? kNone : std::exp(sum / static_cast<double>(groups.size()));
}

std::vector<double> ReportData::MeanList(const std::vector<size_t>& groups, size_t arm, List column) const {
  std::vector<double> mean;
  double count = 0;
  for (const size_t g : groups) {
    const std::vector<double>& list = Row(g, arm).*column;
    if (list.empty() || (!mean.empty() && list.size() != mean.size())) continue;
    mean.resize(list.size());
    for (size_t i = 0; i < list.size(); ++i) mean[i] += list[i];
    ++count;
  }
  for (double& x : mean) x /= count;
  return mean;
}

// If dense has only a few points of partial credit from a handful of samples, a method has nothing to lose.
bool ReportData::IsAnswered(size_t group) const {
  const ResultRow& dense = Row(group, 0);
  return dense.score > 0 && !(dense.score_interval.low < 1);
}

std::vector<size_t> ReportData::Scored() const {
  std::vector<size_t> scored = Shared(&ResultRow::score);
  std::erase_if(scored, [&](size_t g) { return groups_[g].perplexity || !IsAnswered(g); });
  return scored;
}

size_t ReportData::LeftOut() const {
  const std::vector<size_t> shared = Shared(&ResultRow::score);
  return static_cast<size_t>(std::count_if(
      shared.begin(), shared.end(), [&](size_t g) { return !groups_[g].perplexity && !IsAnswered(g); }));
}

// Lower and upper halves add up as independent errors, each side separately, because intervals of shares are
// not symmetric (Zou and Donner, 2008).
Interval ReportData::MeanInterval(const std::vector<size_t>& groups, size_t arm) const {
  double below = 0, above = 0;
  for (const size_t g : groups) {
    const ResultRow& row = Row(g, arm);
    below += (row.score - row.score_interval.low) * (row.score - row.score_interval.low);
    above += (row.score_interval.high - row.score) * (row.score_interval.high - row.score);
  }
  const double mean = Mean(groups, arm, &ResultRow::score);
  const auto n = static_cast<double>(groups.size());
  return {std::max(mean - std::sqrt(below) / n, 0.0), std::min(mean + std::sqrt(above) / n, 100.0)};
}

}  // namespace coppice
