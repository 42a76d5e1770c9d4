#include "eval/judge/judge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/field_error.h"
#include "base/fnv.h"
#include "eval/data.h"
#include "eval/journal.h"
#include "eval/summary.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kVerdictTokens = 1024;

struct Tally {
  int64_t wins = 0, ties = 0, losses = 0, without = 0;
};

// Other answers by question and reference.
using Opponents = std::map<std::pair<std::string, std::string>, std::string>;

Opponents ReadOpponents(const std::string& path) {
  Opponents opponents;
  for (const DataRow& row : ReadRows(path)) {
    for (const std::string& field : row.Fields()) {
      if (field.ends_with("_pred")) opponents[{row.Text("query"), row.Text("gt")}] = row.Text(field.c_str());
    }
  }
  if (opponents.empty()) throw Error("[judge] {}: no line has a field that ends with _pred", path);
  return opponents;
}

// The verdicts that are there, in a file that grows by a line for each.
class Verdicts {
 public:
  Verdicts(std::string path, std::string judge) : path_(std::move(path)), judge_(std::move(judge)) {
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored)) return;
    const std::vector<std::string> lines = ReadLines(path_);
    for (const std::string& line : lines) {
      const ordered_json json = ordered_json::parse(line, nullptr, false);
      // A line that was cut off is asked again.
      if (json.is_object() && json.contains("comparison") && json["comparison"].is_string() &&
          json.contains("text") && json["text"].is_string())
        known_[json["comparison"].get<std::string>()] = json["text"].get<std::string>();
    }
    std::ifstream file(path_);
    file.seekg(-1, std::ios::end);
    if (!lines.empty() && file.get() != '\n') std::ofstream(path_, std::ios::app) << '\n';
  }

  // The judge's text, from the file or from `ask`.
  template <typename Ask>
  std::string Get(const SampleRecord& record, const std::string& prune, int order,
                  const std::string& question, const Ask& ask) {
    const std::string comparison = KeyOf(question);
    const auto found = known_.find(comparison);
    if (found != known_.end()) return found->second;
    std::string text = ask();
    const ordered_json line = {{"comparison", comparison}, {"task", record.task}, {"length", record.length},
                               {"id", record.id},          {"prune", prune},      {"order", order},
                               {"judge", judge_},          {"text", text}};
    std::ofstream out(path_, std::ios::app);
    out << line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
    out.flush();
    if (!out) throw Error("[judge] {}: cannot be written", path_);
    known_[comparison] = text;
    return text;
  }

 private:
  // Everything that decides the judge's text: its model, its instructions and the question.
  std::string KeyOf(const std::string& question) const {
    return fmt::format("{:016x}",
                       Fnv1a(question, Fnv1a("\n", Fnv1a(JudgeSystem(), Fnv1a("\n", Fnv1a(judge_))))));
  }

  std::string path_;
  std::string judge_;
  std::map<std::string, std::string> known_;
};

const SampleResult* ArmOf(const SampleRecord& record, const std::string& prune) {
  const auto found = std::find_if(record.arms.begin(), record.arms.end(),
                                  [&](const SampleResult& arm) { return arm.prune == prune; });
  return found == record.arms.end() || !found->text ? nullptr : &*found;
}

// By task, length and arm, as the rows of results.json.
using Tallies = std::map<std::tuple<std::string, int64_t, std::string>, Tally>;

// What the record's answers are compared with, or null: the record is for no judge, or has no other answer.
const std::string* OtherAnswer(const SampleRecord& record, const JudgeOptions& options,
                               const Opponents& opponents) {
  if (record.question.empty() || record.references.empty()) return nullptr;
  if (options.against.empty()) {
    const SampleResult* const dense = ArmOf(record, "none");
    return dense == nullptr ? nullptr : &*dense->text;
  }
  const auto found = opponents.find({record.question, record.references.front()});
  return found == opponents.end() ? nullptr : &found->second;
}

