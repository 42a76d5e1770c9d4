// The parts of a run: groups of samples, and the settings that determine their scores and times.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/filler.h"
#include "eval/runner.h"
#include "eval/task.h"

namespace coppice {

struct EvalGroup {
  const TaskInfo* task;
  int64_t length;  // 0: of the texts
  bool named;      // by its own name, not by its group's
};

// Tasks times lengths, each once.
std::vector<EvalGroup> GroupsOf(const EvalOptions& options, const Engine& engine);

// The group's share of the run's time, which prefills of long prompts dominate.
double WeightOf(const EvalGroup& group);

// Throws MissingData where no folder has what the task needs.
std::vector<Sample> SamplesOf(const EvalGroup& group, const EvalOptions& options, const Filler& filler,
                              const Engine& engine);

// Everything that determines scores and times. A run resumes only with equal settings.
nlohmann::ordered_json SettingsOf(const EvalOptions& options, const std::string& model, const Engine& engine);

// A sample's text and references as 16 hexadecimal digits.
std::string HashOf(const Sample& sample);
std::string MetricOf(const Sample& sample);

}  // namespace coppice
