// SPTS's low-rank proxies of the FFNs and their file (format: file head of spts_proxy.cpp).
#pragma once

#include <cstdint>
#include <functional>
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

// f of one layer: the FFN with D of its channels and weights of rank r. Backends only read it, so threads
// with a backend each may share it.
class SptsProxy {
 public:
  // norms[i] = ||f(x_i)||_2 of row i of x [rows, d] fp32, the FFN's input before its norm. Depends only on
  // the row. Calls `pause` between tiles of rows, if it is set.
  void Score(const TensorView& x, Backend& be, std::span<float> norms,
             const std::function<void()>& pause = {}) const;

  // Without weights: a norm depends on the row's number and the seed alone. For dry runs.
  static SptsProxy OfSeed(uint64_t seed);

 private:
  friend class SptsFileReader;
  bool gated() const { return gate_in_.rows > 0; }
  Tensor norm_weight_;  // [1, d] fp32
  Tensor norm_bias_;    // [1, d] fp32; empty: an RMSNorm
  float norm_eps_ = 0;
  TensorView gate_in_;    // [r, d], in the file; empty: the FFN has no gate
  TensorView gate_out_;   // [D, r], in the file
  TensorView up_in_;      // [r, d], in the file
  TensorView up_out_;     // [D, r], in the file
  TensorView down_;       // [r, D], in the file
  Tensor gate_bias_;      // [1, D] fp32, or empty
  Tensor up_bias_;        // [1, D] fp32, or empty
  Tensor down_bias_;      // [1, r] fp32, or empty
  double down_rest_ = 0;  // length of the part of down's bias that no column of V reaches
  uint64_t seed_ = 0;     // above 0: no weights
};

// A validated file of proxies.
class SptsFile {
 public:
  // Throws Error, naming the file and the tensor or field, for a file that cannot be read, has a wrong
  // format, or does not fit the model.
  SptsFile(const std::string& path, const ModelShape& shape);
  // Random proxies for all layers, of no file. For dry runs.
  static std::shared_ptr<const SptsFile> OfNoFile(const ModelShape& shape);

  // The file has a proxy for each layer from this one to the last.
  int first_layer() const { return first_layer_; }
  // `layer` is at least first_layer() and below the model's layers.
  const SptsProxy& proxy(int layer) const;
  int64_t channels() const { return channels_; }  // D
  int64_t rank() const { return rank_; }          // r

 private:
  friend class SptsFileReader;
  SptsFile() = default;
  std::unique_ptr<const SideFile> storage_;
  int first_layer_ = 0;
  int64_t channels_ = 0;
  int64_t rank_ = 0;
  std::vector<SptsProxy> proxies_;
};

// The file, read and validated by the first call of the process and shared by the next ones, until its size
// or its time of change differs. Throws what the constructor throws.
std::shared_ptr<const SptsFile> OpenSptsFile(const std::string& path, const ModelShape& shape);

}  // namespace coppice