// Compares an answer with the other one, in both orders.
template <typename Ask>
void JudgeArm(const SampleRecord& record, const SampleResult& arm, const std::string& other,
              Verdicts& verdicts, Tally& tally, const Ask& ask) {
  for (const int order : {1, 2}) {
    const std::string question =
        JudgeQuestion(record.question, record.references.front(), order == 1 ? *arm.text : other,
                      order == 1 ? other : *arm.text);
    const JudgeVerdict verdict =
        VerdictOf(verdicts.Get(record, arm.prune, order, question, [&] { return ask(question); }));
    const JudgeVerdict win = order == 1 ? JudgeVerdict::kFirst : JudgeVerdict::kSecond;
    ++(verdict == JudgeVerdict::kNone  ? tally.without
       : verdict == JudgeVerdict::kTie ? tally.ties
       : verdict == win                ? tally.wins
                                       : tally.losses);
  }
}

void AddTo(std::vector<ResultRow>& rows, const Tallies& tallies) {
  for (ResultRow& row : rows) {
    const auto found = tallies.find({row.task, row.length, row.prune});
    if (found == tallies.end()) continue;
    const auto& [wins, ties, losses, without] = found->second;
    if (wins + ties + losses + without == 0) continue;  // stopped before the first verdict
    const auto judged = static_cast<double>(wins + ties + losses);
    row.win_rate =
        judged > 0 ? 100 * (static_cast<double>(wins) + static_cast<double>(ties) / 2) / judged : NAN;
    row.verdicts = {wins, ties, losses, without};
  }
}

}  // namespace

JudgeVerdict VerdictOf(std::string_view text) {
  JudgeVerdict verdict = JudgeVerdict::kNone;
  size_t last = 0;
  for (const auto& [mark, of_mark] :
       {std::pair("[[A]]", JudgeVerdict::kFirst), std::pair("[[B]]", JudgeVerdict::kSecond),
        std::pair("[[C]]", JudgeVerdict::kTie)}) {
    const size_t at = text.rfind(mark);
    if (at == std::string_view::npos || (verdict != JudgeVerdict::kNone && at < last)) continue;
    last = at;
    verdict = of_mark;
  }
  return verdict;
}

std::string_view JudgeSystem() {
  return "You compare two answers, A and B, to a question about a long document, which you do not see. "
         "A person wrote the reference answer; take it as the truth. The better answer agrees with the "
         "reference in its facts and answers the question. What the reference does not mention counts "
         "neither for nor against an answer. Neither the order of the answers nor their length matters. "
         "Explain your judgement in a few sentences. "
         "Then end with [[A]] if A is better, [[B]] if B is better, or [[C]] if neither is.";
}

std::string JudgeQuestion(std::string_view question, std::string_view reference, std::string_view first,
                          std::string_view second) {
  return fmt::format("Question:\n{}\n\nReference answer:\n{}\n\nAnswer A:\n{}\n\nAnswer B:\n{}", question,
                     reference, first, second);
}

void Check(const JudgeOptions& o) {
  if (!o.wanted()) return;
  Check(o.endpoint);
  if (o.endpoint.model.empty()) throw FieldError("judge_model", ": name the model that the endpoint runs");
  if (!o.against.empty()) ReadOpponents(o.against);
}

void JudgeRun(const std::string& folder, const JudgeOptions& options, const std::atomic<bool>* cancelled,
              const std::function<void(const std::string& label, double share)>& progress,
              std::vector<ResultRow>& rows) {
  const std::vector<SampleRecord> records = ReadRecordedRun(folder + "/samples.jsonl").records;
  const Opponents opponents = options.against.empty() ? Opponents() : ReadOpponents(options.against);
  Verdicts verdicts(folder + "/judge.jsonl", options.endpoint.model);
  Tallies tallies;
  const auto write = [&] {
    AddTo(rows, tallies);
    WriteRows(rows, folder + "/results.json");
  };
  try {
    for (size_t r = 0; r < records.size(); ++r) {
      const SampleRecord& record = records[r];
      const std::string* const other = OtherAnswer(record, options, opponents);
      if (other == nullptr) continue;
      for (const SampleResult& arm : record.arms) {
        if (!arm.text || (options.against.empty() && arm.prune == "none")) continue;
        if (progress)
          progress(fmt::format("judge, {} {}, {}", record.task, record.id, arm.prune),
                   static_cast<double>(r) / static_cast<double>(records.size()));
        Tally& tally = tallies[{record.task, record.length, arm.prune}];
        JudgeArm(record, arm, *other, verdicts, tally, [&](const std::string& question) {
          return AskChat(options.endpoint, JudgeSystem(), question, kVerdictTokens, cancelled);
        });
      }
    }
  } catch (...) {
    write();
    throw;
  }
  write();
}

}  // namespace coppice
