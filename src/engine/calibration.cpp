#include "engine/calibration.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/mmap.h"
#include "engine/calibration_files.h"
#include "engine/fingerprint.h"
#include "engine/reused_point.h"
#include "formats/json.h"
#include "formats/printable.h"
#include "policies/registry.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr size_t kMaxCalibrationBytes = size_t{1} << 20;
constexpr size_t kMaxCalibrationValues = 100'000;
constexpr size_t kMaxEntries = 1000;
constexpr size_t kMaxSpecBytes = 4096;
constexpr double kDefaultLoss = 0.01;
constexpr std::string_view kNoCalibration =
    "no calibration for this model: dense; `coppice tune -m MODEL` makes one";

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

CalibrationEntry ParseEntry(const Fields& fields, const std::string& source) {
  CalibrationEntry entry;
  entry.loss = fields.Number("loss", 0, 1);
  entry.length = fields.Whole("length", 1, kManyTokens);
  entry.min_tokens = fields.Whole("min_tokens", 1, entry.length);
  entry.max_tokens = fields.Whole("max_tokens", entry.length, 2 * kManyTokens);
  entry.setting = ParseSetting(fields, source);
  if (fields.Has("one_question")) entry.one_question = ParseSetting(fields.Object("one_question"), source);
  return entry;
}

// "3,072"
std::string Grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string PercentText(double share) { return fmt::format("{:g} %", std::round(1e4 * share) / 100); }

std::string RangeText(int64_t low, int64_t high) {
  return fmt::format("{} to {} tokens", Grouped(low), Grouped(high));
}

// The distance of the prompt's length from the entry's measured length: 2,000 and 8,000 are equally far from
// 4,000.
double Distance(const CalibrationEntry& entry, int64_t tokens) {
  return std::abs(std::log(static_cast<double>(entry.length) / static_cast<double>(tokens)));
}

// Null if no entry of at most this loss covers the prompt.
const CalibrationEntry* BestEntry(const Calibration& calibration, double loss, int64_t tokens) {
  constexpr double kRounding = 1e-9;
  const CalibrationEntry* best = nullptr;
  for (const CalibrationEntry& entry : calibration.entries) {
    if (entry.loss > loss + kRounding || tokens < entry.min_tokens || tokens > entry.max_tokens) continue;
    if (best == nullptr || Distance(entry, tokens) < Distance(*best, tokens) - kRounding ||
        (Distance(entry, tokens) < Distance(*best, tokens) + kRounding && entry.loss > best->loss))
      best = &entry;
  }
  return best;
}

// The file's name without its folder, because clients of a server read it.
std::string NameOf(const Calibration& calibration) {
  return std::filesystem::path(calibration.source).filename().string();
}

ResolvedPrune Chosen(const Calibration& calibration, const CalibrationEntry& entry, PromptStates states) {
  const bool one_question = states == PromptStates::kDiscarded && entry.one_question;
  const CalibratedSetting& setting = one_question ? *entry.one_question : entry.setting;
  const std::string about =
      fmt::format("calibration {}: {} loss, {}{}", NameOf(calibration), PercentText(entry.loss),
                  RangeText(entry.min_tokens, entry.max_tokens), one_question ? ", one question" : "");
  if (setting.prune == "none") return {"none", fmt::format("{}: dense, {}", about, setting.why)};
  const HeldOutScore& held = *setting.held_out;
  return {setting.prune, fmt::format("{}: held-out {:.1f} of dense {:.1f}, n={}", about, held.score,
                                     held.dense, held.samples)};
}

// Whether the setting that was measured is the one that `prune` gives now. Throws Error if a model of this
// shape cannot have it.
bool StillMeasured(const CalibratedSetting& setting, const CalibrationEntry& entry, const ModelShape& shape) {
  for (const int64_t tokens : {entry.min_tokens, entry.max_tokens}) SettingsOf(setting.prune, shape, tokens);
  return setting.settings.empty() || SettingsOf(setting.prune, shape, entry.length) == setting.settings;
}

// Why no entry of the calibration covers the prompt: by its allowed losses, or by its ranges of lengths.
std::string NotCovered(const Calibration& calibration, double loss, int64_t tokens) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  double smallest = 1;
  for (const CalibrationEntry& entry : calibration.entries) {
    smallest = std::min(smallest, entry.loss);
    if (entry.loss <= loss) ranges.emplace_back(entry.min_tokens, entry.max_tokens);
  }
  if (ranges.empty()) {
    return fmt::format("the calibration {} has no setting of at most {} loss, its smallest is {}: dense",
                       NameOf(calibration), PercentText(loss), PercentText(smallest));
  }
  std::sort(ranges.begin(), ranges.end());
  std::string list;
  for (size_t i = 0; i < ranges.size();) {
    auto [low, high] = ranges[i];  // merged with the ranges that overlap or touch it
    for (; i < ranges.size() && ranges[i].first <= high + 1; ++i) high = std::max(high, ranges[i].second);
    list += (list.empty() ? "" : " and ") + RangeText(low, high);
  }
  return fmt::format("the calibration {} covers {}, the prompt has {}: dense", NameOf(calibration), list,
                     Grouped(tokens));
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
        ParseEntry(Fields(entries[i], source, fmt::format("entries[{}]", i)), source));
  return calibration;
}

