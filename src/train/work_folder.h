// The folder in which a training run stores marked texts and its state. Every file appears complete or not at
// all, so a killed run can resume from the files that exist. File names are hashes of all inputs of a file:
// runs with other settings share the marked texts and do not interfere.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/frozen_model.h"
#include "train/sdtp_net.h"

namespace coppice {

// A marked text as stored: the saliency of every prompt token, and the hidden states (in f16) of some tokens.
struct StoredText {
  std::vector<int32_t> rows;                 // positions of the hidden states, ascending
  std::vector<std::vector<float>> hidden;    // [stages] [rows, d]
  std::vector<std::vector<float>> saliency;  // [stages] [prompt]

  // The hidden states of `rows` with their saliency.
  std::vector<StageTargets> Targets() const;
};

class WorkFolder {
 public:
  // Creates the folder if necessary, locks it, and removes the leftovers of interrupted writes. Throws Error
  // if that fails or another process holds the lock.
  explicit WorkFolder(const std::string& path);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  bool HasText(const std::string& key) const;
  // Stores the saliency of all tokens and the hidden states of `rows`.
  void PutText(const std::string& key, const Marked& marked, std::span<const int32_t> rows, int64_t d) const;
  // Throws Error, naming the file, if its contents are not those of PutText.
  StoredText GetText(const std::string& key, int64_t stages, int64_t prompt, int64_t d) const;

  void PutRun(const std::string& key, const SdtpNet& net) const;
  // Restores the state of an interrupted run into `net`. Returns false if there is none. Throws Error, naming
  // the file, if the state does not fit.
  bool GetRun(const std::string& key, SdtpNet& net) const;

 private:
  std::string TextPath(const std::string& key) const { return path_ + "/text-" + key + ".safetensors"; }
  std::string RunPath(const std::string& key) const { return path_ + "/run-" + key + ".safetensors"; }

  std::string path_;
  int lock_ = -1;
};

}  // namespace coppice
