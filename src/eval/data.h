// Data files of the user: JSON lines, checked before use.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "eval/task.h"

namespace coppice {

// Thrown if no data folder has the file. A task requested through its group is then left out; a task
// requested by name fails.
class MissingData : public Error {
 public:
  using Error::Error;
};

// A line of a file of JSON objects. Accessors throw Error, naming file, line and field, if the field is
// absent or of another kind.
class DataRow {
 public:
  DataRow(nlohmann::json value, std::string source) : value_(std::move(value)), source_(std::move(source)) {}

  const std::string& source() const { return source_; }
  bool Has(const char* field) const;          // and it is not null
  std::vector<std::string> Fields() const;    // their names
  std::string Text(const char* field) const;  // numbers as they are written
  std::vector<std::string> Texts(const char* field) const;
  int64_t Whole(const char* field) const;               // false is 0, true 1
  DataRow Part(const char* field) const;                // an object
  const nlohmann::json& List(const char* field) const;  // an array

 private:
  const nlohmann::json& At(const char* field, bool right, const char* kind) const;

  nlohmann::json value_;
  std::string source_;  // "data/hotpotqa.jsonl line 3"
};

// The first of `names` that lies in a data folder, or in its folder `under`. Throws MissingData.
std::string FindDataFile(const TaskRequest& request, std::string_view task, std::string_view under,
                         const std::vector<std::string>& names);

// Throws Error, naming file and line, where the file cannot be read, is too large, or holds a line that is no
// object.
std::vector<DataRow> ReadRows(const std::string& path);
std::vector<std::string> ReadLines(const std::string& path);

// Adds a task "GROUP/NAME" for each of a benchmark's data sets, described by its metric only. Its samples are
// samples(dataset, request). `datasets` must outlive the tasks.
template <typename Datasets, typename Samples>
void AddDatasets(const std::string& group, const std::string& benchmark, const Datasets& datasets,
                 Samples samples, std::vector<TaskInfo>& tasks) {
  for (const auto& dataset : datasets) {
    tasks.push_back(
        {.name = group + "/" + std::string(dataset.name),
         .about = benchmark + ", " + std::string(dataset.metric),
         .length = TaskLength::kCut,
         .needs_data = true,
         .samples = [&dataset, samples](const TaskRequest& request) { return samples(dataset, request); }});
  }
}

// `text` with every {name} of the list replaced by its value; names within values are not replaced.
std::string FillTemplate(std::string_view text,
                         const std::vector<std::pair<std::string_view, std::string_view>>& values);

// Cuts a text of more than `limit` tokens as LongBench does: returns the decoded first and last limit / 2
// tokens.
std::string CutMiddle(const TaskRequest& request, const std::string& text, int64_t limit);

}  // namespace coppice
