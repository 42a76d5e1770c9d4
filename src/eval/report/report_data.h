// The rows of a run, prepared for figures: methods with names and marks, and means over the groups that all
// arms share.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/report/marks.h"
#include "eval/report/sweeps.h"
#include "eval/results.h"

namespace coppice {

// The dense arm, or a method.
struct ReportArm {
  std::string prune;         // as it was given
  std::string spec;          // every key written out; as given where no sample says so
  std::string name;          // short: what tells it apart from the others
  std::string reason;        // why it stood aside in every sample, or empty
  bool stood_aside = false;  // in every sample
  Mark mark;
};

// A task at a length.
struct ReportGroup {
  std::string task;
  int64_t length = 0;  // 0: the texts' own
  bool perplexity = false;

  std::string name() const;
};

class ReportData {
 public:
  // `settings` as the journal has them; null where they are not known.
  ReportData(const std::vector<ResultRow>& rows, const nlohmann::ordered_json& settings);

  const nlohmann::ordered_json& settings() const { return settings_; }
  const std::vector<ReportArm>& arms() const { return arms_; }  // dense first
  const std::vector<ReportGroup>& groups() const { return groups_; }
  const std::vector<Sweep>& sweeps() const { return sweeps_; }
  std::vector<int64_t> lengths() const;  // of made and cut texts, ascending
  std::string model() const;             // the file's name without its folders

  std::vector<std::string> AsideNotes() const;  // eval/results.h

  const ResultRow& Row(size_t group, size_t arm) const;  // an empty row where the arm did not run the group

  // A column of the rows.
  using Number = double ResultRow::*;
  using List = std::vector<double> ResultRow::*;

  // Groups in which every arm has a finite number; with `of_length` only those of that length.
  std::vector<size_t> Shared(Number column, int64_t of_length = -1) const;
  // Over groups; NaN where there are none. Ratios are averaged geometrically.
  double Mean(const std::vector<size_t>& groups, size_t arm, Number column) const;
  double GeometricMean(const std::vector<size_t>& groups, size_t arm, Number column) const;
  // By position, over groups whose lists are as long as the first that is not empty.
  std::vector<double> MeanList(const std::vector<size_t>& groups, size_t arm, List column) const;

  // Groups with scores in percent in every arm. A group is left out where dense's score is 0 or its interval
  // begins below 1 %: no method can lose there, and the mean would hide what methods lose elsewhere.
  std::vector<size_t> Scored() const;
  size_t LeftOut() const;  // the number of groups left out
  double Score(size_t arm) const { return Mean(Scored(), arm, &ResultRow::score); }
  // 95 %, of the mean over groups. NaN where a row does not say it.
  Interval MeanInterval(const std::vector<size_t>& groups, size_t arm) const;

 private:
  bool IsAnswered(size_t group) const;
  void NameArms();
  void FindSweeps();

  nlohmann::ordered_json settings_;
  std::vector<ReportArm> arms_;
  std::vector<ReportGroup> groups_;
  std::vector<std::vector<ResultRow>> rows_;  // [groups][arms]
  std::vector<Sweep> sweeps_;
};

}  // namespace coppice
