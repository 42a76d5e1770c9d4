// The rows of a run as figures want them: methods with names and marks, and means that compare like with like.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/intervals.h"
#include "eval/report/marks.h"
#include "eval/report/sweeps.h"

namespace coppice {

// Dense or a method.
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
  // `rows` as Summarize makes them, `settings` as the journal has them; what is missing or of another kind is left out.
  ReportData(const nlohmann::ordered_json& rows, const nlohmann::ordered_json& settings);

  const nlohmann::ordered_json& settings() const { return settings_; }
  const std::vector<ReportArm>& arms() const { return arms_; }  // dense first
  const std::vector<ReportGroup>& groups() const { return groups_; }
  const std::vector<Sweep>& sweeps() const { return sweeps_; }
  std::vector<int64_t> lengths() const;  // of made and cut texts, ascending
  std::string model() const;             // the file's name without its folders

  // The row, or null.
  const nlohmann::ordered_json& Row(size_t group, size_t arm) const;
  // NaN where it is no number.
  double Value(size_t group, size_t arm, const char* name) const;
  std::vector<double> List(size_t group, size_t arm, const char* name) const;

  // Groups in which every arm has a finite `name`; with `of_length` only those of that length.
  std::vector<size_t> Shared(const char* name, int64_t of_length = -1) const;
  // Over groups; NaN where there are none. Ratios are averaged as such: geometrically.
  double Mean(const std::vector<size_t>& groups, size_t arm, const char* name) const;
  double GeometricMean(const std::vector<size_t>& groups, size_t arm, const char* name) const;
  // Of a list by position, over groups whose lists are as long as the first that has one.
  std::vector<double> MeanList(const std::vector<size_t>& groups, size_t arm, const char* name) const;

  // Groups with scores in percent that all arms have, and what an arm reaches in the mean. Where dense's score is 0, or its
  // interval begins below 1 %, nothing can be lost: such groups are left out, or they would hide what is lost elsewhere.
  std::vector<size_t> Scored() const;
  size_t LeftOut() const;  // how many those are
  double Score(size_t arm) const { return Mean(Scored(), arm, "score"); }
  // Where it lies with 95 % confidence: of a group, and of the mean over groups. NaN where a row does not say it.
  Interval ScoreInterval(size_t group, size_t arm) const;
  Interval MeanInterval(const std::vector<size_t>& groups, size_t arm) const;

 private:
  bool IsAnswered(size_t group) const;
  void NameArms();
  void FindSweeps();

  nlohmann::ordered_json settings_;
  std::vector<ReportArm> arms_;
  std::vector<ReportGroup> groups_;
  std::vector<std::vector<nlohmann::ordered_json>> rows_;  // [groups][arms]
  std::vector<Sweep> sweeps_;
};

}  // namespace coppice