std::string SettingsOf(const std::string& prune, const ModelShape& shape, int64_t tokens) {
  return MakePolicy(prune, {.shape = shape, .tokens = tokens}, {}).spec;
}

int64_t ReusedLayers(const std::string& prune, const ModelShape& shape, int64_t tokens) {
  return ReusedPoint(prune, {.shape = shape, .tokens = tokens}).layer;
}

Calibration CheckedFor(const ModelShape& shape, Calibration calibration) {
  for (size_t i = 0; i < calibration.entries.size(); ++i) {
    CalibrationEntry& entry = calibration.entries[i];
    const char* field = "prune";
    try {
      if (!StillMeasured(entry.setting, entry, shape)) {
        entry.setting.why =
            fmt::format("defaults of {} have changed since: tune the model again", entry.setting.prune);
        entry.setting.prune = "none";
      }
      field = "one_question.prune";
      if (entry.one_question && !StillMeasured(*entry.one_question, entry, shape)) entry.one_question.reset();
    } catch (const Error& error) {
      throw Error("[calibration] {}: entries[{}].{}: {}", calibration.source, i, field, error.what());
    }
  }
  return calibration;
}

std::string CalibrationPathOf(const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::is_directory(model, ignored))
    return (std::filesystem::path(model) / "coppice.json").string();
  return model + ".coppice.json";
}

std::string FileKeyOf(std::string_view spec) {
  for (const MethodSpec& method : ParseSpec(spec)) {
    for (const MethodInfo& info : Methods()) {
      if (info.name != method.name) continue;
      for (const MethodKey& key : info.keys) {
        const auto given = method.values.find(key.name);
        if (key.names_file && given != method.values.end() && given->second != key.fallback)
          return fmt::format("{}:{}", info.name, key.name);
      }
    }
  }
  return "";
}

std::optional<double> AutoLoss(std::string_view spec) {
  const std::vector<MethodSpec> methods = ParseSpec(spec);
  const auto found =
      std::find_if(methods.begin(), methods.end(), [](const MethodSpec& m) { return m.name == "auto"; });
  if (found == methods.end()) return std::nullopt;
  if (methods.size() > 1)
    throw PruneError("{}: auto stands alone, because its calibration names the methods", spec);
  double share = kDefaultLoss;
  for (const auto& [key, value] : found->values) {
    if (key != "loss") throw PruneError("{}: unknown key '{}'; auto has loss", spec, key);
    std::string_view text = value;
    const bool percent = text.back() == '%';
    if (percent) text.remove_suffix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
    if (percent) share /= 100;
    if (error != std::errc() || end != text.data() + text.size() || !(share >= 0 && share <= 1))
      throw PruneError("{}: loss={} is neither a share like 5% nor a number from 0 to 1", spec, value);
  }
  return share;
}

ResolvedPrune ChooseSetting(const std::vector<Calibration>& calibrations, double loss, int64_t prompt_tokens,
                            PromptStates states) {
  for (const Calibration& calibration : calibrations) {
    if (const CalibrationEntry* entry = BestEntry(calibration, loss, prompt_tokens))
      return Chosen(calibration, *entry, states);
  }
  if (!calibrations.empty()) return {"none", NotCovered(calibrations.front(), loss, prompt_tokens)};
  return {"none", std::string(kNoCalibration)};
}

ResolvedPrune Calibrations::Resolve(std::string_view spec, int64_t prompt_tokens, PromptStates states) {
  const std::optional<double> loss = AutoLoss(spec);
  if (!loss) return {std::string(spec), ""};
  const std::lock_guard lock(mutex_);
  if (!loaded_) Load();
  loaded_ = true;
  if (usable_.empty() && !other_weights_.empty()) {
    return {"none",
            fmt::format("the calibration {} is of other weights: dense; `coppice tune -m MODEL` makes one",
                        other_weights_)};
  }
  return ChooseSetting(usable_, *loss, prompt_tokens, states);
}

// A damaged file beside the model is an error: the user who put it there expects it to be used.
void Calibrations::Load() {
  usable_.clear();
  other_weights_.clear();
  const std::string fingerprint = WeightsFingerprintOf(store_, config_);
  const std::string path = CalibrationPathOf(store_.path());
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    const MappedFile file(path);
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
    Calibration beside = ParseCalibration(text, path);
    if (beside.fingerprint != fingerprint) {
      other_weights_ = NameOf(beside);
    } else {
      usable_.push_back(CheckedFor(config_.shape, std::move(beside)));
    }
  }
  for (const EmbeddedFile& file : CalibrationFiles()) {
    Calibration shipped = ParseCalibration(file.content, fmt::format("{} (shipped)", file.name));
    if (shipped.fingerprint != fingerprint) continue;
    usable_.push_back(CheckedFor(config_.shape, std::move(shipped)));
  }
}

}  // namespace coppice
