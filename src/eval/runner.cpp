#include "eval/runner.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/error.h"
#include "base/new_file.h"
#include "eval/data.h"
#include "eval/journal.h"
#include "eval/summary.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int64_t kDefaultLength = 4096;
constexpr std::chrono::seconds kWriteEvery{5};

struct Group {
  const TaskInfo* task;
  int64_t length;  // 0: of the texts
  bool named;      // by its own name, not a group's
};

std::vector<Group> GroupsOf(const EvalOptions& o, const Engine& engine) {
  std::vector<Group> groups;
  const auto add = [&](const TaskInfo& task, int64_t length, bool named) {
    const bool there = std::any_of(groups.begin(), groups.end(),
                                   [&](const Group& g) { return g.task == &task && g.length == length; });
    if (!there) groups.push_back({&task, length, named});
  };
  for (const std::string& name : o.tasks) {
    for (const TaskInfo* task : FindTasks(name)) {
      std::vector<int64_t> lengths = o.lengths;
      if (lengths.empty())
        lengths = {task->length == TaskLength::kMade ? std::min(kDefaultLength, engine.context())
                                                     : engine.context()};
      if (task->length == TaskLength::kOwn) lengths = {0};
      for (const int64_t length : lengths) add(*task, length, task->name == name);
    }
  }
  return groups;
}

// The file's bytes stand for its content: a model is too large to be hashed at each start.
ordered_json FileName(const std::string& path) {
  if (path.empty()) return "";
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return path;
  const auto size = std::filesystem::file_size(path, ignored);
  return ignored ? path : fmt::format("{} ({} bytes)", path, size);
}

// Everything that decides about scores and times: a run may only go on with the same.
ordered_json SettingsOf(const EvalOptions& o, const std::string& model, Engine& engine) {
  ordered_json data = ordered_json::array();
  for (const std::string& folder : o.data) data.push_back(folder);
  return {{"model", FileName(model)},
          {"tasks", o.tasks},
          {"lengths", o.lengths},
          {"prune", o.prune},
          {"samples", o.samples},
          {"seed", o.seed},
          {"depths", o.depths},
          {"distractors", o.distractors},
          {"data", data},
          {"haystack", FileName(o.haystack)},
          {"jieba", o.jieba},
          {"chat", o.chat},
          {"protect_first", o.protection.first},
          {"protect_last", o.protection.last},
          {"context", engine.context()},
          {"backend", engine.backend().name()},
          {"isa", engine.backend().isa()},
          {"threads", engine.backend().threads()},
          {"cache_type", Info(engine.backend().cache_dtype()).name}};
}

std::string HashOf(const Sample& sample) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash *= 0x100000001b3u;
  };
  for (const std::string& text : {sample.prompt, sample.answer_prefix, sample.metric}) add(text);
  for (const std::string& text : sample.references) add(text);
  for (const Choice& choice : sample.choices) {
    add(choice.context);
    add(choice.continuation);
  }
  return fmt::format("{:016x}", hash);
}

std::string MetricOf(const Sample& sample) {
  if (sample.kind == SampleKind::kAnswer) return sample.metric;
  return sample.kind == SampleKind::kChoose ? "acc" : "perplexity";
}

class Run {
 public:
  Run(const EvalOptions& options, const std::string& model, Engine& engine,
      const std::atomic<bool>* cancelled, const std::function<void(const EvalProgress&)>& progress)
      : options_(options),
        engine_(engine),
        progress_(progress),
        filler_(options.haystack.empty() ? Filler() : Filler(options.haystack)),
        metrics_(options.jieba),
        context_{engine, metrics_, options.chat, options.protection, cancelled, {}},
        journal_(options.folder + "/samples.jsonl", SettingsOf(options, model, engine)),
        groups_(GroupsOf(options, engine)) {
    arms_.push_back("none");
    arms_.insert(arms_.end(), options.prune.begin(), options.prune.end());
  }

  EvalResult All() {
    try {
      for (const Group& group : groups_) RunIfThere(group);
    } catch (const Cancelled&) {
      WriteResults();
      throw;
    }
    WriteResults();
    return {rows_, skipped_};
  }

 private:
  void RunIfThere(const Group& group) {
    try {
      RunGroup(group);
    } catch (const MissingData& missing) {
      if (group.named) throw;
      skipped_.emplace_back(missing.what());
      done_ += weight_;
      if (skipped_.size() == groups_.size()) throw;
    }
  }

  void RunGroup(const Group& group) {
    const std::string name =
        group.length == 0 ? group.task->name : fmt::format("{} {}", group.task->name, group.length);
    weight_ = WeightOf(group);
    Show(name + ", making samples", 0);
    const std::vector<Sample> samples = group.task->samples({.length = group.length,
                                                             .samples = options_.samples,
                                                             .seed = options_.seed,
                                                             .depths = options_.depths,
                                                             .distractors = options_.distractors,
                                                             .data = options_.data,
                                                             .filler = &filler_,
                                                             .tokenizer = engine_.tokenizer()});
    bool warm = false;
    for (size_t i = 0; i < samples.size(); ++i) {
      const Sample& sample = samples[i];
      within_group_ = static_cast<double>(i) / static_cast<double>(samples.size());
      if (IsDone(group, sample)) continue;
      try {
        RunOne(group, sample, fmt::format("{}, sample {}/{}", name, i + 1, samples.size()), samples.size(),
               warm);
      } catch (const Error& error) {
        throw Error("{}, sample {}: {}", name, sample.id, error.what());
      }
      warm = true;
    }
    done_ += weight_;
    within_group_ = 0;
  }

