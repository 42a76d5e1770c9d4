#include <algorithm>

#include "base/error.h"
#include "eval/task.h"

namespace coppice {

const std::vector<TaskInfo>& Tasks() {
  static const std::vector<TaskInfo> tasks = [] {
    std::vector<TaskInfo> all;
    AddNeedle(all);
    AddRulerNeedles(all);
    AddRulerTracking(all);
    AddRulerWords(all);
    AddLongBench(all);
    AddLEval(all);
    AddLEvalOpen(all);
    AddLongEval(all);
    AddKeyValue(all);
    AddBabi(all);
    AddFewShot(all);
    AddPerplexity(all);
    AddKamradt(all);
    return all;
  }();
  return tasks;
}

std::vector<const TaskInfo*> FindTasks(std::string_view name) {
  std::vector<const TaskInfo*> found;
  for (const TaskInfo& task : Tasks()) {
    const bool in_group =
        task.name.size() > name.size() && task.name.starts_with(name) && task.name[name.size()] == '/';
    if (task.name == name || in_group) found.push_back(&task);
  }
  if (!found.empty()) return found;
  std::vector<std::string> groups;
  for (const TaskInfo& task : Tasks()) {
    const std::string group = task.name.substr(0, task.name.find('/'));
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  std::string list;
  for (const std::string& group : groups) list += (list.empty() ? "" : ", ") + group;
  throw Error("'{}' is no task; there are {} (`coppice eval` can list all)", name, list);
}

int64_t CountTokens(const TaskRequest& request, std::string_view text) {
  return static_cast<int64_t>(
      request.tokenizer->Encode(text, {.add_special = true, .parse_special = false}).size());
}

Sample FitToLength(const TaskRequest& request, std::string_view task, int64_t least,
                   const std::function<Sample(int64_t n)>& make) {
  const auto tokens = [&](const Sample& sample) {
    return CountTokens(request, sample.prompt + sample.answer_prefix) + sample.max_tokens;
  };
  int64_t low = least;
  Sample best = make(low);
  int64_t low_tokens = tokens(best);
  if (low_tokens > request.length) {
    throw Error("{}: the shortest prompt and its answer take {} tokens, more than the length of {}", task,
                low_tokens, request.length);
  }
  int64_t high = low;
  int64_t high_tokens = low_tokens;
  while (high_tokens <= request.length) {
    high = 2 * high + 16;
    high_tokens = tokens(make(high));
  }
  // Tokens grow almost linearly with n: interpolation needs three or four prompts, bisection a dozen.
  while (high - low > 1) {
    const double share =
        static_cast<double>(request.length - low_tokens) / static_cast<double>(high_tokens - low_tokens);
    const int64_t n =
        std::clamp(low + static_cast<int64_t>(share * static_cast<double>(high - low)), low + 1, high - 1);
    Sample sample = make(n);
    const int64_t count = tokens(sample);
    if (count > request.length) {
      high = n;
      high_tokens = count;
      continue;
    }
    const bool close = request.length - count < (count - low_tokens) / (n - low);  // not one more would fit
    low = n;
    low_tokens = count;
    best = std::move(sample);
    if (close) break;
  }
  return best;
}

std::string ListOf(const std::vector<std::string>& items) {
  std::string list;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) list += i + 1 == items.size() ? ", and " : ", ";
    list += items[i];
  }
  return list;
}

}  // namespace coppice
