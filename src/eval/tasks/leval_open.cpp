// L-Eval's open tasks (https://github.com/OpenLMLab/LEval): questions and summaries whose answers a judge
// model compares (eval/judge/judge.h). Without a judge they have the n-gram scores that L-Eval gives beside:
// F1 of words for answers, ROUGE-L for summaries.
//
// The prompts are worded anew, because L-Eval's are under the GPL. As there, the prompt tells the number of
// words of the reference, so that neither score nor judge measures length. Documents that are too long lose
// their end.
#include <fmt/core.h>

#include <sstream>

#include "eval/data.h"
#include "eval/task.h"
#include "eval/tasks/leval_samples.h"

namespace coppice {

namespace {

struct Dataset {
  std::string_view name;
  std::string_view metric;
};
constexpr Dataset kDatasets[] = {
    {"financial_qa", "qa_f1"},     {"gov_report_summ", "rouge_l"}, {"legal_contract_qa", "qa_f1"},
    {"meeting_summ", "rouge_l"},   {"multidoc_qa", "qa_f1"},       {"narrative_qa", "qa_f1"},
    {"natural_question", "qa_f1"}, {"news_summ", "rouge_l"},       {"paper_assistant", "rouge_l"},
    {"patent_summ", "rouge_l"},    {"review_summ", "rouge_l"},     {"scientific_qa", "qa_f1"},
    {"tv_show_summ", "rouge_l"},
};
constexpr int64_t kAnswerTokens = 512;  // as in L-Eval
constexpr const char* kHead = "Read the document and follow the instruction behind it.\n\n";

int64_t WordsOf(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  int64_t count = 0;
  while (words >> word) ++count;
  return count;
}

Sample MakeSample(const Dataset& dataset, const TaskRequest& request, const DataRow& row, size_t question) {
  Sample sample;
  sample.question = row.Texts("instructions").at(question);
  sample.references = {row.Texts("outputs").at(question)};
  sample.metric = dataset.metric;
  sample.max_tokens = kAnswerTokens;
  sample.judged = true;
  const std::string tail = fmt::format("\n\n{}\nAnswer in about {} words.\nAnswer:", sample.question,
                                       WordsOf(sample.references.front()));
  sample.prompt =
      FitLEvalPrompt({.head = kHead, .tail = tail, .answer_tokens = kAnswerTokens}, request, row, question);
  return sample;
}

std::vector<Sample> SamplesOf(const Dataset& dataset, const TaskRequest& request) {
  const std::vector<DataRow> rows =
      ReadLEvalRows(request, "leval_open/" + std::string(dataset.name), "Open-ended-tasks");
  return LEvalSamples(rows, request.samples, [&](const DataRow& row, size_t question) {
    return MakeSample(dataset, request, row, question);
  });
}

}  // namespace

void AddLEvalOpen(std::vector<TaskInfo>& tasks) {
  AddDatasets("leval_open", "L-Eval, open", kDatasets, SamplesOf, tasks);
}

}  // namespace coppice
