// Calibrations: which pruning settings were measured to preserve a model's answers, and how `--prune auto`
// chooses one of them.
//
// A calibration is a JSON file that `coppice tune` writes (docs/tune.md has its format). It names one set of
// weights by their fingerprint. Each of its entries gives a measured setting for one loss and one range of
// prompt lengths, and the kinds of question that it was measured on. A prompt that no entry covers runs
// densely: by its length, or because it asks for a summary or no question. So does one whose entry was
// measured on few kinds, unless the user chose these.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/auto_reason.h"
#include "engine/prompt_form.h"
#include "engine/question_kinds.h"
#include "formats/tensor_store.h"
#include "model/config.h"

namespace coppice {

// The score of a setting on samples that its search did not use, in percent.
struct HeldOutScore {
  double score = 0;
  double dense = 0;
  int64_t samples = 0;
};

struct CalibratedSetting {
  std::string prune;     // "none" if no setting preserved the answers and was faster
  std::string settings;  // `prune` with every key written out when it was measured; empty if not recorded
  std::string why;       // why `prune` is "none"
  std::optional<HeldOutScore> held_out;  // set if `prune` is not "none"
};

struct CalibrationEntry {
  // Measured, and not measured because dense could not answer them; both empty if the file does not say.
  std::vector<QuestionKind> kinds;
  std::vector<QuestionKind> unable;
  bool chosen_tasks = false;  // the user named the tasks that it was measured on
  bool narrow = false;        // few kinds (question_kinds.h)
  double loss = 0;            // allowed loss, as a share of the dense score
  int64_t length = 0;         // number of prompt tokens in the measurement
  int64_t min_tokens = 0;
  int64_t max_tokens = 0;
  CalibratedSetting setting;
  // A faster setting that acts from the first layer on, as sparse attention does. It leaves no states that
  // would make a second question about the prompt cheaper.
  std::optional<CalibratedSetting> one_question;
};

// Whether a document cache keeps the prompt's states for later questions.
enum class PromptStates { kKept, kDiscarded };

struct Calibration {
  std::string source;       // the file, for messages
  std::string fingerprint;  // of the weights, see WeightsFingerprintOf
  std::vector<CalibrationEntry> entries;
};

inline constexpr std::string_view kCalibrationFormat = "coppice calibration";
inline constexpr int64_t kCalibrationVersion = 1;

// Checks every field that it uses. Throws Error, naming `source` and the field, if a field is missing, has
// another type or is out of range, if the version is unknown, or if a setting names a file.
Calibration ParseCalibration(std::string_view text, const std::string& source);
// Returns `prune` with every key written out, as this program runs it on a model of this shape. Throws Error.
std::string SettingsOf(const std::string& prune, const ModelShape& shape, int64_t tokens);
// Returns the number of layers whose states of a prompt's beginning a second question can reuse, because
// `prune` acts behind these layers only (model/prefix.h). Throws Error.
int64_t ReusedLayers(const std::string& prune, const ModelShape& shape, int64_t tokens);
// Throws Error, naming the entry, if a setting is invalid for a model of this shape. A setting whose
// `settings` differ from those that `prune` gives now was not measured, because defaults have changed: the
// entry's setting becomes "none", and a setting for one question is dropped.
Calibration CheckedFor(const ModelShape& shape, Calibration calibration);

// The path of a model's calibration: MODEL.gguf.coppice.json beside a file, coppice.json inside a folder.
std::string CalibrationPathOf(const std::string& model);

// The first key of a --prune spec that names a file of this machine, as "sdtp:file"; empty if no key does.
// Throws Error if `spec` is not a valid spec.
std::string FileKeyOf(std::string_view spec);

// A spec as the engine runs it.
struct ResolvedPrune {
  std::string spec;
  std::string reason;  // of "auto": which entry was chosen, or why the run is dense; empty for other specs
  AutoReason cause = AutoReason::kNotAsked;  // the same, as one of a few
};

// The loss that "auto" or "auto:loss=5%" allows; nullopt for a spec that is not auto. Throws Error if auto is
// joined with another method or has an unknown key.
std::optional<double> AutoLoss(std::string_view spec);

// The calibrations of one model: first the file beside the model, then those built into the program
// (models/calibrations/). The first call of Resolve with "auto" reads them. Thread-safe. `store` and `config`
// must outlive the object.
class Calibrations {
 public:
  Calibrations(const TensorStore& store, const ModelConfig& config) : store_(store), config_(config) {}
  Calibrations(const Calibrations&) = delete;
  Calibrations& operator=(const Calibrations&) = delete;

  // Returns specs other than auto unchanged. `form` is asked for auto only; empty: a question. Throws Error
  // if the calibration beside the model cannot be used.
  ResolvedPrune Resolve(std::string_view spec, int64_t prompt_tokens, PromptStates states,
                        const std::function<PromptForm()>& form = {});

 private:
  void Load();

  const TensorStore& store_;
  const ModelConfig& config_;
  std::mutex mutex_;
  bool loaded_ = false;
  std::vector<Calibration> usable_;  // in order of preference
  std::string other_weights_;        // the file beside the model, if its fingerprint is of other weights
};

// The setting for a prompt, from the first of `calibrations` (all of one model) that covers it; "none" if no
// calibration does.
ResolvedPrune ChooseSetting(const std::vector<Calibration>& calibrations, double loss, int64_t prompt_tokens,
                            PromptStates states, PromptForm form = PromptForm::kQuestion);

}  // namespace coppice
