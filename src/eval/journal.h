// The samples that are done, in a file that grows by a line for each, so that an interrupted run goes on.
#pragma once

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coppice {

// What a file of samples holds.
struct RecordedRun {
  nlohmann::ordered_json settings;
  std::vector<nlohmann::ordered_json> records;  // in the order in which they were done
  std::string whole_lines;  // the file as it is, but for a last line that was not written whole
  bool torn = false;        // there was such a line
};
// Throws Error, naming the file, where it cannot be read or holds anything else.
RecordedRun ReadRecordedRun(const std::string& path);

class Journal {
 public:
  // Reads `path` where it is there, and drops a last line that was not written whole. It is made with the first record,
  // `settings` in its first line. Throws Error, naming the file, where it cannot be read, where a line is no record, and
  // where its records were made with other settings: their name and both values.
  Journal(const std::string& path, nlohmann::ordered_json settings);

  // {"task", "length", "id", "prompt", "depth", "arms": [what RunSample returns]}; null where it is not done yet.
  const nlohmann::ordered_json* Find(const std::string& task, int64_t length, const std::string& id) const;
  // Writes the record through to the system. Throws Error, naming the file.
  void Append(nlohmann::ordered_json record);

  const std::vector<nlohmann::ordered_json>& records() const { return records_; }

 private:
  void GoOn(RecordedRun run);
  void Open();
  void Remember(nlohmann::ordered_json record);

  std::string path_;
  nlohmann::ordered_json settings_;
  std::ofstream out_;
  std::vector<nlohmann::ordered_json> records_;  // in the order in which they were done
  std::map<std::string, size_t> index_;
};

}  // namespace coppice
