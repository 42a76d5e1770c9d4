#include "eval/tune/tune.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/new_file.h"
#include "eval/setup.h"
#include "eval/tune/range_tuner.h"
#include "eval/tune/trials.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kDefaultLength = 4096;
constexpr double kMostShown = 0.99;  // of the work, before its end

std::vector<int64_t> LengthsOf(const EvalOptions& options, const Engine& engine) {
  std::vector<int64_t> lengths = options.lengths;
  if (lengths.empty()) lengths = {std::min(kDefaultLength, engine.context())};
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

void WriteTried(const std::vector<RangeResult>& ranges, const std::string& path) {
  ordered_json rows = ordered_json::array();
  for (const RangeResult& range : ranges) {
    for (const Candidate& c : range.search.tried) {
      if (c.quality.samples == 0) continue;
      const auto n = static_cast<double>(c.quality.samples);
      ordered_json row = {{"length", range.length},
                          {"prune", c.spec},
                          {"verdict", VerdictText(c.verdict)},
                          {"samples", c.quality.samples},
                          {"score", 100 * c.quality.score / n},
                          {"keeps_at_most", 100 * range.search.KeepsAtMost(c)},
                          {"dense_score", 100 * c.quality.dense_score / n},
                          {"kl", c.mean_kl()},
                          {"planned_flops", c.flops}};
      if (c.cost) row.update({{"ttft_ratio", c.cost->ttft}, {"flops_ratio", c.cost->flops}});
      rows.push_back(std::move(row));
    }
  }
  NewFile file(path, "tune");
  file.Append(rows.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  file.Commit();
}

}  // namespace

// A task for each kind of question that pruning loses in its own way, the most telling first, because little
// time leaves out the last. docs/quality.md has what each of them costs.
std::vector<std::string> DefaultTasks(bool has_data) {
  std::vector<std::string> tasks = {"niah",
                                    "ruler/niah_multikey_1",
                                    "ruler/niah_single_2",
                                    "ruler/niah_multiquery",
                                    "ruler/niah_multivalue",
                                    "ruler/vt"};
  if (has_data) tasks.insert(tasks.end(), {"kv_retrieval", "longeval"});
  return tasks;
}

int64_t LeastCovered(int64_t length) { return (9 * length + 9) / 10; }
int64_t MostCovered(int64_t length) { return 3 * length / 2; }

TuneResult Tune(const TuneOptions& options, const std::string& model, Engine& engine,
                const std::atomic<bool>* cancelled, const SearchNote& note) {
  TuneOptions o = options;
  if (o.eval.tasks.empty()) o.eval.tasks = DefaultTasks(!o.eval.data.empty());
  o.eval.lengths = LengthsOf(o.eval, engine);
  Check(o.eval, engine);
  std::error_code failed;
  std::filesystem::create_directories(o.eval.folder, failed);
  if (failed) throw Error("[tune] {}: cannot make the folder: {}", o.eval.folder, failed.message());
  if (note) note({"making samples", 0});
  Trials trials(o, model, engine, cancelled);
  TuneResult result{{}, trials.skipped()};
  // Long prompts get the larger part of the time.
  double all = 0, before = 0;
  for (const int64_t length : o.eval.lengths) all += static_cast<double>(length);
  for (const int64_t length : o.eval.lengths) {
    const double share = static_cast<double>(length) / all;
    const double limit = o.minutes > 0 ? 60 * o.minutes : std::numeric_limits<double>::infinity();
    const SearchNote part = [&](const SearchProgress& p) {
      if (!note) return;
      const double done = before + share * p.share;
      // Behind this length come the others: without a limit as many seconds for each share as for this one.
      const double own = p.share > 0 ? p.left / std::max(1 - p.share, 1e-3) : 0;
      const double others = own * std::max(1 - before - share, 0.0) / share;
      const double left = std::isfinite(limit)
                              ? std::min(p.left + others, std::max(limit - trials.seconds(), 0.0))
                              : p.left + others;
      note({p.label, std::min(done, kMostShown), left});
    };
    const double seconds = (limit - trials.seconds()) * share / (1 - before);
    result.ranges.push_back(TuneRange(o, engine, trials, seconds, part, length));
    before = std::min(before + share, 1 - 1e-9);
    WriteTried(result.ranges, o.eval.folder + "/tune.json");
    result.interrupted = result.ranges.back().interrupted;
    if (result.interrupted) break;
  }
  if (note) note({"", result.interrupted ? std::min(before, kMostShown) : 1.0, 0});
  return result;
}

std::string HowFar(const RangeResult& range) {
  size_t settings = 0, most = 0, tested = 0, of_half = 0;
  std::set<std::string> methods, on_half;
  for (const Candidate& c : range.search.tried) {
    if (c.quality.samples == 0) continue;
    ++settings;
    methods.insert(c.method);
    most = std::max(most, c.quality.samples);
  }
  for (const Pick& pick : range.picks) {
    if (pick.chosen) on_half.insert(range.search.tried[*pick.chosen].spec);
    if (pick.chosen) of_half = std::max(of_half, pick.held_out.quality.samples);
    for (const Pick::Rejected& r : pick.rejected) {
      on_half.insert(range.search.tried[r.candidate].spec);
      of_half = std::max(of_half, r.held_out.quality.samples);
    }
  }
  tested = on_half.size();
  const auto count = [](size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text =
      fmt::format("tested {} of {}", count(settings, "setting"), count(methods.size(), "method"));
  if (settings == 0) text = "tested no setting";
  if (settings > 0) text += fmt::format(" on up to {}", count(most, "sample"));
  if (tested > 0)
    text +=
        fmt::format(", and {} of them on {} that the search had not seen", tested, count(of_half, "sample"));
  if (range.interrupted) text += "; interrupted";
  if (!range.interrupted && range.search.out_of_time) text += "; the time limit (--time-limit) ended it";
  if (range.interrupted || range.search.out_of_time) text += ": the same command goes on from here";
  return text;
}

const char* VerdictText(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWaits:
      return "not followed";
    case Verdict::kDone:
      return "answered all";
    case Verdict::kOver:
      return "over the budget";
    case Verdict::kAside:
      return "stands aside";
  }
  return "";
}

}  // namespace coppice
