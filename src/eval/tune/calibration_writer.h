// Writes the results of `coppice tune` as the calibration file that the method `auto` reads
// (engine/calibration.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/engine.h"
#include "eval/tune/tune.h"

namespace coppice {

// Facts about a run beyond its options.
struct TuneRun {
  std::string model;    // the file or folder
  std::string version;  // of the program
  std::string date;     // "2026-03-31"
};

// The calibration of a run with `options`: an entry for each length and each budget on the score. A budget on
// KL alone gets no entry, because `auto` is asked for a loss of score. The entry of a search that ended
// before it found a setting is "unfinished": it says how far the search came.
nlohmann::ordered_json CalibrationJson(const TuneResult& result, const TuneOptions& options,
                                       const TuneRun& run, const Engine& engine);

// `made`, with the entries of `before`, a calibration of the same weights, for other losses and lengths. If
// both have an entry made from the same samples, methods that were not tuned again stay in it, and the faster
// setting is kept. An unfinished entry replaces none but unfinished ones.
nlohmann::ordered_json MergeCalibrations(const nlohmann::ordered_json& before, nlohmann::ordered_json made);

// Merges with the calibration at `path` if it is of the same weights, and replaces the file atomically.
// Throws Error, naming the file, if it cannot be written, or if it is no calibration.
void WriteCalibration(const std::string& path, nlohmann::ordered_json made);

// Readable JSON: objects and lists of plain values are on one line.
std::string ReadableJson(const nlohmann::ordered_json& json);

}  // namespace coppice
