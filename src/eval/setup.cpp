#include "eval/setup.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/field_error.h"
#include "base/fnv.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kDefaultLength = 4096;

// The file's size identifies its content: a model is too large to be hashed at each start.
ordered_json FileName(const std::string& path) {
  if (path.empty()) return "";
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return path;
  const auto size = std::filesystem::file_size(path, ignored);
  return ignored ? path : fmt::format("{} ({} bytes)", path, size);
}

}  // namespace

std::vector<EvalGroup> GroupsOf(const EvalOptions& o, const Engine& engine) {
  std::vector<EvalGroup> groups;
  const auto add = [&](const TaskInfo& task, int64_t length, bool named) {
    const bool there = std::any_of(groups.begin(), groups.end(),
                                   [&](const EvalGroup& g) { return g.task == &task && g.length == length; });
    if (!there) groups.push_back({&task, length, named});
  };
  for (const std::string& name : o.tasks) {
    for (const TaskInfo* task : FindTasks(name)) {
      std::vector<int64_t> lengths = o.lengths;
      if (lengths.empty())
        lengths = {task->length == TaskLength::kMade ? std::min(kDefaultLength, engine.context())
                                                     : engine.context()};
      if (task->length == TaskLength::kOwn) lengths = {0};
      for (const int64_t length : lengths) add(*task, length, task->name == name && !o.skip_missing);
    }
  }
  return groups;
}

ordered_json SettingsOf(const EvalOptions& o, const std::string& model, const Engine& engine) {
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
  uint64_t hash = kFnvBasis;
  // A zero byte after each, so that "ab", "c" and "a", "bc" differ.
  const auto add = [&hash](std::string_view text) { hash = Fnv1a({"\0", 1}, Fnv1a(text, hash)); };
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

double WeightOf(const EvalGroup& group) {
  return static_cast<double>(group.length > 0 ? group.length : kDefaultLength);
}

std::vector<Sample> SamplesOf(const EvalGroup& group, const EvalOptions& options, const Filler& filler,
                              const Engine& engine) {
  return group.task->samples({.length = group.length,
                              .samples = options.samples,
                              .seed = options.seed,
                              .depths = options.depths,
                              .distractors = options.distractors,
                              .data = options.data,
                              .filler = &filler,
                              .tokenizer = engine.tokenizer()});
}

void Check(const EvalOptions& o, const Engine& engine) {
  if (engine.tokenizer() == nullptr)
    throw Error("the model has no tokenizer, so it cannot be evaluated on texts");
  if (o.tasks.empty()) throw Error("name a task");
  if (o.chat && engine.tokenizer()->chat_template().empty())
    throw FieldError("chat", ": the model has no chat template");
  for (const EvalGroup& group : GroupsOf(o, engine)) {
    if (group.length > engine.context()) {
      throw FieldError("lengths", " {}: the context is {}; raise it where the model allows", group.length,
                       engine.context());
    }
    if (group.task->needs_data && o.data.empty())
      throw FieldError("data", " is missing: {} needs a folder of data", group.task->name);
  }
  std::vector<std::string> arms = {"none"};
  for (const std::string& arm : o.prune) {
    if (std::find(arms.begin(), arms.end(), arm) != arms.end())
      throw FieldError("prune", " {}: named twice, or the dense arm that every run has", arm);
    arms.push_back(arm);
  }
}

}  // namespace coppice
