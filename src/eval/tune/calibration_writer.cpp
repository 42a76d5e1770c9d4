#include "eval/tune/calibration_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/mmap.h"
#include "base/new_file.h"
#include "engine/calibration.h"
#include "engine/fingerprint.h"
#include "engine/question_kinds.h"
#include "formats/json.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

double Rounded(double value, double digits) { return std::round(value * digits) / digits; }
double Percent(double share) { return Rounded(100 * share, 100); }

ordered_json IntervalJson(const Interval& interval) {
  return {Percent(interval.low), Percent(interval.high)};
}

ordered_json ScoreJson(const Quality& quality) {
  const auto n = static_cast<double>(std::max<size_t>(quality.samples, 1));
  return {{"n", quality.samples},
          {"score", Percent(quality.score / n)},
          {"dense", Percent(quality.dense_score / n)},
          {"kl", Rounded(quality.kl / n, 1e5)}};
}

ordered_json HeldOutJson(const HeldOut& held_out) {
  ordered_json json = ScoreJson(held_out.quality);
  json["interval"] = IntervalJson(held_out.score_interval());
  json["loss"] = Percent(held_out.loss());
  json["loss_interval"] = IntervalJson(held_out.loss_interval());
  return json;
}

ordered_json RejectedJson(const Pick& pick, const SearchResult& result) {
  ordered_json rejected = ordered_json::array();
  for (const Pick::Rejected& r : pick.rejected) {
    ordered_json one = {{"prune", result.tried[r.candidate].spec}};
    one.update(HeldOutJson(r.held_out));
    rejected.push_back(std::move(one));
  }
  return rejected;
}

// A setting and its measurements.
ordered_json PickJson(const Pick& pick, const SearchResult& result, int64_t length, const ModelShape& shape) {
  ordered_json json;
  json["method"] = pick.method;
  json["prune"] = pick.chosen ? result.tried[*pick.chosen].spec : "none";
  if (!pick.chosen) json["why"] = pick.why;
  if (pick.chosen) {
    const Candidate& c = result.tried[*pick.chosen];
    json["settings"] = SettingsOf(c.spec, shape, length);
    json["ttft_ratio"] = Rounded(c.cost->ttft, 1e3);
    json["flops_ratio"] = Rounded(c.cost->flops, 1e3);
    json["reused_layers"] = ReusedLayers(c.spec, shape, length);
    json["tuned"] = ScoreJson(c.quality);
    json["held_out"] = HeldOutJson(pick.held_out);
  }
  if (!pick.rejected.empty()) json["rejected"] = RejectedJson(pick, result);
  return json;
}

ordered_json MadeJson(const RangeResult& range, const TuneOptions& o, const TuneRun& run,
                      const Engine& engine) {
  ordered_json tasks = ordered_json::array();
  for (const TaskUse& task : range.tasks) {
    ordered_json row = {
        {"task", task.task}, {"dense", Percent(task.dense_score)}, {"n", task.samples}, {"used", task.used}};
    if (!task.used) row["why"] = task.why;
    tasks.push_back(std::move(row));
  }
  return {{"date", run.date},
          {"version", run.version},
          {"chat", o.eval.chat},
          {"seed", o.eval.seed},
          {"machine",
           {{"backend", engine.backend().name()},
            {"isa", engine.backend().isa()},
            {"threads", engine.backend().threads()},
            {"cache_type", Info(engine.backend().cache_dtype()).name}}},
          {"tasks", tasks}};
}

// Whether the next run of the same command may find a setting.
bool IsUnfinished(const RangeResult& range) { return range.interrupted || range.search.out_of_time; }

// Why `auto` shall run densely.
std::string WhyNone(const RangeResult& range, const QualityBudget& budget) {
  if (IsUnfinished(range)) return "no setting was found so far: tune " + HowFar(range);
  if (!range.why.empty()) return range.why;
  for (const Pick& pick : range.picks) {
    if (pick.budget == budget && pick.chosen) return "no setting within the budget was faster than dense";
  }
  return "no setting kept the answers";
}

// An entry's members in the order in which they are written: those of its key, then those of a setting, as
// PickJson makes them.
constexpr const char* kKeyMembers[] = {"loss",       "kl_bound", "length", "min_tokens",
                                       "max_tokens", "kinds",    "unable", "chosen_tasks"};
