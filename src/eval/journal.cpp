#include "eval/journal.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/new_file.h"
#include "formats/json.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

std::string KeyOf(const std::string& task, int64_t length, const std::string& id) {
  return fmt::format("{}\n{}\n{}", task, length, id);
}

std::string Line(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void CheckSettings(const std::string& path, const ordered_json& begun, const ordered_json& now) {
  for (const auto& [name, value] : now.items()) {
    const ordered_json before = begun.contains(name) ? begun[name] : ordered_json();
    if (before == value) continue;
    throw Error("[eval] {}: was begun with {} = {}, not {}: choose another folder with -o, or delete it",
                path, name, before.dump(), value.dump());
  }
  for (const auto& [name, value] : begun.items()) {
    if (!now.contains(name)) throw Error("[eval] {}: was begun with {} = {}", path, name, value.dump());
  }
}

SampleRecord RecordOf(const ordered_json& json, const std::string& path, int64_t line) {
  try {
    return RecordFromJson(json);
  } catch (const Error& error) {
    throw Error("[eval] {}: line {} {}", path, line, error.what());
  }
}

}  // namespace

RecordedRun ReadRecordedRun(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  RecordedRun run;
  std::string line;
  int64_t number = 0;
  while (std::getline(in, line)) {
    ++number;
    run.torn = in.eof();  // no line end behind it
    if (run.torn) break;
    ParseJson(line, fmt::format("{} line {}", path, number));  // bounded depth, no duplicate keys
    ordered_json record = ordered_json::parse(line);
    if (number == 1) {
      if (!record.is_object() || !record.contains("settings") || !record["settings"].is_object())
        throw Error("[eval] {}: is no record of a run", path);
      run.settings = std::move(record["settings"]);
    } else {
      run.records.push_back(RecordOf(record, path, number));
    }
    run.whole_lines += line + "\n";
  }
  if (in.bad() || run.settings.is_null())
    throw Error("[eval] {}: is no record of a run, or cannot be read; delete it to begin anew", path);
  return run;
}

Journal::Journal(const std::string& path, ordered_json settings, Writer writer)
    : path_(path), settings_(std::move(settings)), writer_(std::move(writer)) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) Resume(ReadRecordedRun(path));
}

void Journal::Resume(RecordedRun run) {
  if (run.records.empty()) return;  // nothing to mix with: the file is written anew
  CheckSettings(path_, run.settings, settings_);
  if (run.torn) {
    NewFile file(path_, "eval");
    file.Append(run.whole_lines);
    file.Commit();
  }
  for (SampleRecord& record : run.records) Remember(std::move(record));
  Open();
}

void Journal::Open() {
  out_.open(path_, std::ios::app | std::ios::binary);
  if (!out_) throw Error("[eval] {}: cannot open for writing: {}", path_, std::strerror(errno));
}

void Journal::Remember(SampleRecord record) {
  index_[KeyOf(record.task, record.length, record.id)] = records_.size();
  records_.push_back(std::move(record));
}

const SampleRecord* Journal::Find(const std::string& task, int64_t length, const std::string& id) const {
  const auto found = index_.find(KeyOf(task, length, id));
  return found == index_.end() ? nullptr : &records_[found->second];
}

void Journal::Append(SampleRecord record) {
  if (!out_.is_open()) {
    NewFile file(path_, "eval");
    file.Append(Line({{"settings", settings_}}));
    file.Commit();
    Open();
  }
  out_ << Line(writer_(record)) << std::flush;
  if (!out_) throw Error("[eval] {}: cannot write: {}", path_, std::strerror(errno));
  Remember(std::move(record));
}

}  // namespace coppice
