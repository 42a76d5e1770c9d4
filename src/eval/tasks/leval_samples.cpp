#include "eval/tasks/leval_samples.h"

#include <span>

#include "base/error.h"

namespace coppice {

std::string FitLEvalPrompt(const LEvalPrompt& prompt, const TaskRequest& request, const DataRow& row,
                           size_t question) {
  constexpr int64_t kSeams = 2;  // tokens that may be cut in another way where the parts meet
  const int64_t room =
      request.length - prompt.answer_tokens - CountTokens(request, prompt.head + prompt.tail) - kSeams;
  if (room < 1)
    throw Error("{}: question {} alone fills the length of {} tokens", row.source(), question,
                request.length);
  const std::string document = row.Text("input");
  const std::vector<int32_t> ids =
      request.tokenizer->Encode(document, {.add_special = false, .parse_special = false});
  if (std::ssize(ids) <= room) return prompt.head + document + prompt.tail;
  const auto most = static_cast<size_t>(room);
  const std::span<const int32_t> kept =
      prompt.keep_end ? std::span(ids).last(most) : std::span(ids).first(most);
  return prompt.head + request.tokenizer->Decode(kept) + prompt.tail;
}

std::vector<DataRow> ReadLEvalRows(const TaskRequest& request, const std::string& task,
                                   const std::string& folder) {
  const std::string name = task.substr(task.find('/') + 1);
  std::vector<DataRow> rows = ReadRows(
      FindDataFile(request, task, "LEval-data/" + folder, {name + ".jsonl", "leval_" + name + ".jsonl"}));
  for (const DataRow& row : rows) {
    const size_t count = row.List("instructions").size();
    if (count != row.List("outputs").size())
      throw Error("[eval] {}: {} instructions, {} outputs", row.source(), count, row.List("outputs").size());
  }
  return rows;
}

}  // namespace coppice
