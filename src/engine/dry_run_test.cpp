#include "engine/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/peak_memory.h"
#include "engine/engine.h"
#include "model/synthetic.h"
#include "policies/presets.h"
#include "test_files.h"

namespace coppice {
namespace {

constexpr const char* kShape = "tiny:f32";

std::vector<int32_t> Prompt(int64_t tokens) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>(i * 7 % 200));
  return ids;
}

class DryRunTest : public ::testing::Test {
 protected:
  DryRun Plan(int64_t tokens, const std::string& prune) {
    return PlanRun(ParseShape(kShape).config, Prompt(tokens), prune, *backend_);
  }
  Answer Run(int64_t tokens, const std::string& prune, int64_t generate) {
    Request request;
    request.tokens = Prompt(tokens);
    request.max_tokens = generate;
    request.sampling.temperature = 0;
    request.prune = prune;
    return engine_->Generate(request);
  }
  std::unique_ptr<Engine> engine_ = Engine::FromShape(kShape, {.backend = "reference"});
  std::unique_ptr<Backend> backend_ = MakeBackend("reference", {});
};

// The counts follow from the settings, so no trained predictors are needed to plan.
TEST_F(DryRunTest, SdtpPlansWithoutAFile) {
  const DryRun plan = Plan(1000, "sdtp:min=0");
  EXPECT_TRUE(plan.active) << plan.reason;
  EXPECT_THAT(plan.spec, testing::StartsWith("sdtp:file=random,"));
  const std::vector<LayerCounts>& layers = plan.ledger.layers();
  EXPECT_EQ(layers.front().kv_rows, 1000);
  const auto stages = static_cast<double>(SdtpLayers(ParseShape(kShape).config.shape, 10).size());
  EXPECT_EQ(layers.back().kv_rows, std::llround(1000 * std::pow(0.9, stages)));
  EXPECT_EQ(Plan(1000, "sdtp:min=0").ledger.prefill_flops(), plan.ledger.prefill_flops());
  EXPECT_EQ(Plan(1000, plan.spec).spec, plan.spec) << "its settings mean themselves";
  EXPECT_THROW(Run(1000, "sdtp:min=0", 1), PruneError) << "a run needs a file";
  EXPECT_THAT(ErrorOf([&] { Run(1000, "sdtp:file=random,min=0", 1); }), testing::HasSubstr("random"));
}

// Methods whose counts follow from their settings: what is planned is what runs.
TEST_F(DryRunTest, PlansWhatRuns) {
  const char* specs[] = {"none",
                         "lazyllm:layers=1/2,keep=0.5,min=0,strict_memory=0",
                         "sliminfer:layers=1/2,keep=192/128,min=0",
                         "sliminfer:layers=2,keep=128,min=0,revive=none",
                         "static:layer=1,keep=0.3,min=0",
                         "random:keep=0.5,min=0",
                         "snapkv:cap=64,window=8,min=0",
                         "h2o:keep=0.4,min=0",
                         "streamingllm:recent=100,min=0",
                         "pyramidinfer:min=0",
                         "fastkv:layer=1,keep=0.3,cache=0.2,min=0",
                         "sliminfer"};
  for (const std::string spec : specs) {
    const DryRun plan = Plan(290, spec);
    const Answer answer = Run(290, spec, 1);
    EXPECT_EQ(plan.spec, answer.prune_spec);
    EXPECT_EQ(plan.active, answer.prune_active) << spec;
    EXPECT_EQ(plan.reason, answer.prune_reason) << spec;
    ASSERT_EQ(plan.ledger.layers().size(), answer.ledger.layers().size());
    for (size_t l = 0; l < plan.ledger.layers().size(); ++l) {
      EXPECT_EQ(plan.ledger.layers()[l].kv_rows, answer.ledger.layers()[l].kv_rows) << spec << " layer " << l;
      EXPECT_EQ(plan.ledger.layers()[l].query_rows, answer.ledger.layers()[l].query_rows)
          << spec << " layer " << l;
      EXPECT_EQ(plan.ledger.layers()[l].ffn_rows, answer.ledger.layers()[l].ffn_rows)
          << spec << " layer " << l;
    }
    EXPECT_EQ(plan.ledger.prefill_flops(), answer.ledger.prefill_flops()) << spec;
    EXPECT_EQ(plan.ledger.prefill_flops_dense(), answer.ledger.prefill_flops_dense()) << spec;
    EXPECT_EQ(plan.ledger.kv_bytes, answer.ledger.kv_bytes) << spec;
    EXPECT_EQ(plan.ledger.aux_bytes, answer.ledger.aux_bytes) << spec;
    EXPECT_EQ(plan.ledger.kv_bytes_dense, answer.ledger.kv_bytes_dense) << spec;
    EXPECT_EQ(plan.ledger.cold_bytes, 0) << spec;
  }
}

