// The fuzz targets as an ordinary test: seeds, a few hundred changes of each, and every input with which a
// fuzzer once broke something (tests/fuzz/regressions).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "fuzz/fuzz_target.h"
#include "mutate.h"

namespace coppice {
namespace {

class FuzzReplay : public testing::TestWithParam<FuzzTarget (*)()> {};

TEST_P(FuzzReplay, SeedsAreAccepted) {
  const FuzzTarget target = GetParam()();
  for (const std::string& seed : target.seeds()) EXPECT_TRUE(target.run(seed)) << seed;
}

TEST_P(FuzzReplay, ChangedSeeds) {
  const FuzzTarget target = GetParam()();
  // A request that is cut short takes the half second after which its sender gives up.
  const int rounds = std::string(target.name) == "http" ? 2 : 200;
  std::mt19937 random(20261123);
  int refused = 0;
  for (const std::string& seed : target.seeds())
    for (int i = 0; i < rounds; ++i) refused += target.run(Mutate(seed, random)) ? 0 : 1;
  EXPECT_GT(refused, 0);
}

TEST_P(FuzzReplay, Regressions) {
  const FuzzTarget target = GetParam()();
  const std::filesystem::path folder =
      std::filesystem::path(COPPICE_SOURCE_DIR) / "tests/fuzz/regressions" / target.name;
  if (!std::filesystem::exists(folder)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    ASSERT_FALSE(file.fail()) << entry.path();
    target.run(input);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzReplay,
                         testing::Values(CalibrationTarget, ChatFormsTarget, EncoderTarget, GgufTarget,
                                         HeadPatternsTarget, HfFolderTarget, HttpTarget, GrammarTarget,
                                         JsonSchemaTarget, JsonTarget, ParametersTarget, PredictorsTarget,
                                         PrefixTarget, ProxiesTarget, PruneSpecTarget, RegexTarget,
                                         SafetensorsTarget, SchemaCheckTarget, TemplateTarget, TraceTarget),
                         [](const auto& test) { return std::string(test.param().name); });

}  // namespace
}  // namespace coppice
