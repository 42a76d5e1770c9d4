// The samples that are done, in a file that grows by a line for each sample, so that an interrupted run can
// resume.
#pragma once

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/results.h"

namespace coppice {

// What a file of samples holds.
struct RecordedRun {
  nlohmann::ordered_json settings;
  std::vector<SampleRecord> records;  // in the order in which they were done
  std::string whole_lines;            // the file without a last line that was cut off
  bool torn = false;                  // the last line was cut off
};
// Throws Error, naming the file, where it cannot be read or holds anything else.
RecordedRun ReadRecordedRun(const std::string& path);

class Journal {
 public:
  // How a record is written.
  using Writer = std::function<nlohmann::ordered_json(const SampleRecord& record)>;

  // Reads `path` if it exists, and drops a last line that was cut off. The file is made with the first record
  // and has `settings` in its first line. Throws Error, naming the file, where it cannot be read, where a
  // line is no record, or where its records were made with other settings: their name and both values.
  Journal(
      const std::string& path, nlohmann::ordered_json settings,
      Writer writer = [](const SampleRecord& record) { return ToJson(record); });

  // Null where the sample is not done yet.
  const SampleRecord* Find(const std::string& task, int64_t length, const std::string& id) const;
  // Writes the record and flushes the file. Throws Error, naming the file.
  void Append(SampleRecord record);

  const std::vector<SampleRecord>& records() const { return records_; }

 private:
  void Resume(RecordedRun run);
  void Open();
  void Remember(SampleRecord record);

  std::string path_;
  nlohmann::ordered_json settings_;
  Writer writer_;
  std::ofstream out_;
  std::vector<SampleRecord> records_;  // in the order in which they were done
  std::map<std::string, size_t> index_;
};

}  // namespace coppice
