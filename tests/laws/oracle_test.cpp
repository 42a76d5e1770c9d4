// C13 and C14: the engine against an oracle in fp64 that masks what the engine removes (oracle.h). Kept sets
// are identical and logits agree, in prefill and decode: dense, FTP, and SlimInfer without revival.
// Other methods: oracle_tokens_test.cpp, oracle_sliminfer_test.cpp, oracle_cache_test.cpp.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "oracle_sliminfer.h"
#include "oracle_support.h"
#include "oracle_tokens.h"

namespace coppice::oracle_test {
namespace {

class Oracle : public OracleTest {};

const char* const kFtpSpec = "ftp:eta=0.85,dense=1,first=10,last=8,min=0";
const char* const kSlimSpec =
    "sliminfer:layers=2/4,keep=112/64,block=16,last=1,unit=8,window=4,revive=none,min=0";

oracle::SlimInfer::Options Slim() {
  return {.layers = {2, 4}, .keep = {112, 64}, .block = 16, .unit = 8, .window = 4};
}

std::vector<OracleCase> Cases() {
  return {
      {"none", [] { return std::vector<std::unique_ptr<oracle::Method>>(); }},
      {kFtpSpec, [] { return MethodsOf<oracle::Ftp>(0.85, 1, 10, 8); }},
      {kSlimSpec, [] { return MethodsOf<oracle::SlimInfer>(Slim()); }, {}, true, OracleCase::Cache::kNothing},
      {std::string(kSlimSpec) + "+" + kFtpSpec,
       [] {
         auto methods = MethodsOf<oracle::SlimInfer>(Slim());
         methods.push_back(std::make_unique<oracle::Ftp>(0.85, 1, 10, 8));
         return methods;
       },
       {},
       true,
       OracleCase::Cache::kNothing}};
}

// T-SL7: blocks and units of one token rank by the last query's raw product with each key.
OracleCase PerToken() {
  return {"sliminfer:layers=2/4,keep=90/31,block=1,last=1,unit=1,window=1,revive=none,min=0",
          [] {
            return MethodsOf<oracle::SlimInfer>(oracle::SlimInfer::Options{
                .layers = {2, 4}, .keep = {90, 31}, .block = 1, .unit = 1, .window = 1});
          },
          {},
          true,
          OracleCase::Cache::kNothing};
}

TEST_P(Oracle, RandomModelInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  for (const int64_t tokens : {200, 256}) {
    for (const OracleCase& c : Cases()) Compare(RandomText(tokens, 3), c);
    Compare(RandomText(tokens, 3), PerToken());
  }
}

TEST_P(Oracle, NeedleModel) {
  for (const int64_t tokens : {200, 256}) {
    for (const OracleCase& c : Cases()) Compare(NeedleText(tokens), c);
  }
}

// The needles do what they are for: SlimInfer keeps their blocks, FTP their FFN.
TEST_P(Oracle, NeedlesAreFound) {
  const OracleText text = NeedleText(256);
  const RunResult run = RunTiny(text.tiny.Make(), text.prompt, *backend_, {.spec = Cases()[3].spec});
  int found = 0;
  for (size_t i = 0; i < text.prompt.size(); ++i) {
    if (text.prompt[i] < kFirstNeedle + 6) continue;  // the two strongest: what the last budget has room for
    ++found;
    EXPECT_TRUE(Has(run.kept[3], static_cast<int32_t>(i))) << "needle " << text.prompt[i] << " at " << i;
    EXPECT_TRUE(Has(run.ffn[1], static_cast<int32_t>(i))) << "needle " << text.prompt[i] << " at " << i;
  }
  EXPECT_EQ(found, 2);
}

COPPICE_ORACLE_ON_BACKENDS(Oracle);

}  // namespace
}  // namespace coppice::oracle_test