// The first generated token attends fewer blocks than prefill kept: the others go to the cold tier. Two
// tokens, so that one step runs; it adds its own key and value to every layer.
TEST_F(DryRunTest, PlansTheColdTier) {
  const std::string spec = "sliminfer:layers=1,keep=256,decode_keep=128,revive=none,min=0";
  const DryRun plan = Plan(320, spec);
  const Answer answer = Run(320, spec, 2);
  EXPECT_GT(plan.ledger.cold_bytes, 0);
  EXPECT_EQ(plan.ledger.cold_bytes, answer.ledger.cold_bytes);
  const ModelShape shape = ParseShape(kShape).config.shape;
  EXPECT_EQ(plan.ledger.kv_bytes + int64_t{2} * 4 * shape.layer_count() * shape.layer(0).key_width(),
            answer.ledger.kv_bytes);
}

// With scores that have nothing in common from one step to the next, SlimInfer's published budgets let blocks
// come back: four per stage, each in place of one that moves to the cold tier.
TEST_F(DryRunTest, SlimInferExchangesBlocksAtThePublishedBudgets) {
  for (const std::string shape : {"llama-3.1-8b", "qwen2.5-7b"}) {
    SCOPED_TRACE(shape);
    const DryRun plan = PlanRun(ParseShape(shape).config, Prompt(32768), "sliminfer", *backend_);
    EXPECT_TRUE(plan.active);
    EXPECT_EQ(plan.ledger.swaps, 3);
    EXPECT_EQ(plan.ledger.revived, 3 * 4 * 64);
    EXPECT_GT(plan.ledger.cold_bytes, 0);
    const DryRun without =
        PlanRun(ParseShape(shape).config, Prompt(32768), "sliminfer:revive=none", *backend_);
    EXPECT_EQ(plan.ledger.kv_bytes, without.ledger.kv_bytes);  // as many blocks are hot
    EXPECT_EQ(without.ledger.swaps + without.ledger.revived + without.ledger.cold_bytes, 0);
  }
}

// The paper's table 2 at 8k tokens, which fit the first budget: 20.3 % of the cache is saved at the later
// stages. Prompts below that are pruned there too.
TEST_F(DryRunTest, SlimInferPrunesPromptsWithinItsFirstBudget) {
  const ModelConfig llama = ParseShape("llama-3.1-8b").config;
  for (const auto& [tokens, saved] : {std::pair(8192, 0.203), {6144, 0.146}, {3000, 0.020}}) {
    SCOPED_TRACE(tokens);
    const DryRun plan = PlanRun(llama, Prompt(tokens), "sliminfer:revive=none", *backend_);
    EXPECT_TRUE(plan.active) << plan.reason;
    const double share =
        static_cast<double>(plan.ledger.kv_bytes) / static_cast<double>(plan.ledger.kv_bytes_dense);
    EXPECT_NEAR(1 - share, saved, 0.0006);
    EXPECT_LT(plan.ledger.prefill_flops(), plan.ledger.prefill_flops_dense());
  }
  EXPECT_FALSE(PlanRun(llama, Prompt(2048), "sliminfer", *backend_).active);
}

