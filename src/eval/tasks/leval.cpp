// L-Eval's closed tasks (https://github.com/OpenLMLab/LEval): its data format and metrics, from the user's
// folder.
//
// The prompts around a document are reworded, because L-Eval's own texts are under the GPL. If the user's
// folder is a copy of its repository, the prompts are read from there (leval_wording.h). Documents that are
// too long lose their end (code loses its beginning), as in L-Eval. Answers are shorter than its 512 tokens
// if the metric reads only their beginning. Tasks that need a judge model are left out.
#include <algorithm>

#include "eval/data.h"
#include "eval/task.h"
#include "eval/tasks/leval_wording.h"

namespace coppice {

namespace {

struct Dataset {
  std::string_view name;
  std::string_view metric;
  int64_t max_tokens;
  bool keep_end;  // of a document that is too long
  std::string_view instruction;
  std::string_view question;  // before the answer
};

constexpr std::string_view kOneLetter =
    "Read the document and answer the question about it. One option is right; answer with its letter alone.";
constexpr Dataset kDatasets[] = {
    {"coursera", "choice_several", 32, false,
     "Read the document and answer the question about it. One or more options are right; answer with their "
     "letters alone, "
     "such as A or AC.",
     "\n\n{instruction}\nAnswer:"},
    {"quality", "choice", 32, false, kOneLetter, "\n\n{instruction}\nAnswer:"},
    {"tpo", "choice", 32, false, kOneLetter, "\n\n{instruction}\nAnswer:"},
    {"gsm100", "final_number", 512, true,
     "The following questions are solved step by step. Solve the last one in the same way, and end with: The "
     "answer is N",
     "\n\n{instruction}"},
    {"codeU", "code_output", 128, true,
     "The following code defines functions. At the end some of them are called; say what the calls give.",
     "\n\n{instruction}"},
    {"sci_fi", "loyalty_fact", 64, false,
     "Read the story. Say whether the statement is true in it, and in brackets whether it is true in the "
     "real world, in "
     "the form: True [fact: False]",
     "\n\n{instruction}\nAnswer:"},
    {"topic_retrieval_longchat", "exact", 64, false,
     "The following is a record of conversations. Each begins with the topic that the user names. At the end "
     "you are asked "
     "for one of the topics.",
     "\n\n{instruction}\nAnswer:"},
};

std::string Cut(const TaskRequest& request, const std::string& document, int64_t limit, bool keep_end) {
  const std::vector<int32_t> ids =
      request.tokenizer->Encode(document, {.add_special = false, .parse_special = false});
  const auto most = static_cast<size_t>(std::max<int64_t>(limit, 0));
  if (ids.size() <= most) return document;
  return request.tokenizer->Decode(keep_end ? std::span(ids).last(most) : std::span(ids).first(most));
}

// What stands before and behind the document.
struct Around {
  std::string head;
  std::string tail;
};

Around AroundOf(const Dataset& dataset, const std::string& instruction,
                const std::optional<LEvalWording>& wording) {
  if (!wording) {
    return {std::string(dataset.instruction) + "\n\n",
            FillTemplate(dataset.question, {{"instruction", instruction}})};
  }
  // As for its authors' Llama 2, whose system prompt stands before the message.
  const std::string system = std::string(wording->System(dataset.name)) + "\n\n";
  const bool bare =
      dataset.metric == "final_number" || dataset.metric == "code_output" || dataset.metric == "exact";
  if (bare) return {system, "\n\n" + instruction};
  const size_t document = wording->question.find("{document}");
  const std::string rest = wording->question.substr(document + std::string_view("{document}").size());
  return {system + wording->question.substr(0, document),
          FillTemplate(rest, {{"inst", instruction}}) + "\nAnswer:"};
}

Sample MakeSample(const Dataset& dataset, const TaskRequest& request, const DataRow& row, size_t question,
                  const std::optional<LEvalWording>& wording) {
  const std::string instruction = row.Texts("instructions").at(question);
  const auto [head, tail] = AroundOf(dataset, instruction, wording);
  const int64_t room =
      request.length - dataset.max_tokens - CountTokens(request, head + tail) - 2;  // two seams
  if (room < 1)
    throw Error("{}: question {} alone fills the length of {} tokens", row.source(), question,
                request.length);
  Sample sample;
  sample.prompt = head + Cut(request, row.Text("input"), room, dataset.keep_end) + tail;
  sample.metric = dataset.metric;
  sample.references = {row.Texts("outputs").at(question)};
  sample.max_tokens = dataset.max_tokens;
  return sample;
}

// The first question of every document, then the second, and so on: a few samples cover many documents.
std::vector<Sample> SamplesOf(const Dataset& dataset, const TaskRequest& request) {
  const std::string name(dataset.name);
  const std::vector<DataRow> rows =
      ReadRows(FindDataFile(request, "leval/" + name, "LEval-data/Closed-ended-tasks",
                            {name + ".jsonl", "leval_" + name + ".jsonl"}));
  const std::optional<LEvalWording> wording = FindLEvalWording(request);
  size_t most = 0;
  for (const DataRow& row : rows) {
    const size_t count = row.List("instructions").size();
    if (count != row.List("outputs").size())
      throw Error("[eval] {}: {} instructions, {} outputs", row.source(), count, row.List("outputs").size());
    most = std::max(most, count);
  }
  std::vector<Sample> samples;
  for (size_t question = 0; question < most; ++question) {
    for (size_t r = 0; r < rows.size() && static_cast<int64_t>(samples.size()) < request.samples; ++r) {
      if (question >= rows[r].List("instructions").size()) continue;
      samples.push_back(MakeSample(dataset, request, rows[r], question, wording));
      samples.back().id = std::to_string(r) + "/" + std::to_string(question);
    }
  }
  return samples;
}

}  // namespace

void AddLEval(std::vector<TaskInfo>& tasks) { AddDatasets("leval", "L-Eval", kDatasets, SamplesOf, tasks); }

}  // namespace coppice
