// A run's results as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/chat_prompt.h"
#include "engine/engine.h"

namespace coppice::cli {

// The object that `run --json` prints.
nlohmann::ordered_json AnswerJson(const Answer& answer, const std::string& text, const ChatPrompt& prompt,
                                  const Engine& engine);

// What each of several processes did in a prefill; empty for one process.
nlohmann::ordered_json ProcessesJson(const std::vector<ProcessWork>& processes);

// Rows with keys and values, and FFN rows, as shares of the dense run's: "25 % / 12 %".
std::string KeptText(const Ledger& ledger);

// What a user should know before the prompt is read: what "auto" chose and why, and which methods do not act.
// Lines, each with its end; empty if there is nothing to say.
std::string LinesBefore(const ChosenRun& chosen);
// What a person wants to know after an answer, in one line without its end: "read 6,621 tokens in 0.9 s; 32 %
// of the work of a full read; wrote 32 tokens, 30.1 a second (cut at 32 tokens: -n)". `most`: of -n, or -1.
std::string AnswerLine(const Answer& answer, int64_t most);
// What pruning did to a run, in one line without its end; empty if nobody asked for it.
std::string PruneLine(const Answer& answer);

// The times of all rounds of a measurement.
struct Spread {
  double median, min, max;
};
Spread SpreadOf(std::vector<double> values);  // at least one

// JSON in which bytes that are no UTF-8 show as U+FFFD instead of failing.
std::string Dump(const nlohmann::ordered_json& json, int indent = -1);

// The text of an answer.
std::string AnswerText(const Answer& answer, const Engine& engine);

// Of a GGUF file without output.weight: it may be a tied model's, or may have lost the tensor.
inline constexpr const char* kHeadIsAbsent =
    "the file has no output.weight: the output head is the embedding";
bool HeadIsAbsent(const Engine& engine);

}  // namespace coppice::cli
