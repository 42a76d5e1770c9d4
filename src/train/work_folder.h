// Where a training run keeps what it can go on from: marked texts, and its state. Every file appears whole or not at
// all, so a run that was killed at any point goes on from what is there. Names are hashes of what a file depends on:
// runs with other settings share the marked texts and disturb nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/frozen_model.h"
#include "train/sdtp_net.h"

namespace coppice {

// A marked text as it is kept: saliency of every token of the prompt, hidden states (in f16) of some of them.
struct StoredText {
  std::vector<int32_t> rows;                 // positions of the hidden states, ascending
  std::vector<std::vector<float>> hidden;    // [stages] [rows, d]
  std::vector<std::vector<float>> saliency;  // [stages] [prompt]

  // The rows' hidden states with their saliency.
  std::vector<StageTargets> Targets() const;
};

class WorkFolder {
 public:
  // Makes the folder where it is not there, removes what an interrupted write left, and locks it. Throws Error where
  // that fails or another process has it.
  explicit WorkFolder(const std::string& path);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  bool HasText(const std::string& key) const;
  // Keeps the hidden states of `rows`.
  void PutText(const std::string& key, const Marked& marked, std::span<const int32_t> rows, int64_t d) const;
  // Throws Error naming the file where it is not as PutText writes it.
  StoredText GetText(const std::string& key, int64_t stages, int64_t prompt, int64_t d) const;

  void PutRun(const std::string& key, const SdtpNet& net) const;
  // Puts the state of an interrupted run into `net`; false where there is none. Throws Error naming the file where it
  // does not fit.
  bool GetRun(const std::string& key, SdtpNet& net) const;

 private:
  std::string TextPath(const std::string& key) const { return path_ + "/text-" + key + ".safetensors"; }
  std::string RunPath(const std::string& key) const { return path_ + "/run-" + key + ".safetensors"; }

  std::string path_;
  int lock_ = -1;
};

}  // namespace coppice
