// What `coppice tune` found, as the calibration file that `--prune auto` reads (engine/calibration.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"
#include "eval/tune/tune.h"

namespace coppice {

// How a run was made, beside what its options say.
struct TuneRun {
  std::string model;    // the file or folder
  std::string version;  // of the program
  std::string date;     // "2026-03-31"
};

// Of a run whose options were `options`. Entries stand for each budget on the score and each length; a KL
// budget alone has no loss that `auto` could be asked for, and gets none. Nor does a search that ended
// without a setting because of its time limit: another run may find one.
nlohmann::ordered_json CalibrationJson(const TuneResult& result, const TuneOptions& options,
                                       const TuneRun& run, const Engine& engine);

// `made` with what `before`, a calibration of the same weights, has for other losses and lengths. Where both
// have an entry made from the same samples, methods that were not tuned again stay in it, and so does its
// setting where it is the faster one.
nlohmann::ordered_json MergeCalibrations(const nlohmann::ordered_json& before, nlohmann::ordered_json made);

// Merges with the calibration that `path` holds, if it is one of the same weights, and replaces the file
// whole or not at all. Throws Error, naming the file, where it cannot be written, and where it holds
// something else than a calibration.
void WriteCalibration(const std::string& path, nlohmann::ordered_json made);

// JSON for people: objects and lists of plain values stand on one line.
std::string ReadableJson(const nlohmann::ordered_json& json);

}  // namespace coppice
