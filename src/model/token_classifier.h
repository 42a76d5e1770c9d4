// An encoder that gives each token of a text the probabilities of some classes: BERT and XLM-RoBERTa with a
// linear head (Hugging Face's BertForTokenClassification and XLMRobertaForTokenClassification).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/hf_folder.h"
#include "kernels/backend.h"
#include "model/run_control.h"

namespace coppice {

struct EncoderConfig {
  bool roberta = false;  // positions begin behind the padding's; tensors have other names
  int layers = 0;
  int heads = 0;
  int64_t hidden = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;
  int64_t positions = 0;       // rows of the table of positions
  int64_t first_position = 0;  // of a text's first token
  int64_t classes = 2;
  float eps = 1e-12f;

  int64_t longest() const { return positions - first_position; }  // tokens of a text, those around it too
};

// From config.json. Throws Error, naming `source`, for other models and for sizes that do not fit.
EncoderConfig EncoderConfigFrom(const nlohmann::json& config, const std::string& source);

class TokenClassifier {
 public:
  // `folder` stays open. Throws Error, naming it and the tensor, where one is missing or has another shape.
  explicit TokenClassifier(std::shared_ptr<const HfFolder> folder);

  const EncoderConfig& config() const { return config_; }

  struct Classes {
    std::vector<std::vector<float>> probability;  // of class 1: [texts][tokens]
    double flops = 0;
  };
  // Texts of token ids, each up to config().longest(). Layer by layer over all texts, so that a layer's
  // weights are packed once; every token of a text sees all of that text. control.progress gets the layers
  // done. Throws Error if the heads do not fill the blocks of the backend's type of keys and values, and
  // Cancelled.
  Classes Classify(std::span<const std::vector<int32_t>> texts, const RunControl& control, Backend& be) const;

 private:
  struct Norm {
    TensorView weight, bias;  // [1, hidden] fp32
  };
  struct Linear {
    TensorView weight;  // [outputs, inputs]
    TensorView bias;    // [1, outputs] fp32
  };
  struct Block {
    Linear query, key, value, output, up, down;
    Norm attention_norm, ffn_norm;
  };
  class Loader;
  class Pass;

  std::shared_ptr<const HfFolder> folder_;
  EncoderConfig config_;
  std::vector<Tensor> owned_;  // vectors that the file does not store in fp32
  TensorView words_;           // [vocab, hidden]
  TensorView places_;          // [positions, hidden]
  TensorView types_;           // [types, hidden]
  Norm embedding_norm_;
  std::vector<Block> blocks_;
  Linear head_;
};

}  // namespace coppice
