// Shared by L-Eval's closed and open tasks: the order of its questions, and how a prompt is fitted to a
// length.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/data.h"
#include "eval/task.h"

namespace coppice {

struct LEvalPrompt {
  std::string head, tail;     // before and behind the document
  int64_t answer_tokens = 0;  // that the length must hold, too
  bool keep_end = false;      // of a document that is too long, else its beginning
};
// The prompt around the row's document, cut to request.length. Throws Error, naming the row and `question`,
// if there is no room for a document.
std::string FitLEvalPrompt(const LEvalPrompt& prompt, const TaskRequest& request, const DataRow& row,
                           size_t question);

// The rows of a data set. Throws Error, naming the row, where questions and answers differ in number, and
// MissingData. `folder` is below LEval-data.
std::vector<DataRow> ReadLEvalRows(const TaskRequest& request, const std::string& task,
                                   const std::string& folder);

// make(row, question) gives a sample. The first question of every document, then the second, and so on: a few
// samples cover many documents.
template <typename Make>
std::vector<Sample> LEvalSamples(const std::vector<DataRow>& rows, int64_t samples, const Make& make) {
  size_t most = 0;
  for (const DataRow& row : rows) most = std::max(most, row.List("instructions").size());
  std::vector<Sample> made;
  for (size_t question = 0; question < most; ++question) {
    for (size_t r = 0; r < rows.size() && std::ssize(made) < samples; ++r) {
      if (question >= rows[r].List("instructions").size()) continue;
      made.push_back(make(rows[r], question));
      made.back().id = std::to_string(r) + "/" + std::to_string(question);
    }
  }
  return made;
}

}  // namespace coppice
