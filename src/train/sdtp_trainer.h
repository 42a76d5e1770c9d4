// Trains SDTP predictors for one model, from input files to the side file
// (policies/methods/sdtp_predictor.cpp).
//
// There are two phases. Marking: one forward and one backward pass of the frozen model per text gives the
// input of each stage's layer and the saliency of its tokens; both are stored on disk once. Learning: small
// networks learn the value and the order of the saliency from the stored data, without the model, or end to
// end through the pruned model (end_to_end.h).
//
// All randomness derives from the seed and the place of its use, so a resumed run ends with the same bits as
// an uninterrupted one (on one thread; libtorch guarantees no more).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/end_to_end.h"
#include "train/texts.h"

namespace coppice {

struct SdtpTraining {
  std::string model;              // GGUF file or Hugging Face folder
  std::vector<std::string> data;  // files of texts
  std::string output;             // the side file
  std::string work;               // folder of the data to resume from; empty: output + ".work"
  TextOptions texts;

  std::vector<int> layers;  // stages; empty: `stages` of them, as in the preset
  int stages = SdtpPaperSetting().stages;
  double r = SdtpPaperSetting().r;
  int64_t first = SdtpPaperSetting().first;
  double local = SdtpPaperSetting().local;
  int64_t width = 0;  // of the networks' hidden layer; 0: a quarter of the model's hidden size

  bool end_to_end = false;
  MaskKind mask = MaskKind::kTopK;
  SdtpLossWeights losses;
  int epochs = 0;  // 0: the default, which is 15, or 2 with end_to_end
  int batch = 32;  // texts per step
  double learning_rate = 1e-3;
  double holdout = 0.1;  // share of the texts that are held out
  int64_t rows = 512;    // tokens per text whose hidden states are stored
  uint64_t seed = 0;
  int threads = 0;          // 0: all usable cores
  int64_t save_every = 50;  // steps
};

// Means over the held-out texts.
struct Agreement {
  double tau = 0;   // Kendall's tau-b between scores and saliency
  double rho = 0;   // Spearman's rho
  double kept = 0;  // share of all saliency in the r^s best tokens by score
};

struct SdtpStageReport {
  int layer = 0;
  Agreement untrained, random, trained;
  double best_kept = 0;  // the share of a perfect order
};

struct SdtpReport {
  TextCounts texts;
  int64_t learned_from = 0;
  int64_t held_out = 0;
  int64_t steps = 0;
  int64_t resumed_at = 0;  // step; 0: not resumed
  SdtpLosses losses;       // mean over the steps of the last epoch in this session
  std::vector<SdtpStageReport> stages;
  std::string base_model;  // as named in the side file
};

struct TrainingProgress {
  enum class Phase { kReading, kMarking, kLearning, kComparing };
  Phase phase;
  int64_t done = 0;
  int64_t total = 0;
  SdtpLosses losses;  // of the last step
  double learning_rate = 0;
};

// Throws Error, naming the file or the option. Once `cancelled` (may be null) is set, stores the state for
// the next run and throws Cancelled.
SdtpReport TrainSdtp(const SdtpTraining& training,
                     const std::function<void(const TrainingProgress&)>& progress,
                     const std::atomic<bool>* cancelled);

// The learning rate of a step: a warm-up over the first 3 % of the steps, then a cosine down to 0.
double LearningRate(double peak, int64_t step, int64_t steps);

}  // namespace coppice
