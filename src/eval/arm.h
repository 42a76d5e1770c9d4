// One sample through one arm: dense, or a method.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "eval/metrics/metric.h"
#include "eval/results.h"
#include "eval/sample.h"

namespace coppice {

// The distributions that dense chose tokens from, to compare others with. Of an answer only the first position: later
// ones stand behind different texts.
struct DenseLogits {
  std::vector<std::vector<float>> positions;  // [scored positions][vocab]
};

struct ArmContext {
  Engine& engine;
  TaskMetrics& metrics;
  bool chat = false;  // prompts are messages of a user, but for those that are plain
  Protection protection = {};
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(double share)> progress = {};  // of this sample in this arm; may be empty
  bool use_documents = true;                        // where the engine has a document cache
  bool stop_when_right = false;  // end an answer that no further text can change: it holds every reference
};

// With prune "none", fills `dense`; with a method, compares with `dense` where it is filled.
SampleResult RunSample(const Sample& sample, const std::string& prune, const ArmContext& context,
                       DenseLogits& dense);

// The prompt of a sample, its first where it has several; and how many tokens it has, the longest where it has several.
std::vector<int32_t> PromptOf(const Sample& sample, const ArmContext& context);
int64_t PromptTokens(const Sample& sample, const ArmContext& context);

// A context and what follows it as lm-evaluation-harness splits their tokens: spaces at the end of the context belong to
// the continuation, and tokens that straddle the seam to the context.
struct EncodedChoice {
  std::vector<int32_t> context;
  std::vector<int32_t> continuation;
};
EncodedChoice EncodeChoice(const Choice& choice, const Tokenizer& tokenizer);

// log(softmax(logits)[token]), and the Kullback-Leibler divergence of softmax(other) from softmax(dense), in nats.
double LogProbability(std::span<const float> logits, int32_t token);
double Divergence(std::span<const float> dense, std::span<const float> other);

}  // namespace coppice
