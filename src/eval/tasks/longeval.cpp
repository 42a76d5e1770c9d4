// LongEval's lines (https://github.com/DachengLi1/LongChat, longeval/): hundreds of lines like "line
// torpid-kid: REGISTER_CONTENT is <2416>", and a question for the number in one of them. The data have whole
// prompts: FOLDER/200_lines.jsonl.
//
// The answer begins as LongEval begins it for models without a chat form, and the last number of its first
// line counts.
#include <fmt/core.h>

#include "eval/data.h"
#include "eval/task.h"

namespace coppice {

namespace {

constexpr int64_t kAnswerTokens = 15;

std::vector<Sample> SamplesOf(int lines, const TaskRequest& request) {
  const std::string task = fmt::format("longeval/lines_{}", lines);
  const std::string path =
      FindDataFile(request, task, "lines/testcases",
                   {fmt::format("{}_lines.jsonl", lines), fmt::format("longeval_lines_{}.jsonl", lines)});
  std::vector<Sample> samples;
  for (const DataRow& row : ReadRows(path)) {
    if (static_cast<int64_t>(samples.size()) == request.samples) break;
    const nlohmann::json& place = row.List("random_idx");
    if (place.size() != 2 || !place[0].is_string() || !place[1].is_number())
      throw Error("[eval] {}: 'random_idx' is not a name and a number", row.source());
    Sample sample;
    sample.id = std::to_string(samples.size());
    sample.prompt = row.Text("prompt");
    sample.answer_prefix = fmt::format("Line <{}>: <REGISTER_CONTENT> is", place[0].get<std::string>());
    sample.metric = "last_number";
    sample.references = {row.Text("expected_number")};
    sample.max_tokens = kAnswerTokens;
    sample.first_line = true;
    sample.depth = place[1].get<double>() / lines;
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace

void AddLongEval(std::vector<TaskInfo>& tasks) {
  for (const int lines : {200, 300, 400, 500, 600, 680}) {
    tasks.push_back({.name = fmt::format("longeval/lines_{}", lines),
                     .about = fmt::format("the number in one of {} lines", lines),
                     .needs_data = true,
                     .samples = [lines](const TaskRequest& request) { return SamplesOf(lines, request); }});
  }
}

}  // namespace coppice
