// What "auto" decided for a prompt, as one of a few, so that decisions can be counted.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace coppice {

enum class AutoReason {
  kNotAsked,       // the request names its method
  kPruned,         // a calibrated setting prunes
  kDenseSetting,   // the calibration says that the prompt should be read densely
  kOtherPrompt,    // the setting was measured on another kind of prompt
  kNarrow,         // it was measured on too few kinds of question
  kLoss,           // the calibration has no setting of at most the allowed loss
  kLength,         // it covers no prompts of this length
  kNoCalibration,  // the model has none
  kOtherWeights,   // the one beside the model is of other weights
};
inline constexpr std::array<std::string_view, 9> kAutoReasons = {
    "not_asked", "pruned", "dense_setting",  "other_prompt", "narrow",
    "loss",      "length", "no_calibration", "other_weights"};
inline std::string_view NameOf(AutoReason reason) { return kAutoReasons[static_cast<size_t>(reason)]; }

}  // namespace coppice
