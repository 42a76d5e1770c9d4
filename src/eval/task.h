// A task: a name, and a function that makes its samples. Tasks know texts and a tokenizer, but no model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/filler.h"
#include "eval/sample.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

struct TaskRequest {
  int64_t length = 4096;  // most tokens of prompt and answer together
  int64_t samples = 20;   // at most
  uint64_t seed = 1;
  int64_t depths = 10;                   // places of a needle, evenly from the start to the end
  int64_t distractors = 8;               // sentences of a needle's form beside it
  std::vector<std::string> data;         // folders
  const Filler* filler = nullptr;        // set
  const Tokenizer* tokenizer = nullptr;  // set
};

enum class TaskLength {
  kMade,  // samples are made to a length
  kCut,   // texts are cut to it, where the task's authors do so
  kOwn,   // the length of the texts
};

struct TaskInfo {
  std::string name;  // "niah", "ruler/vt"; the part before the slash names the group
  std::string about;
  TaskLength length = TaskLength::kOwn;
  bool needs_data = false;
  std::function<std::vector<Sample>(const TaskRequest& request)> samples;  // throws Error
};

// Every task, in the order of reports.
const std::vector<TaskInfo>& Tasks();

// The task of that name, or all tasks of a group. Throws Error for an unknown name.
std::vector<const TaskInfo*> FindTasks(std::string_view name);

// Each adds its file's tasks; registry.cpp calls them all.
void AddNeedle(std::vector<TaskInfo>& tasks);
void AddRulerNeedles(std::vector<TaskInfo>& tasks);
void AddRulerTracking(std::vector<TaskInfo>& tasks);
void AddRulerWords(std::vector<TaskInfo>& tasks);
void AddLongBench(std::vector<TaskInfo>& tasks);
void AddLEval(std::vector<TaskInfo>& tasks);
void AddLEvalOpen(std::vector<TaskInfo>& tasks);
void AddLongEval(std::vector<TaskInfo>& tasks);
void AddKeyValue(std::vector<TaskInfo>& tasks);
void AddBabi(std::vector<TaskInfo>& tasks);
void AddFewShot(std::vector<TaskInfo>& tasks);
void AddPerplexity(std::vector<TaskInfo>& tasks);
void AddKamradt(std::vector<TaskInfo>& tasks);

// Helpers of tasks.

// Tokens of a text as a whole prompt.
int64_t CountTokens(const TaskRequest& request, std::string_view text);

// make(n) for the greatest n >= least whose prompt, answer prefix and answer fit request.length; they must
// grow with n. Throws Error if not even `least` fits.
Sample FitToLength(const TaskRequest& request, std::string_view task, int64_t least,
                   const std::function<Sample(int64_t n)>& make);

// "a", "a, and b", "a, b, and c": as RULER lists keys.
std::string ListOf(const std::vector<std::string>& items);

}  // namespace coppice
