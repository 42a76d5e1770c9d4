#include "policies/registry.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "policies/methods/sdtp_test_file.h"
#include "shape_edit.h"
#include "test_files.h"

namespace coppice {
namespace {

PruneChoice Make(std::string_view spec, const ModelShape& shape, int64_t tokens) {
  return MakePolicy(spec, {.shape = shape, .tokens = tokens}, {});
}

using testing::HasSubstr;

ModelShape Llama8B() {
  return {.architecture = "llama",
          .name = "",
          .hidden = 4096,
          .vocab = 128256,
          .layers = std::vector<LayerShape>(32, {.heads = 32, .kv_heads = 8, .head_dim = 128, .ffn = 14336})};
}

std::string SpecError(const std::string& spec, int64_t tokens = 32768, const ModelShape& shape = Llama8B()) {
  try {
    Make(spec, shape, tokens);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MakePolicy, None) {
  const PruneChoice none = Make("none", Llama8B(), 32768);
  EXPECT_EQ(none.spec, "none");
  EXPECT_FALSE(none.active);
  EXPECT_EQ(none.reason, "");
  ASSERT_NE(none.policy, nullptr);
  EXPECT_TRUE(none.policy->NeedsAt(Phase::kPrefill, 0).empty());
}

TEST(MakePolicy, BareNamesAreThePresetsWrittenOut) {
  const PruneChoice both = Make("sliminfer+ftp", Llama8B(), 32768);
  EXPECT_EQ(
      both.spec,
      "sliminfer:layers=10/20/30,start=10,keep=8192/4096/2048,decode_keep=8192/4096/2048,block=64,unit=8,"
      "window=4,last=64,score=units,gamma=0.9,revive=aux,revive_cap=4,queries=1,ask=end,pool=mean,skip_sink="
      "0,widen="
      "0,sum=1,whole=none,min=2048"
      "+ftp:eta=0.9,dense=10,first=100,last=50,queries=50,ask=end,pool=mean,skip_sink=0,widen=0,sum=1,"
      "whole=none,fill=none,choose=mass,seed=0,min=1024");
  EXPECT_TRUE(both.active);
  EXPECT_EQ(both.reason, "");
  EXPECT_EQ(both.policy->NeedsAt(Phase::kPrefill, 9).unit_scores.size(), 1u);  // decides after layer p - 1
  EXPECT_TRUE(both.policy->NeedsAt(Phase::kPrefill, 9).masses.empty());
  EXPECT_EQ(both.policy->NeedsAt(Phase::kPrefill, 10).masses, std::vector<Needs::Mass>{{.queries = 50}});
}

TEST(MakePolicy, TheCanonicalSpecMeansItself) {
  for (const char* spec :
       {"ftp", "sliminfer", "ftp:eta=.25,first=0", "sliminfer:keep=0.5", "sliminfer:layers=3,keep=100",
        "sliminfer:keep=1e4/5000/0.01,block=4+ftp:eta=1e-6"}) {
    const std::string canonical = Make(spec, Llama8B(), 32768).spec;
    EXPECT_EQ(Make(canonical, Llama8B(), 32768).spec, canonical) << spec;
  }
  EXPECT_THAT(Make("sliminfer:keep=0.5", Llama8B(), 32768).spec, HasSubstr("keep=16384/8192/4096,"));
  EXPECT_THAT(Make("sliminfer:keep=0.5/0.5/0.5", Llama8B(), 32768).spec,
              HasSubstr("keep=16384/16384/16384,"));
  EXPECT_THAT(Make("sliminfer:keep=500", Llama8B(), 32768).spec, HasSubstr("keep=500/500/500,"));
  EXPECT_THAT(Make("sliminfer:keep=0.3", Llama8B(), 10001).spec,
              HasSubstr("keep=3001/901/271,"));  // rounds up
  EXPECT_THAT(Make("sliminfer:block=4", Llama8B(), 32768).spec, HasSubstr("block=4,unit=4,"));
}

// What `coppice methods` prints are the keys that the methods read.
TEST(Methods, DocumentTheirKeys) {
  TempFolder folder;
  const std::string sdtp = folder.Write("sdtp.safetensors", SdtpTestFile({4, 7}, 4096, 8).Bytes());
  std::set<std::string_view> names;
  for (const MethodInfo& method : Methods()) {
    EXPECT_TRUE(names.insert(method.name).second) << method.name;
    EXPECT_FALSE(method.summary.empty());
    EXPECT_FALSE(method.paper.empty());
    // Some cannot do without a file.
    std::string with;
    if (method.name == "sdtp") with = fmt::format(":file={}", sdtp);
    if (method.name == "selective") with = ":model=m.gguf";
    if (method.name == "specprefill") with = ":draft=m.gguf";
    if (method.name == "llmlingua2") with = ":model=folder";
    std::string rest = Make(std::string(method.name) + with, Llama8B(), 32768).spec;
    for (const MethodKey& key : method.keys) {
      const size_t at = rest.find(std::string(key.name) + "=");
      ASSERT_NE(at, std::string::npos) << method.name << ": " << key.name;
      rest = rest.substr(at);  // in the order of the settings
      EXPECT_FALSE(key.fallback.empty() || key.range.empty() || key.meaning.empty()) << key.name;
    }
    EXPECT_EQ(rest.find(','), std::string::npos) << method.name << " leaves out " << rest;
    EXPECT_THAT(SpecError(fmt::format("{}{}{}nonsense=1", method.name, with, with.empty() ? ":" : ",")),
                HasSubstr("unknown key 'nonsense'; it has "));
  }
}

TEST(MakePolicy, AQuestionWhoseTokensMoveIsNotAsked) {
  const std::vector<PositionSpan> question = {{100, 120}};
  const ModelShape shape = Llama8B();
  const MethodContext context{.shape = shape, .tokens = 32768, .question = question};
  const auto asked = [&](const std::string& spec) {
    return MakePolicy(spec, context, {}).policy->NeedsAt(Phase::kPrefill, 9).masses.at(0).of;
  };
  EXPECT_EQ(asked("lazyllm:ask=question"), question);
  EXPECT_TRUE(asked("lazyllm").empty());
  EXPECT_TRUE(asked("random:min=0+lazyllm:ask=question,revive=none").empty());
}

TEST(MakePolicy, WholeSentencesNeedTheTextOfTheTokens) {
  const ModelShape shape = Llama8B();
  const std::vector<int32_t> prompt(3000, 1);
  const std::string spec = "lazyllm:whole=sentence,revive=none";
  MethodContext context{.shape = shape, .tokens = 3000, .prompt = prompt};
  EXPECT_THAT(ErrorOf([&] { MakePolicy(spec, context, {}); }),
              HasSubstr("lazyllm: whole=sentence needs the text of the prompt's tokens"));
  EXPECT_THAT(ErrorOf([&] { MakePolicy("coppice:whole=none/sentence/none", context, {}); }),
              HasSubstr("coppice: whole=sentence needs"));
  context.pieces = [] { return std::vector<std::string>(3000, " x."); };
  EXPECT_TRUE(MakePolicy(spec, context, {}).active);
  // Another method may give the tokens other positions.
  EXPECT_THAT(ErrorOf([&] { MakePolicy("random:min=0+" + spec, context, {}); }), HasSubstr("needs the text"));
  // Without a prompt only the settings are wanted.
  EXPECT_THAT(MakePolicy(spec, {.shape = shape, .tokens = 3000}, {}).spec, HasSubstr("whole=sentence"));
}

TEST(MakePolicy, RefusesWhatItCannotDo) {
  const std::pair<const char*, const char*> bad[] = {
      {"h3o",
       "no method 'h3o': did you mean h2o? There are none, lazyllm, ftp, sdtp, sliminfer, coppice, random, "},
      {"lazzy", "no method 'lazzy'; there are none, lazyllm, "},
      {"atuo", "did you mean auto?"},
      {"ftp:etta=1", "ftp: unknown key 'etta': did you mean eta? It has eta, dense, "},
      {"ftp+none", "no method 'none'"},
      {"FTP", "no method 'FTP'"},
      {"ftp:eta=0", "ftp: eta=0 is not a number from 1e-06 to 1"},
      {"ftp:eta=1.01", "eta=1.01"},
      {"ftp:eta=nan", "eta=nan"},
      {"ftp:eta=inf", "eta=inf"},
      {"ftp:eta=-0.5", "eta=-0.5"},
      {"ftp:dense=33", "dense=33 is not a whole number from 0 to 32"},
      {"ftp:dense=-1", "dense=-1"},
      {"ftp:last=0", "last=0"},
      {"ftp:first=-1", "first=-1"},
      {"ftp:min=-1", "min=-1"},
      {"ftp:keep=1",
       "unknown key 'keep'; it has eta, dense, first, last, queries, ask, pool, skip_sink, widen, sum, "
       "whole, fill, choose, seed, min"},
      {"ftp:eta=1,eta=1", "'eta' is set twice"},
      {"sliminfer:layers=0,keep=100", "layers=0: '0' is not a whole number from 1 to 31"},
      {"sliminfer:layers=10/32,keep=0.5", "'32' is not a whole number from 1 to 31"},
      {"sliminfer:layers=10/10,keep=0.5", "layers=10/10 must ascend"},
      {"sliminfer:layers=20/10,keep=0.5", "layers=20/10 must ascend"},
      {"sliminfer:layers=,keep=0.5", "'layers=' is not key=value"},
      {"sliminfer:layers=5/,keep=0.5", "layers=5/: '' is not a whole number"},
      {"sliminfer:layers=5", "layers=5 needs keep, one value per layer"},
      {"sliminfer:layers=5/6,keep=100/50/20", "keep has 3 values for 2 layers"},
      {"sliminfer:keep=100/200/50", "grows to 200 of"},
      {"sliminfer:keep=0.1/0.2/0.3", "grows to 6553.6 of"},
      {"sliminfer:keep=100/0.5/0.1", "grows to 16384 of"},
      {"sliminfer:keep=0", "keep=0: '0' is not a number"},
      {"sliminfer:keep=-5", "'-5' is not a number"},
      {"sliminfer:keep=nan/2/1", "'nan' is not a number"},
      {"sliminfer:keep=inf", "'inf' is not a number"},
      {"sliminfer:keep=1e30", "'1e30' is not a number"},
      {"sliminfer:block=0", "block=0"},
      {"sliminfer:block=64,unit=7", "unit=7 does not divide block=64"},
      {"sliminfer:block=8,unit=16", "unit=16 does not divide block=8"},
      {"sliminfer:window=0", "window=0"},
      {"sliminfer:eta=0.5", "unknown key 'eta'"},
  };
  for (const auto& [spec, part] : bad) {
    EXPECT_THAT(SpecError(spec), HasSubstr(part)) << spec;
    // The length of the prompt decides whether a method acts, never whether its spec is right. (Whether
    // tokens and shares mixed grow does depend on it.)
    const bool mixed = std::string(spec).find("100/0.5") != std::string::npos;
    EXPECT_TRUE(mixed || SpecError(spec, 1) != "no error") << spec;
  }
}

TEST(MakePolicy, StandsAsideWithAReason) {
  const auto reason = [](const char* spec, int64_t tokens, const ModelShape& shape) {
    const PruneChoice choice = Make(spec, shape, tokens);
    EXPECT_EQ(choice.active, choice.reason.empty()) << spec;
    EXPECT_TRUE(choice.active || choice.policy->NeedsAt(Phase::kPrefill, 9).empty());
    return choice.reason;
  };
  EXPECT_EQ(reason("ftp", 1023, Llama8B()), "ftp: 1023 prompt tokens are below its break-even of 1024");
  EXPECT_EQ(reason("ftp", 1024, Llama8B()), "");
  EXPECT_EQ(reason("sliminfer", 2048, Llama8B()),
            "sliminfer: 2048 prompt tokens fit its last budget of 2048");
  EXPECT_EQ(reason("sliminfer", 2049, Llama8B()), "");
  EXPECT_EQ(reason("sliminfer", 8192, Llama8B()), "");
  ModelShape windowed = Llama8B();
  SetInAll(windowed, &LayerShape::window, 4096);
  EXPECT_EQ(reason("ftp", 4096, windowed), "");
  EXPECT_EQ(reason("ftp", 4097, windowed),
            "ftp: the model attends in a sliding window of 4096 tokens, shorter than the prompt");
  EXPECT_EQ(reason("sliminfer", 20000, windowed),
            "sliminfer: the model attends in a sliding window of 4096 tokens, shorter than the prompt");

  const PruneChoice mixed = Make("sliminfer+ftp", Llama8B(), 2000);
  EXPECT_TRUE(mixed.active);  // FTP acts
  EXPECT_THAT(mixed.reason, HasSubstr("sliminfer: 2000 prompt tokens"));
  EXPECT_THAT(Make("sliminfer+ftp", Llama8B(), 500).reason, HasSubstr("of 2048; ftp: 500"));
}

// Gemma 3: every sixth layer attends without the window.
TEST(MakePolicy, NoScoresFromLayersWithAWindow) {
  ModelShape mixed = Llama8B();
  for (size_t l = 0; l < mixed.layers.size(); ++l) mixed.layers[l].window = l % 6 == 5 ? 0 : 1000;
  for (const char* spec :
       {"coppice", "lazyllm", "sliminfer", "uniprefill", "minference", "flexprefill", "xattention",
        "flashprefill", "quest", "streamingllm", "random", "coppice:layers=12/18"}) {
    EXPECT_TRUE(Make(spec, mixed, 20000).active) << spec << ": " << Make(spec, mixed, 20000).reason;
  }
  for (const char* spec : {"ftp", "static", "pyramidinfer", "fastkv", "snapkv", "h2o", "spts",
                           "coppice:layers=12/17", "coppice:layers=12,sum=2", "gemfilter:layer=9"}) {
    const PruneChoice choice = Make(spec, mixed, 20000);
    EXPECT_FALSE(choice.active) << spec;
    EXPECT_THAT(choice.reason, testing::ContainsRegex("it scores in layer [0-9]+, which attends in a sliding "
                                                      "window of 1000 tokens, shorter than the prompt"))
        << spec;
  }
  EXPECT_THAT(Make("coppice:layers=12/17", mixed, 20000).reason, HasSubstr("layer 16,"));
  EXPECT_TRUE(Make("ftp:min=0", mixed, 1000).active);  // the prompt fits the window
  // One method stands aside, the other acts.
  const PruneChoice both = Make("ftp+minference", mixed, 20000);
  EXPECT_TRUE(both.active);
  EXPECT_THAT(both.reason, HasSubstr("ftp: it scores in layer"));
}

TEST(MakePolicy, AModelOfOneLayerHasNoStage) {
  ModelShape one = Llama8B();
  one.layers.resize(1);
  const PruneChoice choice = Make("sliminfer:min=0", one, 100000);
  EXPECT_FALSE(choice.active);
  EXPECT_THAT(choice.reason, HasSubstr("1 layers leave no stage to prune at"));
}

// Pairs of which one destroys what the other needs; both orders, both named.
TEST(MakePolicy, RefusesPairsThatDestroyEachOther) {
  const std::pair<const char*, const char*> bad[] = {
      {"lazyllm+sliminfer", "lazyllm and sliminfer both decide which tokens come back"},
      {"lazyllm+h2o", "h2o deletes keys that lazyllm attends again"},
      {"snapkv+lazyllm", "snapkv deletes keys that lazyllm attends again"},
      {"sliminfer+h2o", "h2o deletes keys that sliminfer attends again"},
      {"static+lazyllm", "static drops tokens for good, and lazyllm would bring them back"},
      {"h2o+snapkv", "both delete keys"},
      {"quest+h2o", "quest needs pages"},
      {"streamingllm+pyramidinfer", "streamingllm numbers tokens by their slot"},
      {"lazyllm+random:layers=4", "random drops tokens for good"},
      {"lazyllm+fastkv", "fastkv deletes keys that lazyllm attends again"},
      {"fastkv+snapkv", "both delete keys"},
      {"fastkv+streamingllm", "both delete keys"},
      {"sliminfer+uniprefill", "uniprefill drops tokens for good"},
      {"lazyllm+spts", "spts stores few of them"},
      {"spts+snapkv", "both decide which keys a layer stores"},
      {"flashprefill+spts", "spts lets few of them attend"},
      {"uniprefill+streamingllm", "what uniprefill drops leaves no slots"},
      {"sliminfer:revive=none,decode_keep=0.1/0.1/0.1+h2o", "h2o deletes keys that sliminfer attends again"},
      {"lazyllm:revive=none+streamingllm", "what lazyllm drops leaves no slots"},
  };
  for (const auto& [spec, part] : bad) EXPECT_THAT(SpecError(spec), HasSubstr(part)) << spec;
  for (const char* good :
       {"sliminfer+ftp", "lazyllm+quest", "sliminfer+quest", "ftp+snapkv", "ftp+h2o+random",
        // What the settings switch off does not count.
        "lazyllm:revive=none+h2o", "static+lazyllm:revive=none", "sliminfer:revive=none+snapkv",
        "lazyllm:revive=none+sliminfer:revive=none", "random+lazyllm", "random+sliminfer",
        "random+streamingllm", "uniprefill+ftp", "uniprefill+snapkv", "uniprefill+quest", "spts+quest",
        "spts+ftp", "random+spts", "uniprefill+spts", "fastkv+ftp"}) {
    EXPECT_EQ(SpecError(good), "no error") << good;
  }
}

}  // namespace
}  // namespace coppice
