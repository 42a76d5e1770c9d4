// LongBench (https://github.com/THUDM/LongBench, LongBench/pred.py and eval.py): its prompts, answer lengths
// and metrics; long texts lose their middle. The user provides the data: FOLDER/hotpotqa.jsonl, or
// FOLDER/data/hotpotqa.jsonl.
#include <algorithm>

#include "eval/data.h"
#include "eval/task.h"

namespace coppice {

namespace {

struct Dataset {
  std::string_view name;
  std::string_view metric;
  int64_t max_tokens;
  bool first_line;  // its scorer reads only the first line
  bool plain;       // asked without a chat template
  std::string_view prompt;
};

// config/dataset2prompt.json and dataset2maxlen.json, typing errors included (MIT licence).
constexpr Dataset kDatasets[] = {
    {"narrativeqa", "qa_f1", 128, false, false,
     "You are given a story, which can be either a novel or a movie script, and a question. Answer the "
     "question asconcisely as you can, using a single phrase if possible. Do not provide any "
     "explanation.\n\nStory: {context}\n\nNow, answer the question based on the story asconcisely as you "
     "can, using a single phrase if possible. Do not provide any explanation.\n\nQuestion: "
     "{input}\n\nAnswer:"},
    {"qasper", "qa_f1", 128, false, false,
     "You are given a scientific article and a question. Answer the question as concisely as you can, using "
     "a single phrase or sentence if possible. If the question cannot be answered based on the information "
     "in the article, write \"unanswerable\". If the question is a yes/no question, answer \"yes\", \"no\", "
     "or \"unanswerable\". Do not provide any explanation.\n\nArticle: {context}\n\n Answer the question "
     "based on the above article as concisely as you can, using a single phrase or sentence if possible. If "
     "the question cannot be answered based on the information in the article, write \"unanswerable\". If "
     "the question is a yes/no question, answer \"yes\", \"no\", or \"unanswerable\". Do not provide any "
     "explanation.\n\nQuestion: {input}\n\nAnswer:"},
    {"multifieldqa_en", "qa_f1", 64, false, false,
     "Read the following text and answer briefly.\n\n{context}\n\nNow, answer the following question based "
     "on the above text, only give me the answer and do not output any other words.\n\nQuestion: "
     "{input}\nAnswer:"},
    {"multifieldqa_zh", "qa_f1_zh", 64, false, false,
     "阅读以下文字并用中文简短回答：\n\n{context}"
     "\n\n现在请基于上面的文章回答下面的问题，只告诉我答案，不要输出任何其他字词。\n\n问题：{input}\n回答："},
    {"hotpotqa", "qa_f1", 32, false, false,
     "Answer the question based on the given passages. Only give me the answer and do not output any other "
     "words.\n\nThe following are given passages.\n{context}\n\nAnswer the question based on the given "
     "passages. Only give me the answer and do not output any other words.\n\nQuestion: {input}\nAnswer:"},
    {"2wikimqa", "qa_f1", 32, false, false,
     "Answer the question based on the given passages. Only give me the answer and do not output any other "
     "words.\n\nThe following are given passages.\n{context}\n\nAnswer the question based on the given "
     "passages. Only give me the answer and do not output any other words.\n\nQuestion: {input}\nAnswer:"},
    {"musique", "qa_f1", 32, false, false,
     "Answer the question based on the given passages. Only give me the answer and do not output any other "
     "words.\n\nThe following are given passages.\n{context}\n\nAnswer the question based on the given "
     "passages. Only give me the answer and do not output any other words.\n\nQuestion: {input}\nAnswer:"},
    {"dureader", "rouge_l_zh", 128, false, false,
     "请基于给定的文章回答下述问题。\n\n文章：{context}\n\n请基于上述文章回答下面的问题。\n\n问题：{input}"
     "\n回答："},
    {"gov_report", "rouge_l", 512, false, false,
     "You are given a report by a government agency. Write a one-page summary of the "
     "report.\n\nReport:\n{context}\n\nNow, write a one-page summary of the report.\n\nSummary:"},
    {"qmsum", "rouge_l", 512, false, false,
     "You are given a meeting transcript and a query containing a question or instruction. Answer the query "
     "in one or more sentences.\n\nTranscript:\n{context}\n\nNow, answer the query based on the above "
     "meeting transcript in one or more sentences.\n\nQuery: {input}\nAnswer:"},
    {"multi_news", "rouge_l", 512, false, false,
     "You are given several news passages. Write a one-page summary of all news. "
     "\n\nNews:\n{context}\n\nNow, write a one-page summary of all the news.\n\nSummary:"},
    {"vcsum", "rouge_l_zh", 512, false, false,
     "下面有一段会议记录，请你阅读后，写一段总结，总结会议的内容。\n会议记录：\n{context}\n\n会议总结："},
    {"trec", "classification", 64, true, true,
     "Please determine the type of the question below. Here are some examples of "
     "questions.\n\n{context}\n{input}"},
    {"triviaqa", "qa_f1", 32, true, true,
     "Answer the question based on the given passage. Only give me the answer and do not output any other "
     "words. The following are some examples.\n\n{context}\n\n{input}"},
    {"samsum", "rouge_l", 128, true, true,
     "Summarize the dialogue into a few short sentences. The following are some "
     "examples.\n\n{context}\n\n{input}"},
    {"lsht", "classification", 64, true, true,
     "请判断给定新闻的类别，下面是一些例子。\n\n{context}\n{input}"},
    {"passage_count", "count", 32, false, false,
     "There are some paragraphs below sourced from Wikipedia. Some of them may be duplicates. Please "
     "carefully read these paragraphs and determine how many unique paragraphs there are after removing "
     "duplicates. In other words, how many non-repeating paragraphs are there in "
     "total?\n\n{context}\n\nPlease enter the final count of unique paragraphs after removing duplicates. "
     "The output format should only contain the number, such as 1, 2, 3, and so on.\n\nThe final answer "
     "is: "},
    {"passage_retrieval_en", "retrieval", 32, false, false,
     "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which paragraph the "
     "abstract is from.\n\n{context}\n\nThe following is an abstract.\n\n{input}\n\nPlease enter the number "
     "of the paragraph that the abstract is from. The answer format must be like \"Paragraph 1\", "
     "\"Paragraph 2\", etc.\n\nThe answer is: "},
    {"passage_retrieval_zh", "retrieval", 32, false, false,
     "以下是若干段落文字，以及其中一个段落的摘要。请确定给定的摘要出自哪一段。\n\n{context}"
     "\n\n下面是一个摘要\n\n{input}"
     "\n\n请输入摘要所属段落的编号。答案格式必须是\"段落1\"，\"段落2\"等格式\n\n答案是："},
    {"lcc", "code_sim", 64, false, true,
     "Please complete the code given below. \n{context}Next line of code:\n"},
    {"repobench-p", "code_sim", 64, false, true,
     "Please complete the code given below. \n{context}{input}Next line of code:\n"},
};

std::vector<Sample> SamplesOf(const Dataset& dataset, const TaskRequest& request) {
  const std::string name(dataset.name);
  const std::string task = "longbench/" + name;
  const std::string path = FindDataFile(request, task, "data", {name + ".jsonl"});
  const int64_t room = request.length - dataset.max_tokens;
  if (room < 2)
    throw Error("{}: an answer takes {} tokens, too many for a length of {}", task, dataset.max_tokens,
                request.length);
  std::vector<Sample> samples;
  for (const DataRow& row : ReadRows(path)) {
    if (static_cast<int64_t>(samples.size()) == request.samples) break;
    const std::string context = row.Text("context");
    const std::string input = row.Text("input");
    Sample sample;
    sample.id = std::to_string(samples.size());
    // A token is kept for the start of the text.
    sample.prompt =
        CutMiddle(request, FillTemplate(dataset.prompt, {{"context", context}, {"input", input}}), room - 1);
    sample.metric = dataset.metric;
    sample.references = row.Texts("answers");
    if (row.Has("all_classes")) sample.classes = row.Texts("all_classes");
    sample.max_tokens = dataset.max_tokens;
    sample.first_line = dataset.first_line;
    sample.plain = dataset.plain;
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace

void AddLongBench(std::vector<TaskInfo>& tasks) {
  AddDatasets("longbench", "LongBench", kDatasets, SamplesOf, tasks);
}

}  // namespace coppice