TEST_F(DryRunTest, ScoresDecideTheRest) {
  const DryRun half = Plan(1000, "ftp:eta=0.9,dense=1,first=0,last=1,min=0");
  const double rows = static_cast<double>(half.ledger.layers()[1].ffn_rows);
  EXPECT_NEAR(rows / 1000, 0.6, 0.05);  // x (1 - ln x) = 0.9 at x = 0.605
  const DryRun sparse = Plan(1024, "xattention:threshold=0.5,min=0,block=64");
  EXPECT_LT(sparse.ledger.layers()[0].density, 0.9);
  EXPECT_LT(sparse.ledger.prefill_flops(), sparse.ledger.prefill_flops_dense());
}

// What FlashPrefill always reads is a closed form: the first two key blocks, the four up to the own one, and
// everything in the query blocks of the last 128 rows. Each other query block reads its best block, too.
TEST_F(DryRunTest, FlashPrefillReadsItsFloorAndTheBest) {
  const auto pairs = [&](int64_t read) {
    double sum = 0;
    for (int64_t b = 0; b < 64; ++b) sum += (b >= 64 - 8 ? b : std::min(b, read - 1)) * 256.0 + 136;
    return sum;
  };
  const DryRun plan = Plan(64 * 16, "flashprefill:alpha=1,block=16,min=0");
  const double density = plan.ledger.layers()[0].density;
  EXPECT_GT(density, pairs(6) / pairs(64));
  EXPECT_LE(density, pairs(7) / pairs(64));
  EXPECT_EQ(Plan(64 * 16, "flashprefill:alpha=1,block=16,sink=64,min=0").ledger.layers()[0].density, 1);
}

TEST_F(DryRunTest, TheSameEveryTime) {
  const std::string spec = "ftp:eta=0.8,dense=1,min=0";
  EXPECT_EQ(Plan(500, spec).ledger.flops(), Plan(500, spec).ledger.flops());
}

// The model's keys and values would take 64 GiB, and its hidden states 2 GiB.
TEST_F(DryRunTest, TakesLittleMemory) {
  const ModelConfig config = ParseShape("llama-2-7b").config;
  const int64_t before = PeakMemoryBytes();
  for (const char* spec : {"pyramidinfer", "sliminfer:layers=8/16,keep=0.5/0.3,decode_keep=0.2"}) {
    const DryRun plan = PlanRun(config, Prompt(131072), spec, *backend_);
    EXPECT_TRUE(plan.active) << plan.reason;
    EXPECT_GT(plan.ledger.kv_bytes_dense, int64_t{64} << 30);  // of fp32
  }
  EXPECT_LT(PeakMemoryBytes() - before, int64_t{1} << 30);
}

TEST_F(DryRunTest, RefusesWhatARunRefuses) {
  EXPECT_THROW(Plan(300, "ftp:eta=7"), Error);
  EXPECT_THROW(Plan(300, "nobody"), Error);
}

// The times that a run reports lie inside its time to the first token; without being asked it reports none.
TEST(TimedEngine, PrefillTimes) {
  Request request;
  request.tokens = Prompt(300);
  request.max_tokens = 3;
  request.prune = "sliminfer:layers=1,keep=128,min=0";
  const auto engine = Engine::FromShape(kShape, {.backend = "reference", .time_operations = true});
  const Answer first = engine->Generate(request);
  const Answer again = engine->Generate(request);
  for (const OpKind kind : {OpKind::kPack, OpKind::kProduct, OpKind::kDecodeProduct, OpKind::kAttention,
                            OpKind::kScoring, OpKind::kRows}) {
    EXPECT_GT(first.prefill_times.of(kind), 0) << kOpKindNames[static_cast<size_t>(kind)];
  }
  EXPECT_LE(1000 * first.prefill_times.total(), first.ttft_ms);
  EXPECT_GT(1000 * first.prefill_times.total(), 0.3 * first.ttft_ms);
  EXPECT_EQ(first.prefill_times.calls, again.prefill_times.calls);  // of one run, not of all

  engine->TimeOperations(false);
  EXPECT_EQ(engine->Generate(request).prefill_times.total(), 0);
  engine->TimeOperations(true);
  EXPECT_EQ(engine->Generate(request).prefill_times.calls, first.prefill_times.calls);

  const auto plain = Engine::FromShape(kShape, {.backend = "reference"});
  EXPECT_EQ(plain->Generate(request).prefill_times.total(), 0);
}

}  // namespace
}  // namespace coppice
