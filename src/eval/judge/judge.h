// A judge model compares answers: L-Eval's protocol for its open tasks, which FTP's table 5 follows. The
// judge sees the question, a reference answer and two answers, in both orders; each order gives a win, a tie
// or a loss.
//
//   win rate = (wins + ties / 2) / (wins + ties + losses)
//
// The other answer is the dense model's, or that of a file in L-Eval's form (its opponent is a model of
// OpenAI). L-Eval's own instructions to the judge are under the GPL, so these are worded anew. Source:
// https://github.com/OpenLMLab/LEval, Evaluation/llm_eval.py.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/judge/chat_endpoint.h"
#include "eval/results.h"

namespace coppice {

struct JudgeOptions {
  ChatEndpoint endpoint = {};  // without an address: no judge
  // A file of JSON lines with "query", "gt" and one field "..._pred": the other answers. Empty: dense's.
  std::string against = {};

  bool wanted() const { return !endpoint.url.empty(); }
};

enum class JudgeVerdict { kFirst, kSecond, kTie, kNone };

// The last of [[A]], [[B]] and [[C]] in the judge's text.
JudgeVerdict VerdictOf(std::string_view text);
std::string_view JudgeSystem();
std::string JudgeQuestion(std::string_view question, std::string_view reference, std::string_view first,
                          std::string_view second);

// Throws FieldError of `judge` or Error for options that cannot be used.
void Check(const JudgeOptions& options);

// Judges the answers of samples.jsonl in `folder` whose records have a question, adds win rates to `rows`,
// and writes the rows to results.json there. Every verdict is kept in judge.jsonl, with the judge's text;
// what is there already is not asked again. Against dense, dense itself is not judged. Throws Error, naming
// address or file, and Cancelled; rows and file then have the verdicts that were given before.
void JudgeRun(const std::string& folder, const JudgeOptions& options, const std::atomic<bool>* cancelled,
              const std::function<void(const std::string& label, double share)>& progress,
              std::vector<ResultRow>& rows);

}  // namespace coppice