constexpr const char* kSettingMembers[] = {"unfinished", "method",     "prune",       "settings",
                                           "why",        "ttft_ratio", "flops_ratio", "reused_layers",
                                           "tuned",      "held_out",   "rejected"};

// The fastest of an entry's methods; null if none is faster than dense. `reuse`: only of those that leave
// states for a second question. Files of earlier versions do not say which do.
const ordered_json* Fastest(const ordered_json& methods, bool reuse) {
  const ordered_json* best = nullptr;
  double best_time = 1;
  for (const ordered_json& method : methods) {
    const bool usable =
        method.value("prune", "none") != "none" && (!reuse || method.value("reused_layers", 1) > 0);
    const double time = method.value("ttft_ratio", 1.0);
    if (!usable || time >= best_time) continue;
    best = &method;
    best_time = time;
  }
  return best;
}

// The entry with the settings that follow from its methods: the fastest that leaves states for a second
// question, and in `one_question` the fastest of all, if that is another one.
ordered_json WithBestSettings(const ordered_json& entry) {
  const ordered_json& methods = entry["methods"];
  const ordered_json* fastest = Fastest(methods, false);
  const ordered_json* main = Fastest(methods, true);
  if (main == nullptr) main = fastest;
  ordered_json made;
  const auto copy = [&made](const ordered_json& from, const auto& names) {
    for (const char* name : names) {
      if (from.contains(name)) made[name] = from[name];
    }
  };
  copy(entry, kKeyMembers);
  copy(main != nullptr ? *main : entry, kSettingMembers);
  if (main != fastest) made["one_question"] = *fastest;
  copy(entry, std::array{"methods", "made"});
  return made;
}

// The kinds of question of the tasks that were used, or could not be: dense did not answer them.
ordered_json KindsJson(const RangeResult& range, const EvalOptions& o, bool used) {
  ordered_json kinds = ordered_json::array();
  for (const TaskUse& task : range.tasks) {
    // A task that there was no time for, or no sample, says nothing.
    if (task.used != used || (!used && task.samples == 0)) continue;
    const std::string name(NameOf(KindOfTask(task.task, o.distractors == 0)));
    if (std::find(kinds.begin(), kinds.end(), name) == kinds.end()) kinds.push_back(name);
  }
  return kinds;
}

ordered_json EntryJson(const RangeResult& range, const QualityBudget& budget, const TuneOptions& o,
                       const TuneRun& run, const Engine& engine) {
  const ModelShape& shape = engine.model().config().shape;
  ordered_json entry = {{"loss", *budget.score_loss}};
  if (budget.kl) entry["kl_bound"] = *budget.kl;
  entry.update({{"length", range.length},
                {"min_tokens", range.min_tokens},
                {"max_tokens", std::min(range.max_tokens, engine.context())}});
  entry["kinds"] = KindsJson(range, o.eval, true);
  if (ordered_json unable = KindsJson(range, o.eval, false); !unable.empty())
    entry["unable"] = std::move(unable);
  if (o.chosen_tasks) entry["chosen_tasks"] = true;
  if (BestPick(range.picks, budget, range.search) == nullptr) {
    if (IsUnfinished(range)) entry["unfinished"] = true;
    entry.update({{"prune", "none"}, {"why", WhyNone(range, budget)}});
  }
  ordered_json methods = ordered_json::array();
  for (const Pick& pick : range.picks) {
    if (pick.budget == budget) methods.push_back(PickJson(pick, range.search, range.length, shape));
  }
  entry["methods"] = std::move(methods);
  entry["made"] = MadeJson(range, o, run, engine);
  return WithBestSettings(entry);
}

bool SameKey(const ordered_json& a, const ordered_json& b) {
  for (const char* name : {"loss", "kl_bound", "length"}) {
    if (a.value(name, ordered_json()) != b.value(name, ordered_json())) return false;
  }
  return true;
}

// Whether both asked the same questions in the same form, so that their scores are comparable.
bool SameSamples(const ordered_json& a, const ordered_json& b) {
  const ordered_json made_a = a.value("made", ordered_json::object());
  const ordered_json made_b = b.value("made", ordered_json::object());
  for (const char* name : {"chat", "seed", "tasks"}) {
    if (made_a.value(name, ordered_json()) != made_b.value(name, ordered_json())) return false;
  }
  return true;
}

