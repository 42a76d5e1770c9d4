#include "model/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "model/weights.h"
#include "test_files.h"

namespace coppice {
namespace {

// A name must always give the same weights: recorded times and checksums depend on them.
TEST(Synthetic, AnElementFollowsFromItsNameAndPlace) {
  std::vector<float> values(2 * 8);
  const ThreadPool pool(2);
  FillSynthetic({"blk.0.attn_q.weight", {2, 8}, DType::kF32}, std::as_writable_bytes(std::span(values)),
                pool);
  EXPECT_EQ(values.front(), -0.154658452f);
  EXPECT_EQ(values[1], 0.0920654684f);
  EXPECT_EQ(values.back(), 0.548132181f);
}

// A file of a shape says what the shape is: the reader finds the same sizes, windows, ropes and norms.
TEST(Synthetic, AFileReadsAsItsShape) {
  for (const char* name :
       {"llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "qwen3-4b", "qwen3-30b-a3b", "qwen3.5-4b",
        "qwen3.6-35b-a3b", "gpt-oss-20b", "smollm3-3b", "bloom-7b", "muse-glimmer-30b"}) {
    SyntheticModel model = ParseShape(std::string(name) + ":f32");
    ModelShape& shape = model.config.shape;
    shape.hidden = 64;
    shape.vocab = 300;
    shape.layers.resize(5);
    for (LayerShape& layer : shape.layers) {
      if (layer.mixture.experts == 0) layer.ffn = 32;
      if (layer.mixture.experts > 0) {
        const bool shared = layer.mixture.shared_width > 0;
        layer.mixture = {
            .experts = 4, .used = 3, .width = 48, .shared_width = shared ? 24 : 0, .shared_gate = shared};
      }
      if (!layer.attends()) continue;
      const bool bloom = shape.architecture == "bloom";
      layer.heads = bloom ? 2 : 4;
      layer.head_dim = bloom || !model.config.head_norms ? 64 / layer.heads : layer.head_dim;
      layer.kv_heads = 2;
    }
    for (RopeConfig& rope : model.config.ropes)
      rope.dims = std::min(rope.dims, shape.FirstAttending().head_dim);
    const TempFolder folder;
    const std::string path = folder.path() + "/model.gguf";
    WriteSyntheticGguf(model, path, nullptr);
    const std::shared_ptr<const GgufFile> file = GgufFile::Open(path);
    ModelConfig read = ConfigFromGguf(file->metadata());
    Weights::Load(file, read);
    for (RopeConfig& rope : read.ropes)  // of scaled ropes
      if (rope.scaling == RopeConfig::Scaling::kNone) rope.original_context = 0;
    EXPECT_EQ(read.shape.layers, shape.layers) << name;
    EXPECT_EQ(read.ropes, model.config.ropes) << name;
    EXPECT_EQ(read.head_norms, model.config.head_norms) << name;
    EXPECT_EQ(read.sinks, model.config.sinks) << name;
    EXPECT_EQ(read.embedding_norm, model.config.embedding_norm) << name;
    EXPECT_EQ(read.post_norm_eps, model.config.post_norm_eps) << name;
    EXPECT_EQ(static_cast<float>(read.logit_scale), static_cast<float>(model.config.logit_scale)) << name;
    EXPECT_EQ(read.logit_cap, model.config.logit_cap) << name;
    EXPECT_EQ(read.ffn, model.config.ffn) << name;
    EXPECT_EQ(read.router.kind, model.config.router.kind) << name;
    EXPECT_EQ(read.tied_head, model.config.tied_head) << name;
    EXPECT_FLOAT_EQ(static_cast<float>(read.norm_eps), static_cast<float>(model.config.norm_eps)) << name;
  }
}

TEST(Synthetic, OnlyExpertsAreInMxfp4) {
  const SyntheticModel model = ParseShape("gpt-oss-20b/1:mxfp4");
  int experts = 0;
  for (const SyntheticModel::TensorPlan& plan : model.Tensors()) {
    const bool of_expert = plan.name.ends_with("_exps.weight");
    experts += of_expert;
    if (plan.type != DType::kF32) EXPECT_EQ(plan.type, of_expert ? DType::kMXFP4 : DType::kQ8_0) << plan.name;
  }
  EXPECT_EQ(experts, 3);
}

TEST(Synthetic, FewerLayers) {
  EXPECT_EQ(ParseShape("qwen3-30b-a3b/3:q4_0").config.shape.layer_count(), 3);
  EXPECT_EQ(ParseShape("qwen3-30b-a3b").config.shape.layer_count(), 48);
  for (const char* bad : {"0", "49", "-1", "2x", "", "9999999999"}) {
    const std::string text = "qwen3-30b-a3b/" + std::string(bad);
    EXPECT_NE(ErrorOf([&] { ParseShape(text); }).find("are not from 1 to 48"), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace coppice
