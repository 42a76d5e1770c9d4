// SDTP's trained predictors and their file (format: file head of sdtp_predictor.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/model_shape.h"
#include "kernels/backend.h"
#include "policies/side_file.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace coppice {

// The paper's setting, which training and dry runs begin with.
struct SdtpPaperSetting {
  int stages = 10;
  double r = 0.9;      // r^(s+1) of the prompt stays at stage s, (0, 1]; 1 keeps everything
  int64_t first = 4;   // positions below this always stay
  double local = 0.1;  // share of the prompt, at its end, that always stays
};

// pi = W2 gelu(W1 LayerNorm(x) + b1) + b2, two numbers per row: for keeping it, and for dropping it.
class SdtpPredictor {
 public:
  // scores[i] = pi_0 - pi_1 of row i of x [rows, d] fp32: the log-odds of keeping it. Depends only on the
  // row.
  void Score(const TensorView& x, Backend& be, std::span<float> scores) const;

  // Without weights: a score depends on the row's number and the seed alone. For dry runs.
  static SdtpPredictor OfSeed(uint64_t seed);

 private:
  friend class SdtpFileReader;
  Tensor norm_weight_;     // [1, d] fp32
  Tensor norm_bias_;       // [1, d] fp32
  TensorView fc1_weight_;  // [h, d], in the file
  Tensor fc1_bias_;        // [1, h] fp32
  TensorView fc2_weight_;  // [2, h], in the file
  Tensor fc2_bias_;        // [1, 2] fp32
  uint64_t seed_ = 0;      // above 0: no weights
};

// A validated file of predictors.
class SdtpFile {
 public:
  // Throws Error, naming the file and the tensor or field, for a file that cannot be read, has a wrong
  // format, or does not fit the model.
  SdtpFile(const std::string& path, const ModelShape& shape);
  // The paper's setting with random predictors, of no file. For dry runs.
  static std::shared_ptr<const SdtpFile> OfNoFile(const ModelShape& shape);

  const std::vector<int>& layers() const { return layers_; }
  double r() const { return r_; }
  int64_t first() const { return first_; }
  double local() const { return local_; }
  // One for each of layers().
  const std::vector<SdtpPredictor>& predictors() const { return predictors_; }

 private:
  friend class SdtpFileReader;
  SdtpFile() = default;
  std::unique_ptr<const SideFile> storage_;
  std::vector<int> layers_;
  double r_ = 1;
  int64_t first_ = 0;
  double local_ = 0;
  std::vector<SdtpPredictor> predictors_;
};

// The file, read and validated by the first call of the process and shared by the next ones, until its size
// or its time of change differs. Throws what the constructor throws.
std::shared_ptr<const SdtpFile> OpenSdtpFile(const std::string& path, const ModelShape& shape);

}  // namespace coppice
