// L-Eval's closed tasks (https://github.com/OpenLMLab/LEval): its data format and metrics, from the user's
// folder.
//
// The prompts around a document are reworded, because L-Eval's own texts are under the GPL. If the user's
// folder is a copy of its repository, the prompts are read from there (leval_wording.h). Documents that are
// too long lose their end (code loses its beginning), as in L-Eval. Answers are shorter than its 512 tokens
// if the metric reads only their beginning. Tasks that need a judge model are left out.
#include <optional>

#include "eval/data.h"
#include "eval/task.h"
#include "eval/tasks/leval_samples.h"
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
     "letters alone, such as A or AC.",
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
     "real world, in the form: True [fact: False]",
     "\n\n{instruction}\nAnswer:"},
    {"topic_retrieval_longchat", "exact", 64, false,
     "The following is a record of conversations. Each begins with the topic that the user names. At the end "
     "you are asked for one of the topics.",
     "\n\n{instruction}\nAnswer:"},
};

// Without the answer's tokens and what is kept.
LEvalPrompt PromptOf(const Dataset& dataset, const std::string& instruction,
                     const std::optional<LEvalWording>& wording) {
  if (!wording) {
    return {.head = std::string(dataset.instruction) + "\n\n",
            .tail = FillTemplate(dataset.question, {{"instruction", instruction}})};
  }
  // As for its authors' Llama 2, whose system prompt stands before the message.
  const std::string system = std::string(wording->System(dataset.name)) + "\n\n";
  const bool bare =
      dataset.metric == "final_number" || dataset.metric == "code_output" || dataset.metric == "exact";
  if (bare) return {.head = system, .tail = "\n\n" + instruction};
  const size_t document = wording->question.find("{document}");
  const std::string rest = wording->question.substr(document + std::string_view("{document}").size());
  return {.head = system + wording->question.substr(0, document),
          .tail = FillTemplate(rest, {{"inst", instruction}}) + "\nAnswer:"};
}

Sample MakeSample(const Dataset& dataset, const TaskRequest& request, const DataRow& row, size_t question,
                  const std::optional<LEvalWording>& wording) {
  LEvalPrompt prompt = PromptOf(dataset, row.Texts("instructions").at(question), wording);
  prompt.answer_tokens = dataset.max_tokens;
  prompt.keep_end = dataset.keep_end;
  Sample sample;
  sample.prompt = FitLEvalPrompt(prompt, request, row, question);
  sample.metric = dataset.metric;
  sample.references = {row.Texts("outputs").at(question)};
  sample.max_tokens = dataset.max_tokens;
  return sample;
}

std::vector<Sample> SamplesOf(const Dataset& dataset, const TaskRequest& request) {
  const std::vector<DataRow> rows =
      ReadLEvalRows(request, "leval/" + std::string(dataset.name), "Closed-ended-tasks");
  const std::optional<LEvalWording> wording = FindLEvalWording(request);
  return LEvalSamples(rows, request.samples, [&](const DataRow& row, size_t question) {
    return MakeSample(dataset, request, row, question, wording);
  });
}

}  // namespace

void AddLEval(std::vector<TaskInfo>& tasks) { AddDatasets("leval", "L-Eval", kDatasets, SamplesOf, tasks); }

}  // namespace coppice
