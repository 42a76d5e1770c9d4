// Reads a calibration file, which may come from anywhere: every field that is used is checked and bounded.
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "engine/calibration.h"
#include "formats/json.h"
#include "formats/printable.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr size_t kMaxCalibrationBytes = size_t{1} << 20;
constexpr size_t kMaxCalibrationValues = 100'000;
constexpr size_t kMaxEntries = 1000;
constexpr size_t kMaxSpecBytes = 4096;
constexpr size_t kMaxKinds = 32;
constexpr size_t kMaxTasks = 1000;

// The members of one object. Every message names the file and the path of the field.
class Fields {
 public:
  Fields(const json& object, const std::string& source, std::string path)
      : object_(object), source_(source), path_(std::move(path)) {
    if (!object.is_object()) throw Error("[calibration] {}: {} is no object", source_, Where());
  }

  std::string Text(const char* name, size_t most = 256) const {
    const json& value = At(name);
    if (!value.is_string() || value.get_ref<const std::string&>().size() > most)
      throw Error("[calibration] {}: {} is no text of up to {} bytes", source_, Where(name), most);
    return value;
  }
  // Returns `otherwise` if the field is missing.
  std::string Text(const char* name, size_t most, const char* otherwise) const {
    return Has(name) ? Text(name, most) : otherwise;
  }
  int64_t Whole(const char* name, int64_t low, int64_t high) const {
    const json& value = At(name);
    if (!value.is_number_integer() || value < low || value > high)
      throw Error("[calibration] {}: {} is no whole number from {} to {}", source_, Where(name), low, high);
    return value;
  }
  double Number(const char* name, double low, double high) const {
    const json& value = At(name);
    if (!value.is_number() || value < low || value > high)
      throw Error("[calibration] {}: {} is no number from {} to {}", source_, Where(name), low, high);
    return value;
  }
  // False if the field is missing.
  bool Flag(const char* name) const {
    if (!Has(name)) return false;
    const json& value = At(name);
    if (!value.is_boolean())
      throw Error("[calibration] {}: {} is neither true nor false", source_, Where(name));
    return value;
  }
  bool Has(const char* name) const { return object_.contains(name); }
  Fields Object(const char* name) const { return {At(name), source_, Where(name)}; }
  const json& List(const char* name, size_t most) const {
    const json& value = At(name);
    if (!value.is_array() || value.size() > most)
      throw Error("[calibration] {}: {} is no list of up to {} elements", source_, Where(name), most);
    return value;
  }
  std::string Where(std::string_view name = "") const {
    if (name.empty()) return path_.empty() ? "the file" : path_;
    return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
  }

 private:
  const json& At(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) throw Error("[calibration] {}: {} is missing", source_, Where(name));
    return *found;
  }

  const json& object_;
  const std::string& source_;
  std::string path_;
};

CalibratedSetting ParseSetting(const Fields& fields, const std::string& source) {
  CalibratedSetting setting;
  setting.prune = fields.Text("prune", kMaxSpecBytes);
  if (setting.prune == "none") {
    setting.why = Printable(fields.Text("why", kMaxSpecBytes), kMaxSpecBytes);  // commands print it
    return setting;
  }
  try {
    if (AutoLoss(setting.prune)) throw Error("a setting cannot be auto");
    const std::string key = FileKeyOf(setting.prune);
    if (!key.empty()) throw Error("{} names a file, which a calibration may not", key);
  } catch (const Error& error) {
    throw Error("[calibration] {}: {}: {}", source, fields.Where("prune"), error.what());
  }
  setting.settings = fields.Text("settings", kMaxSpecBytes, "");
  const Fields held = fields.Object("held_out");
  setting.held_out = {.score = held.Number("score", 0, 100),
                      .dense = held.Number("dense", 0, 100),
                      .samples = held.Whole("n", 1, kManyTokens)};
  return setting;
}

std::vector<QuestionKind> ParseKinds(const Fields& fields, const char* name, const std::string& source) {
  std::vector<QuestionKind> kinds;
  if (!fields.Has(name)) return kinds;
  const json& list = fields.List(name, kMaxKinds);
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string())
      throw Error("[calibration] {}: {}[{}] is no text", source, fields.Where(name), i);
    // A later version may know more kinds.
    kinds.push_back(KindNamed(list[i].get_ref<const std::string&>()).value_or(QuestionKind::kOther));
  }
  return kinds;
}

// Files of earlier versions name the tasks alone, in a part that this program otherwise does not read: what
// is odd there is skipped.
void ReadTasks(const json& entry, CalibrationEntry& read) {
  const auto made = entry.find("made");
  if (made == entry.end() || !made->is_object()) return;
  const auto tasks = made->find("tasks");
  if (tasks == made->end() || !tasks->is_array() || tasks->size() > kMaxTasks) return;
  for (const json& task : *tasks) {
    if (!task.is_object() || !task.contains("task") || !task["task"].is_string()) continue;
    const bool used = task.contains("used") && task["used"] == true;
    const QuestionKind kind = KindOfTask(task["task"].get_ref<const std::string&>(), false);
    std::vector<QuestionKind>& kinds = used ? read.kinds : read.unable;
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
}

void ParseTasks(const json& object, const Fields& fields, const std::string& source,
                CalibrationEntry& entry) {
  entry.kinds = ParseKinds(fields, "kinds", source);
  entry.unable = ParseKinds(fields, "unable", source);
  entry.chosen_tasks = fields.Flag("chosen_tasks");
  if (!fields.Has("kinds")) ReadTasks(object, entry);
  std::vector<QuestionKind> tried = entry.kinds;
  tried.insert(tried.end(), entry.unable.begin(), entry.unable.end());
  entry.narrow = !entry.kinds.empty() && IsNarrow(tried);
}

CalibrationEntry ParseEntry(const json& object, const Fields& fields, const std::string& source) {
  CalibrationEntry entry;
  ParseTasks(object, fields, source, entry);
  entry.loss = fields.Number("loss", 0, 1);
  entry.length = fields.Whole("length", 1, kManyTokens);
  entry.min_tokens = fields.Whole("min_tokens", 1, entry.length);
  entry.max_tokens = fields.Whole("max_tokens", entry.length, 2 * kManyTokens);
  entry.setting = ParseSetting(fields, source);
  if (fields.Has("one_question")) entry.one_question = ParseSetting(fields.Object("one_question"), source);
  return entry;
}

}  // namespace

Calibration ParseCalibration(std::string_view text, const std::string& source) {
  if (text.size() > kMaxCalibrationBytes)
    throw Error("[calibration] {}: {} bytes, the limit is {}", source, text.size(), kMaxCalibrationBytes);
  const json root = ParseJson(text, source, kMaxCalibrationValues);
  const Fields fields(root, source, "");
  if (fields.Text("format") != kCalibrationFormat)
    throw Error("[calibration] {}: format is not \"{}\"", source, kCalibrationFormat);
  const int64_t version = fields.Whole("version", 0, INT32_MAX);
  if (version != kCalibrationVersion) {
    throw Error("[calibration] {}: version is {}, this program reads {}: tune the model again", source,
                version, kCalibrationVersion);
  }
  Calibration calibration{source, fields.Object("model").Text("fingerprint"), {}};
  const json& entries = fields.List("entries", kMaxEntries);
  if (entries.empty()) throw Error("[calibration] {}: entries is empty", source);
  for (size_t i = 0; i < entries.size(); ++i)
    calibration.entries.push_back(
        ParseEntry(entries[i], Fields(entries[i], source, fmt::format("entries[{}]", i)), source));
  return calibration;
}

}  // namespace coppice
