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
#include "policies/registry.h"

namespace coppice {

namespace {

constexpr double kDefaultLoss = 0.01;
constexpr std::string_view kNoCalibration =
    "no calibration for this model: dense; `coppice tune -m MODEL` makes one";

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

// Whether the entry's setting may run. A narrow entry says nothing about other kinds of question, so it runs
// only where the user named the tasks, and so the kinds.
bool IsBelieved(const CalibrationEntry& entry) {
  return !entry.narrow || entry.chosen_tasks || entry.setting.prune == "none";
}

// Null if no entry of at most this loss covers the prompt.
const CalibrationEntry* BestEntry(const Calibration& calibration, double loss, int64_t tokens,
                                  bool believed) {
  constexpr double kRounding = 1e-9;
  const CalibrationEntry* best = nullptr;
  for (const CalibrationEntry& entry : calibration.entries) {
    if (entry.loss > loss + kRounding || tokens < entry.min_tokens || tokens > entry.max_tokens) continue;
    if (IsBelieved(entry) != believed) continue;
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

// "measured on one fact among noise only"; empty if the file does not say.
std::string MeasuredOn(const CalibrationEntry& entry) {
  if (entry.kinds.empty()) return "";
  return fmt::format("measured on {}{}", WordsOf(entry.kinds), entry.narrow ? " only" : "");
}

std::string About(const Calibration& calibration, const CalibrationEntry& entry) {
  return fmt::format("calibration {}: {} loss, {}", NameOf(calibration), PercentText(entry.loss),
                     RangeText(entry.min_tokens, entry.max_tokens));
}

// Why a prompt of this form is not what the entry was measured on; empty if it is.
std::string WhyAnother(const CalibrationEntry& entry, PromptForm form) {
  const auto has = [&](QuestionKind kind) {
    return std::find(entry.kinds.begin(), entry.kinds.end(), kind) != entry.kinds.end();
  };
  if (entry.kinds.empty() || form == PromptForm::kQuestion) return "";
  if (form == PromptForm::kSummary)
    return has(QuestionKind::kSummary) ? "" : "the prompt asks for work on the whole text";
  return has(QuestionKind::kText) ? "" : "the prompt asks no question";
}

ResolvedPrune Chosen(const Calibration& calibration, const CalibrationEntry& entry, PromptStates states,
                     PromptForm form) {
  const std::string on = MeasuredOn(entry);
  if (const std::string why = WhyAnother(entry, form); !why.empty() && entry.setting.prune != "none")
    return {"none", fmt::format("{}: dense, {}, and the setting was {}", About(calibration, entry), why, on),
            AutoReason::kOtherPrompt};
  // Of few kinds the milder of the two settings.
  const bool one_question = states == PromptStates::kDiscarded && entry.one_question && !entry.narrow;
  const CalibratedSetting& setting = one_question ? *entry.one_question : entry.setting;
  const std::string about = About(calibration, entry) + (one_question ? ", one question" : "");
  if (setting.prune == "none")
    return {"none", fmt::format("{}: dense, {}", about, setting.why), AutoReason::kDenseSetting};
  const HeldOutScore& held = *setting.held_out;
  return {setting.prune,
          fmt::format("{}: held-out {:.1f} of dense {:.1f}, n={}{}{}", about, held.score, held.dense,
                      held.samples, on.empty() ? "" : ", ", on),
          AutoReason::kPruned};
}

// Whether the setting that was measured is the one that `prune` gives now. Throws Error if a model of this
// shape cannot have it.
bool StillMeasured(const CalibratedSetting& setting, const CalibrationEntry& entry, const ModelShape& shape) {
  for (const int64_t tokens : {entry.min_tokens, entry.max_tokens}) SettingsOf(setting.prune, shape, tokens);
  return setting.settings.empty() || SettingsOf(setting.prune, shape, entry.length) == setting.settings;
}

// No entry of the calibration covers the prompt: by its allowed losses, or by its ranges of lengths.
ResolvedPrune NotCovered(const Calibration& calibration, double loss, int64_t tokens) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  double smallest = 1;
  for (const CalibrationEntry& entry : calibration.entries) {
    smallest = std::min(smallest, entry.loss);
    if (entry.loss <= loss) ranges.emplace_back(entry.min_tokens, entry.max_tokens);
  }
  if (ranges.empty()) {
    return {"none",
            fmt::format("the calibration {} has no setting of at most {} loss, its smallest is {}: dense",
                        NameOf(calibration), PercentText(loss), PercentText(smallest)),
            AutoReason::kLoss};
  }
  std::sort(ranges.begin(), ranges.end());
  std::string list;
  for (size_t i = 0; i < ranges.size();) {
    auto [low, high] = ranges[i];  // merged with the ranges that overlap or touch it
    for (; i < ranges.size() && ranges[i].first <= high + 1; ++i) high = std::max(high, ranges[i].second);
    list += (list.empty() ? "" : " and ") + RangeText(low, high);
  }
  return {"none",
          fmt::format("the calibration {} covers {}, the prompt has {}: dense", NameOf(calibration), list,
                      Grouped(tokens)),
          AutoReason::kLength};
}

}  // namespace

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
                            PromptStates states, PromptForm form) {
  for (const Calibration& calibration : calibrations) {
    if (const CalibrationEntry* entry = BestEntry(calibration, loss, prompt_tokens, true))
      return Chosen(calibration, *entry, states, form);
  }
  for (const Calibration& calibration : calibrations) {
    if (const CalibrationEntry* entry = BestEntry(calibration, loss, prompt_tokens, false)) {
      return {"none",
              fmt::format("{}: dense, it was {}; `coppice tune -m MODEL` measures other kinds of question",
                          About(calibration, *entry), MeasuredOn(*entry)),
              AutoReason::kNarrow};
    }
  }
  if (!calibrations.empty()) return NotCovered(calibrations.front(), loss, prompt_tokens);
  return {"none", std::string(kNoCalibration), AutoReason::kNoCalibration};
}

ResolvedPrune Calibrations::Resolve(std::string_view spec, int64_t prompt_tokens, PromptStates states,
                                    const std::function<PromptForm()>& form) {
  const std::optional<double> loss = AutoLoss(spec);
  if (!loss) return {std::string(spec), ""};
  const std::lock_guard lock(mutex_);
  if (!loaded_) Load();
  loaded_ = true;
  if (usable_.empty() && !other_weights_.empty()) {
    return {"none",
            fmt::format("the calibration {} is of other weights: dense; `coppice tune -m MODEL` makes one",
                        other_weights_),
            AutoReason::kOtherWeights};
  }
  return ChooseSetting(usable_, *loss, prompt_tokens, states, form ? form() : PromptForm::kQuestion);
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