void KeepOtherMethods(const ordered_json& before, ordered_json& made) {
  ordered_json& methods = made["methods"];
  for (const ordered_json& old : before.value("methods", ordered_json::array())) {
    const bool tuned_again = std::any_of(methods.begin(), methods.end(), [&](const ordered_json& m) {
      return m.value("method", "") == old.value("method", "");
    });
    if (!tuned_again) methods.push_back(old);
  }
  made = WithBestSettings(made);
}

// On one line, with a space after commas and colons.
std::string OneLine(const ordered_json& json) {
  if (!json.is_structured()) return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::string line;
  for (const auto& [key, value] : json.items()) {
    line += line.empty() ? "" : ", ";
    if (json.is_object()) line += OneLine(key) + ": ";
    line += OneLine(value);
  }
  return json.is_object() ? "{" + line + "}" : "[" + line + "]";
}

// A value that fits in a line and has no object inside is written on one line.
void AppendReadable(const ordered_json& json, size_t indent, std::string& out) {
  constexpr size_t kWidth = 140;
  const bool nested = std::any_of(json.begin(), json.end(),
                                  [](const ordered_json& v) { return v.is_object() && !v.empty(); });
  const std::string line = OneLine(json);
  if (!json.is_structured() || json.empty() || (!nested && line.size() < kWidth)) {
    out += line;
    return;
  }
  const bool object = json.is_object();
  out += object ? "{" : "[";
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    out += (first ? "\n" : ",\n") + std::string(indent + 1, ' ');
    if (object) out += OneLine(key) + ": ";
    AppendReadable(value, indent + 1, out);
    first = false;
  }
  out += "\n" + std::string(indent, ' ') + (object ? "}" : "]");
}

}  // namespace

ordered_json CalibrationJson(const TuneResult& result, const TuneOptions& options, const TuneRun& run,
                             const Engine& engine) {
  const ModelConfig& config = engine.model().config();
  ordered_json entries = ordered_json::array();
  for (const RangeResult& range : result.ranges) {
    for (const QualityBudget& budget : options.budgets) {
      if (!budget.score_loss) continue;
      entries.push_back(EntryJson(range, budget, options, run, engine));
    }
  }
  return {{"format", kCalibrationFormat},
          {"version", kCalibrationVersion},
          {"model",
           {{"name", config.shape.name},
            {"file", std::filesystem::path(run.model).filename().string()},
            {"architecture", config.shape.architecture},
            {"layers", config.shape.layer_count()},
            {"fingerprint", WeightsFingerprintOf(engine.store(), config)}}},
          {"entries", std::move(entries)}};
}

ordered_json MergeCalibrations(const ordered_json& before, ordered_json made) {
  if (before["model"]["fingerprint"] != made["model"]["fingerprint"]) return made;
  ordered_json& entries = made["entries"];
  for (const ordered_json& old : before["entries"]) {
    const auto same =
        std::find_if(entries.begin(), entries.end(), [&](const ordered_json& e) { return SameKey(e, old); });
    if (same == entries.end()) {
      entries.push_back(old);
    } else if (SameSamples(old, *same)) {
      KeepOtherMethods(old, *same);
    } else if (same->value("unfinished", false) && !old.value("unfinished", false)) {
      *same = old;
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const ordered_json& a, const ordered_json& b) {
    return std::pair(a["length"], a["loss"]) < std::pair(b["length"], b["loss"]);
  });
  return made;
}

void WriteCalibration(const std::string& path, ordered_json made) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    const MappedFile file(path);
    const std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
    ParseCalibration(text, path);  // a file that is no calibration must not be overwritten
    made = MergeCalibrations(ordered_json::parse(text), std::move(made));
  }
  const std::string text = ReadableJson(made) + "\n";
  ParseCalibration(text, path);
  NewFile file(path, "tune");
  file.Append(text);
  file.Commit();
}

std::string ReadableJson(const ordered_json& json) {
  std::string out;
  AppendReadable(json, 0, out);
  return out;
}

}  // namespace coppice
