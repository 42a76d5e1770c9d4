// A training run of SDTP predictors for one model, from files to the side file (policies/sdtp_predictor.cpp).
//
// Two phases. Marking: one forward and one backward pass of the frozen model per text gives what enters each stage's
// layer and its tokens' saliency, kept on disk once. Learning: small networks follow the saliency by its value and its
// order, from what is kept, with no model; or, end to end, through the pruned model (end_to_end.h).
//
// Everything that is drawn at random is drawn from the seed and the place where it is used, so a run that goes on after an
// interruption ends with the same bits (on one thread; libtorch promises no more).
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
  std::string work;               // folder of what can be gone on from; empty: output + ".work"
  TextOptions texts;

  std::vector<int> layers;  // stages; empty: `stages` of them as the preset has it
  int stages = 10;
  double r = 0.9;
  int64_t first = 4;
  double local = 0.1;
  int64_t width = 0;  // of the networks; 0: a quarter of the model's hidden size

  bool end_to_end = false;
  MaskKind mask = MaskKind::kTopK;
  SdtpLossWeights losses;
  int epochs = 0;  // 0: 15, or 2 end to end
  int batch = 32;  // texts per step
  double learning_rate = 1e-3;
  double holdout = 0.1;  // share of the texts that is not learned from
  int64_t rows = 512;    // tokens of a text whose hidden states are kept
  uint64_t seed = 0;
  int threads = 0;          // 0: all usable cores
  int64_t save_every = 50;  // steps
};

// On held-out texts, means over them.
struct Agreement {
  double tau = 0;   // Kendall's tau-b of scores and saliency
  double rho = 0;   // Spearman's
  double kept = 0;  // share of all saliency that the r^s best by score hold
};

struct SdtpStageReport {
  int layer = 0;
  Agreement untrained, random, trained;
  double best_kept = 0;  // what a perfect order would hold
};

struct SdtpReport {
  TextCounts texts;
  int64_t learned_from = 0;
  int64_t held_out = 0;
  int64_t steps = 0;
  int64_t resumed_at = 0;  // step; 0: from the beginning
  SdtpLosses losses;       // mean of the last epoch's steps in this sitting
  std::vector<SdtpStageReport> stages;
  std::string base_model;  // as the side file names it
};

struct TrainingProgress {
  enum class Phase { kReading, kMarking, kLearning, kComparing };
  Phase phase;
  int64_t done = 0;
  int64_t total = 0;
  SdtpLosses losses;  // of the last step
  double learning_rate = 0;
};

// Throws Error naming the file or the option; Cancelled, after writing what the next run goes on from, once `cancelled`
// (may be null) is set.
SdtpReport TrainSdtp(const SdtpTraining& training,
                     const std::function<void(const TrainingProgress&)>& progress,
                     const std::atomic<bool>* cancelled);

// The step's learning rate: a warm-up over the first 3 %, then a cosine down to 0.
double LearningRate(double peak, int64_t step, int64_t steps);

}  // namespace coppice
