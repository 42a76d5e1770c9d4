// What a task asks of a model, and how the answer is judged. Independent of any model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coppice {

enum class SampleKind {
  kAnswer,    // generate an answer; a metric compares it with references
  kChoose,    // the likeliest of several continuations
  kContinue,  // how likely one continuation is: perplexity
};

struct Choice {
  std::string context = {};
  std::string continuation = {};
  double norm_length = 1;  // characters that its likelihood is divided by, for acc_norm
};

struct Sample {
  std::string id = {};  // unique within its task and length
  SampleKind kind = SampleKind::kAnswer;

  // kAnswer
  std::string prompt = {};
  std::string answer_prefix = {};  // how the answer begins; follows the chat template if one is used
  std::string metric = {};         // of metrics/metric.h
  std::vector<std::string> references = {};  // any of them is right, unless the metric needs all
  std::vector<std::string> classes = {};     // the classes that the metric distinguishes
  std::string question = {};                 // for metrics that read it
  int64_t max_tokens = 0;
  bool first_line = false;  // only the answer's first line counts
  bool plain = false;       // never in a chat template

  // kChoose, and kContinue with one choice
  std::vector<Choice> choices = {};
  int gold = 0;

  bool judged = false;  // a judge model may compare the answer with another (judge/judge.h)

  std::string evidence = {};  // the text of the prompt that holds the answer, if it is one piece
  double depth = -1;          // where the answer is in the prompt, from 0 to 1; below 0: not in one place
};

}  // namespace coppice