  void RunOne(const Group& group, const Sample& sample, const std::string& name, size_t samples, bool warm) {
    // Pages, workspaces and caches of this length are touched once before anything is timed.
    DenseLogits dense;
    if (!warm) {
      Sample first = sample;
      first.max_tokens = std::min<int64_t>(first.max_tokens, 1);
      if (first.choices.size() > 1) first.choices.resize(1);
      RunSample(first, "none", context_, dense);
    }
    ordered_json arms = ordered_json::array();
    for (size_t a = 0; a < arms_.size(); ++a) {
      const std::string label = fmt::format("{}, {}", name, arms_[a] == "none" ? "dense" : arms_[a]);
      context_.progress = [&](double share) {
        Show(label, (static_cast<double>(a) + share) / static_cast<double>(arms_.size() * samples));
      };
      arms.push_back(RunSample(sample, arms_[a], context_, dense));
    }
    context_.progress = nullptr;
    ordered_json record = {{"task", group.task->name},
                           {"length", group.length},
                           {"id", sample.id},
                           {"metric", MetricOf(sample)},
                           {"prompt", HashOf(sample)}};
    if (sample.depth >= 0) record["depth"] = sample.depth;
    if (!sample.references.empty()) record["references"] = sample.references;
    if (sample.kind == SampleKind::kAnswer && Metrics::NeedsChineseWords(sample.metric))
      record["cutter"] = metrics_.ChineseCutter();
    record["arms"] = std::move(arms);
    journal_.Append(std::move(record));
    if (Clock::now() - written_ > kWriteEvery) WriteResults();
  }

  bool IsDone(const Group& group, const Sample& sample) const {
    const ordered_json* record = journal_.Find(group.task->name, group.length, sample.id);
    if (record == nullptr) return false;
    if (record->value("prompt", "") != HashOf(sample)) {
      throw Error(
          "[eval] {}/samples.jsonl: sample {} of {} was another text: the data have changed, choose another "
          "-o",
          options_.folder, sample.id, group.task->name);
    }
    return true;
  }

  // Prefills of long prompts decide how long a run takes.
  double WeightOf(const Group& group) const {
    return static_cast<double>(group.length > 0 ? group.length : kDefaultLength);
  }

  void Show(const std::string& label, double within_sample) {
    if (!progress_) return;
    double all = 0;
    for (const Group& group : groups_) all += WeightOf(group);
    progress_({label, (done_ + weight_ * (within_group_ + within_sample)) / all});
  }

  void WriteResults() {
    rows_ = Summarize(journal_.records());
    NewFile file(options_.folder + "/results.json", "eval");
    file.Append("[\n");
    for (size_t i = 0; i < rows_.size(); ++i)
      file.Append(rows_[i].dump(-1, ' ', false, ordered_json::error_handler_t::replace) +
                  (i + 1 < rows_.size() ? ",\n" : "\n"));
    file.Append("]\n");
    file.Commit();
    written_ = Clock::now();
  }

  const EvalOptions& options_;
  Engine& engine_;
  const std::function<void(const EvalProgress&)>& progress_;
  Filler filler_;
  Metrics metrics_;
  ArmContext context_;
  Journal journal_;
  std::vector<Group> groups_;
  std::vector<std::string> arms_;
  ordered_json rows_;
  std::vector<std::string> skipped_;
  Clock::time_point written_ = Clock::now();
  double done_ = 0;          // weights of the groups before
  double weight_ = 0;        // of this one
  double within_group_ = 0;  // share of its samples
};

}  // namespace

void Check(const EvalOptions& o, const Engine& engine) {
  if (engine.tokenizer() == nullptr)
    throw Error("the model has no tokenizer, so it cannot be evaluated on texts");
  if (o.tasks.empty()) throw Error("name a task");
  if (o.chat && engine.tokenizer()->chat_template().empty())
    throw Error("--chat: the model has no chat template");
  for (const Group& group : GroupsOf(o, engine)) {
    if (group.length > engine.context()) {
      throw Error("--lengths {}: the context is {}; raise --ctx-size where the model allows", group.length,
                  engine.context());
    }
    if (group.task->needs_data && o.data.empty()) throw Error("{}: needs --data FOLDER", group.task->name);
  }
  std::vector<std::string> arms = {"none"};
  for (const std::string& arm : o.prune) {
    if (std::find(arms.begin(), arms.end(), arm) != arms.end())
      throw Error("--prune {}: named twice, or the dense arm that every run has", arm);
    arms.push_back(arm);
  }
}

EvalResult Evaluate(const EvalOptions& options, const std::string& model, Engine& engine,
                    const std::atomic<bool>* cancelled,
                    const std::function<void(const EvalProgress& progress)>& progress) {
  Check(options, engine);
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  if (failed) throw Error("[eval] {}: cannot make the folder: {}", options.folder, failed.message());
  return Run(options, model, engine, cancelled, progress).All();
}

}  // namespace coppice
