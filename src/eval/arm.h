// Runs one sample in one arm: dense, or a method.
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

// The dense run's logits, to compare other arms with. Of an answer only the first position: later positions
// follow different texts.
struct DenseLogits {
  std::vector<std::vector<float>> positions;  // [scored positions][vocab]
};

struct ArmContext {
  Engine& engine;
  TaskMetrics& metrics;
  bool chat = false;  // prompts are messages of a user, except plain ones
  Protection protection = {};
  const std::atomic<bool>* cancelled = nullptr;
  std::function<void(double share)> progress = {};  // of this sample in this arm; may be empty
  bool use_documents = true;                        // where the engine has a document cache
  bool stop_when_right = false;  // end an answer that no further text can change: it holds every reference
};

// With prune "none", fills `dense`; with a method, compares with `dense` where it is filled.
SampleResult RunSample(const Sample& sample, const std::string& prune, const ArmContext& context,
                       DenseLogits& dense);

// The sample's first prompt, and the tokens of its longest prompt.
std::vector<int32_t> PromptOf(const Sample& sample, const ArmContext& context);
int64_t PromptTokens(const Sample& sample, const ArmContext& context);

// A context and its continuation as lm-evaluation-harness splits their tokens: white space at the end of the
// context belongs to the continuation, and a token across the seam to the context.
struct EncodedChoice {
  std::vector<int32_t> context;
  std::vector<int32_t> continuation;
};
EncodedChoice EncodeChoice(const Choice& choice, const Tokenizer& tokenizer);

// log(softmax(logits)[token]), and the Kullback-Leibler divergence of softmax(other) from softmax(dense), in
// nats.
double LogProbability(std::span<const float> logits, int32_t token);
double Divergence(std::span<const float> dense, std::span<const float> other);

}  // namespace coppice
