// What `coppice doctor` says of a model on this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/cli/doctor_report.h"
#include "engine/open_model.h"
#include "kernels/backend.h"
#include "model/weights.h"

namespace coppice::cli {

struct DoctorModel {
  // Throws Error, naming the file.
  explicit DoctorModel(const std::string& path);

  std::string path;
  OpenedModel opened;
  std::shared_ptr<const Weights> weights;
};

// What the model is, whether it fits, and its calibration.
std::vector<Finding> ModelFindings(const DoctorModel& model, int64_t usable_bytes);

// When its first token and further ones are to be expected, from rates that this measures with `backend` and
// from `read_rate`, the memory's bytes a second.
std::vector<Finding> ExpectedFindings(const DoctorModel& model, Backend& backend, double read_rate);

}  // namespace coppice::cli
