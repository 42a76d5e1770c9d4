// Calibrations: which pruning setting was shown to keep the answers of a model, and how `--prune auto`
// chooses one.
//
// A calibration is a JSON file that `coppice tune` writes (docs/tune.md has its format). It belongs to one
// set of weights, by fingerprint, and holds entries: for a loss and a range of prompt lengths, the setting
// that was measured there. Every prompt that no entry covers runs densely.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_store.h"
#include "model/config.h"

namespace coppice {

// How a setting answered the samples that its search had not seen, in percent.
struct HeldOutScore {
  double score = 0;
  double dense = 0;
  int64_t samples = 0;
};

struct CalibrationEntry {
  double loss = 0;     // at most this share of the dense score
  int64_t length = 0;  // tokens that it was measured with
  int64_t min_tokens = 0;
  int64_t max_tokens = 0;
  std::string prune;     // "none" where no setting kept the answers and was faster
  std::string settings;  // `prune` with every key written out when it was measured; empty if not recorded
  std::string why;       // why it is "none"
  std::optional<HeldOutScore> held_out;  // set where `prune` is not "none"
};

struct Calibration {
  std::string source;       // the file, for messages
  std::string fingerprint;  // of the weights, see WeightsFingerprintOf
  std::vector<CalibrationEntry> entries;
};

inline constexpr std::string_view kCalibrationFormat = "coppice calibration";
inline constexpr int64_t kCalibrationVersion = 1;

// Checks everything that is used. Throws Error, naming `source` and the field, for what is missing, of
// another type or out of range, an unknown version, and a setting that names a file.
Calibration ParseCalibration(std::string_view text, const std::string& source);
// `prune` with every key written out, as this program runs it on a model of this shape. Throws Error.
std::string SettingsOf(const std::string& prune, const ModelShape& shape, int64_t tokens);
// Throws Error, naming the entry, for a setting that a model of this shape cannot have. An entry whose
// `settings` differ from what this program makes of `prune`, because defaults have changed, becomes "none":
// what would run is not what was measured.
Calibration CheckedFor(const ModelShape& shape, Calibration calibration);

// Where the calibration of a model lies: MODEL.gguf.coppice.json beside a file, coppice.json inside a folder.
std::string CalibrationPathOf(const std::string& model);

// The first key of a --prune spec that names a file of this machine, as "sdtp:file"; empty where none does.
// Throws Error for what is no spec.
std::string FileKeyOf(std::string_view spec);

// A spec as the engine runs it.
struct ResolvedPrune {
  std::string spec;
  std::string reason;  // of "auto": which entry was chosen, or why the run is dense; empty for other specs
};

// The loss that "auto" or "auto:loss=5%" allows; nullopt for a spec that is not auto. Throws Error if auto is
// joined with another method or has an unknown key.
std::optional<double> AutoLoss(std::string_view spec);

// The calibrations of one model: the file beside it first, then what the program carries
// (models/calibrations/). The files are read when "auto" is first asked for. Thread-safe. `store` and
// `config` must outlive it.
class Calibrations {
 public:
  Calibrations(const TensorStore& store, const ModelConfig& config) : store_(store), config_(config) {}
  Calibrations(const Calibrations&) = delete;
  Calibrations& operator=(const Calibrations&) = delete;

  // Specs other than auto are returned as they are. Throws Error for a calibration beside the model that
  // cannot be used.
  ResolvedPrune Resolve(std::string_view spec, int64_t prompt_tokens);

 private:
  void Load();

  const TensorStore& store_;
  const ModelConfig& config_;
  std::mutex mutex_;
  bool loaded_ = false;
  std::vector<Calibration> usable_;  // in the order in which they are asked
  std::string other_weights_;        // the file beside the model, where it was made for other weights
};

// What `calibrations` (in order, all of one model) say about a prompt.
ResolvedPrune ChooseSetting(const std::vector<Calibration>& calibrations, double loss, int64_t prompt_tokens);

}  // namespace coppice
