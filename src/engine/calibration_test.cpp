// Calibration files, good and bad, and what auto makes of them.
#include "engine/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/calibration_files.h"
#include "engine/engine.h"
#include "engine/fingerprint.h"
#include "engine/open_model.h"
#include "test_files.h"

namespace coppice {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const std::string kModel = std::string(COPPICE_SOURCE_DIR) + "/models/coppice-mini-f16.gguf";

json Entry(double loss, int64_t length, const std::string& prune) {
  return {{"loss", loss},
          {"length", length},
          {"min_tokens", length * 3 / 4},
          {"max_tokens", length * 5 / 4},
          {"prune", prune},
          {"why", "no setting kept the answers"},
          {"held_out", {{"score", 98.0}, {"dense", 98.5}, {"n", 50}}}};
}

json File(const std::vector<json>& entries, const std::string& fingerprint = "0123") {
  return {{"format", "coppice calibration"},
          {"version", 1},
          {"model", {{"name", "m"}, {"fingerprint", fingerprint}}},
          {"entries", entries}};
}

Calibration Parse(const json& file) { return ParseCalibration(file.dump(), "folder/m.gguf.coppice.json"); }

std::string FailureOf(const std::function<void(json&)>& change) {
  json file = File({Entry(0.01, 4096, "static:keep=0.5,layer=5")});
  change(file);
  return ErrorOf([&] { Parse(file); });
}

ResolvedPrune Choose(const std::vector<json>& entries, double loss, int64_t tokens,
                     PromptStates states = PromptStates::kKept) {
  return ChooseSetting({Parse(File(entries))}, loss, tokens, states);
}

TEST(FileKeyOf, NamesAKeyThatNamesAFile) {
  EXPECT_EQ(FileKeyOf("ftp+minference:heads=x.json"), "minference:heads");
  EXPECT_EQ(FileKeyOf("minference:heads=none"), "");
  EXPECT_EQ(FileKeyOf("sdtp:file=none"), "sdtp:file");  // a file of this name
  EXPECT_EQ(FileKeyOf("ftp"), "");
}

TEST(Calibration, ItsTextsDoNotMakeATerminalAct) {
  json none = Entry(0.05, 4096, "none");
  none["why"] =
      "no\x1b[2Jthing\nheld\xc2\x9b"
      "5m";
  EXPECT_THAT(Choose({none}, 0.05, 4096).reason, HasSubstr("dense, no?[2Jthing?held?5m"));
}

TEST(Calibration, IsRead) {
  const Calibration calibration =
      Parse(File({Entry(0.01, 4096, "static:keep=0.5"), Entry(0.05, 4096, "none")}));
  EXPECT_EQ(calibration.fingerprint, "0123");
  ASSERT_EQ(calibration.entries.size(), 2u);
  const CalibrationEntry& entry = calibration.entries[0];
  EXPECT_DOUBLE_EQ(entry.loss, 0.01);
  EXPECT_EQ(entry.min_tokens, 3072);
  EXPECT_EQ(entry.max_tokens, 5120);
  EXPECT_EQ(entry.setting.prune, "static:keep=0.5");
  EXPECT_EQ(entry.setting.held_out->samples, 50);
  EXPECT_EQ(calibration.entries[1].setting.why, "no setting kept the answers");
}

TEST(Calibration, BadFilesAreErrorsThatNameFileAndField) {
  const auto says = [](const std::string& failure, const std::string& part) {
    EXPECT_THAT(failure, AllOf(HasSubstr("folder/m.gguf.coppice.json"), HasSubstr(part)));
  };
  says(FailureOf([](json& f) { f = json::array(); }), "the file is no object");
  says(FailureOf([](json& f) { f.erase("format"); }), "format is missing");
  says(FailureOf([](json& f) { f["format"] = "other"; }), "format is not");
  says(FailureOf([](json& f) { f["version"] = 2; }), "version is 2, this program reads 1");
  says(FailureOf([](json& f) { f["version"] = "1"; }), "version is no whole number");
  says(FailureOf([](json& f) { f["model"] = 5; }), "model is no object");
  says(FailureOf([](json& f) { f["model"]["fingerprint"] = 5; }), "model.fingerprint is no text");
  says(FailureOf([](json& f) { f["entries"] = json::object(); }), "entries is no list");
  says(FailureOf([](json& f) { f["entries"] = json::array(); }), "entries is empty");
  says(FailureOf([](json& f) { f["entries"] = std::vector<int>(2000, 1); }), "entries is no list of up to");
  says(FailureOf([](json& f) { f["entries"][0] = "x"; }), "entries[0] is no object");
  const std::vector<std::pair<json, std::string>> bad = {
      {{{"loss", -0.1}}, "entries[0].loss is no number from 0 to 1"},
      {{{"loss", "1%"}}, "entries[0].loss is no number"},
      {{{"length", 0}}, "entries[0].length is no whole number"},
      {{{"length", 4096.5}}, "entries[0].length is no whole number"},
      {{{"min_tokens", 5000}}, "entries[0].min_tokens is no whole number from 1 to 4096"},
      {{{"max_tokens", 4000}}, "entries[0].max_tokens is no whole number from 4096"},
      {{{"prune", 3}}, "entries[0].prune is no text"},
      {{{"prune", std::string(5000, 'x')}}, "entries[0].prune is no text of up to"},
      {{{"prune", "static:keep"}}, "entries[0].prune: 'static:keep': 'keep' is not key=value"},
      {{{"prune", "auto"}}, "entries[0].prune: a setting cannot be auto"},
      {{{"prune", "sdtp:file=/etc/passwd"}}, "entries[0].prune: sdtp:file names a file"},
      {{{"prune", "static+selective:model=x"}}, "entries[0].prune: selective:model names a file"},
      {{{"settings", 3}}, "entries[0].settings is no text"},
      {{{"held_out", 1}}, "entries[0].held_out is no object"},
      {{{"held_out", {{"score", 98.0}, {"dense", 101}, {"n", 5}}}}, "entries[0].held_out.dense is no number"},
      {{{"held_out", {{"score", 98.0}, {"dense", 99}}}}, "entries[0].held_out.n is missing"},
  };
  for (const auto& [change, part] : bad)
    says(FailureOf([&](json& f) { f["entries"][0].update(change); }), part);
  for (const char* field : {"loss", "length", "min_tokens", "max_tokens", "prune", "held_out"})
    says(FailureOf([&](json& f) { f["entries"][0].erase(field); }),
         fmt::format("entries[0].{} is missing", field));
  EXPECT_THAT(ErrorOf([] { ParseCalibration("{\"format\": ", "f.json"); }), HasSubstr("f.json"));
  EXPECT_THAT(ErrorOf([] { ParseCalibration(std::string(2 << 20, ' '), "f.json"); }),
              HasSubstr("the limit is"));
  EXPECT_THAT(ErrorOf([] { ParseCalibration("", "f.json"); }), HasSubstr("f.json"));
}

TEST(Calibration, SettingsMustFitTheModel) {
  const OpenedModel model = OpenModel(kModel);
  CheckedFor(model.config.shape, Parse(File({Entry(0.01, 4096, "static:keep=0.5,layer=5")})));
  for (const char* spec : {"static:layer=50", "nothing:keep=1", "static:keep=2", "h2o+sliminfer"}) {
    EXPECT_THAT(ErrorOf([&] { CheckedFor(model.config.shape, Parse(File({Entry(0.01, 4096, spec)}))); }),
                HasSubstr("m.gguf.coppice.json: entries[0].prune: "))
        << spec;
  }
}

// Defaults belong to the program, a calibration to what was measured.
TEST(Calibration, ChangedDefaultsEndASetting) {
  ModelShape shape;
  shape.layers.resize(8);
  json kept = Entry(0.01, 4096, "static:keep=0.5,layer=5");
  kept["settings"] = SettingsOf("static:keep=0.5,layer=5", shape, 4096);
  json changed = Entry(0.01, 8192, "static:keep=0.5,layer=5");
  changed["settings"] = "static:layer=5,keep=0.5,min=77";
  const Calibration calibration = CheckedFor(shape, Parse(File({kept, changed})));
  EXPECT_EQ(calibration.entries[0].setting.prune, "static:keep=0.5,layer=5");
  EXPECT_EQ(calibration.entries[1].setting.prune, "none");
  const ResolvedPrune resolved = ChooseSetting({calibration}, 0.01, 8192, PromptStates::kKept);
  EXPECT_EQ(resolved.spec, "none");
  EXPECT_THAT(resolved.reason, HasSubstr("dense, defaults of static:keep=0.5,layer=5 have changed since"));
}

json OneQuestion(const std::string& prune) {
  return {{"prune", prune}, {"held_out", {{"score", 97.0}, {"dense", 98.5}, {"n", 40}}}};
}

// A setting that acts from layer 0 on serves prompts of which nothing is kept.
TEST(Calibration, ASettingForOneQuestionServesWhereNothingIsKept) {
  json both = Entry(0.01, 4096, "static:keep=0.5,layer=5");
  both["one_question"] = OneQuestion("static:keep=0.5,layer=5+minference");
  const std::vector<Calibration> calibrations = {Parse(File({both}))};
  const ResolvedPrune once = ChooseSetting(calibrations, 0.01, 4096, PromptStates::kDiscarded);
  EXPECT_EQ(once.spec, "static:keep=0.5,layer=5+minference");
  EXPECT_THAT(once.reason,
              HasSubstr("3,072 to 5,120 tokens, one question: held-out 97.0 of dense 98.5, n=40"));
  const ResolvedPrune kept = ChooseSetting(calibrations, 0.01, 4096, PromptStates::kKept);
  EXPECT_EQ(kept.spec, "static:keep=0.5,layer=5");
  EXPECT_EQ(Choose({Entry(0.01, 4096, "ftp")}, 0.01, 4096, PromptStates::kDiscarded).spec, "ftp");
}

TEST(Calibration, ASettingForOneQuestionIsChecked) {
  const auto with = [](const json& one_question) {
    json entry = Entry(0.01, 4096, "static:keep=0.5,layer=5");
    entry["one_question"] = one_question;
    return File({entry});
  };
  for (const auto& [one_question, part] : std::vector<std::pair<json, std::string>>{
           {5, "entries[0].one_question is no object"},
           {json::object(), "entries[0].one_question.prune is missing"},
           {{{"prune", "ftp"}}, "entries[0].one_question.held_out is missing"},
           {OneQuestion("sdtp:file=/etc/passwd"), "entries[0].one_question.prune: sdtp:file names a file"}})
    EXPECT_THAT(ErrorOf([&] { Parse(with(one_question)); }), HasSubstr(part));
  ModelShape shape;
  shape.layers.resize(8);
  EXPECT_THAT(ErrorOf([&] { CheckedFor(shape, Parse(with(OneQuestion("static:layer=50")))); }),
              HasSubstr("entries[0].one_question.prune: static"));
  json changed = OneQuestion("static:keep=0.5,layer=5");
  changed["settings"] = "static:layer=5,keep=0.5,min=77";
  EXPECT_FALSE(CheckedFor(shape, Parse(with(changed))).entries[0].one_question)
      << "its defaults have changed";
}

TEST(Calibration, LayersThatASecondQuestionReuses) {
  const ModelShape shape = OpenModel(kModel).config.shape;
  const auto reused = [&](const std::string& prune) { return ReusedLayers(prune, shape, 4096); };
  EXPECT_EQ(reused("none"), shape.layer_count());
  EXPECT_EQ(reused("static:layer=5,keep=0.5"), 5);
  EXPECT_EQ(reused("static:layer=5,keep=0.5+minference:pattern=block_sparse,blocks=16,min=0"), 0)
      << "a pattern depends on queries that a prefix does not keep";
  EXPECT_EQ(reused("pyramidinfer:min=0"), 2);
}

TEST(Calibration, DamagedBytesAreErrorsOrHarmless) {
  const std::string good =
      File({Entry(0.01, 4096, "static:keep=0.5"), Entry(0.05, 2048, "ftp:eta=0.9")}).dump();
  for (size_t at = 0; at < good.size(); ++at) {
    for (const char byte : {'\0', '"', '9', '}', '\xff'}) {
      std::string text = good;
      text[at] = byte;
      ErrorOf([&] { ParseCalibration(text, "f.json"); });
    }
    ErrorOf([&] { ParseCalibration(good.substr(0, at), "f.json"); });
  }
}

TEST(AutoSpec, IsReadAndStandsAlone) {
  EXPECT_FALSE(AutoLoss("none").has_value());
  EXPECT_FALSE(AutoLoss("ftp:eta=0.9+sliminfer").has_value());
  EXPECT_DOUBLE_EQ(*AutoLoss("auto"), 0.01);
  EXPECT_DOUBLE_EQ(*AutoLoss("auto:loss=5%"), 0.05);
  EXPECT_DOUBLE_EQ(*AutoLoss("auto:loss=0.05"), 0.05);
  EXPECT_DOUBLE_EQ(*AutoLoss("auto:loss=0"), 0);
  EXPECT_THAT(ErrorOf([] { AutoLoss("auto+ftp"); }), HasSubstr("auto+ftp: auto stands alone"));
  EXPECT_THAT(ErrorOf([] { AutoLoss("ftp+auto:loss=5%"); }), HasSubstr("auto stands alone"));
  EXPECT_THAT(ErrorOf([] { AutoLoss("auto:keep=5"); }), HasSubstr("unknown key 'keep'; auto has loss"));
  for (const char* loss : {"5", "-1%", "101%", "x", "%", "nan", "1%%"})
    EXPECT_THAT(ErrorOf([&] { AutoLoss(fmt::format("auto:loss={}", loss)); }),
                HasSubstr("neither a share like 5%"));
}

TEST(AutoChoice, TakesWhatCoversThePrompt) {
  const std::vector<json> entries = {Entry(0.01, 4096, "static:keep=0.5"),
                                     Entry(0.05, 4096, "static:keep=0.2"),
                                     Entry(0.01, 6000, "static:keep=0.4"), Entry(0.01, 16384, "none")};
  EXPECT_EQ(Choose(entries, 0.01, 4096).spec, "static:keep=0.5");
  EXPECT_EQ(
      Choose(entries, 0.01, 4096).reason,
      "calibration m.gguf.coppice.json: 1 % loss, 3,072 to 5,120 tokens: held-out 98.0 of dense 98.5, n=50");
  EXPECT_EQ(Choose(entries, 0.05, 4096).spec, "static:keep=0.2") << "the largest loss that was allowed";
  EXPECT_EQ(Choose(entries, 0.03, 4096).spec, "static:keep=0.5");
  EXPECT_EQ(Choose(entries, 0.01, 3072).spec, "static:keep=0.5");
  EXPECT_EQ(Choose(entries, 0.01, 4800).spec, "static:keep=0.5") << "both cover it, 4,096 is nearer";
  EXPECT_EQ(Choose(entries, 0.01, 5100).spec, "static:keep=0.4");
  EXPECT_EQ(Choose(entries, 0.05, 5100).spec, "static:keep=0.4") << "the nearer one, though it loses less";
  const ResolvedPrune none = Choose(entries, 0.01, 16000);
  EXPECT_EQ(none.spec, "none");
  EXPECT_THAT(none.reason, HasSubstr("12,288 to 20,480 tokens: dense, no setting kept the answers"));
}

TEST(AutoChoice, RunsDenseBesideWhatIsCovered) {
  const std::vector<json> entries = {Entry(0.01, 4096, "static:keep=0.5"),
                                     Entry(0.05, 4096, "static:keep=0.2"),
                                     Entry(0.05, 8192, "static:keep=0.2")};
  for (const int64_t tokens : {1, 3071, 5121, 100000}) {
    const ResolvedPrune resolved = Choose(entries, 0.01, tokens);
    EXPECT_EQ(resolved.spec, "none") << tokens;
    EXPECT_THAT(resolved.reason, HasSubstr("covers 3,072 to 5,120 tokens, the prompt has"));
  }
  EXPECT_THAT(Choose(entries, 0.05, 900).reason,
              HasSubstr("covers 3,072 to 5,120 tokens and 6,144 to 10,240 tokens, the "
                        "prompt has 900: dense"));
  EXPECT_THAT(Choose({Entry(0.01, 6000, "static"), Entry(0.01, 4096, "static")}, 0.01, 900).reason,
              HasSubstr("covers 3,072 to 7,500 tokens, the prompt has"))
      << "ranges that overlap are one";
  EXPECT_THAT(Choose(entries, 0.005, 4096).reason,
              HasSubstr("no setting of at most 0.5 % loss, its smallest is 1 %"));
  EXPECT_THAT(ChooseSetting({}, 0.01, 5, PromptStates::kKept).reason,
              HasSubstr("no calibration for this model: dense; `coppice tune -m MODEL`"));
}

TEST(AutoChoice, TheFileBesideTheModelComesFirst) {
  const Calibration beside = Parse(File({Entry(0.01, 4096, "static:keep=0.5")}));
  Calibration shipped = Parse(File({Entry(0.01, 4096, "static:keep=0.9"), Entry(0.01, 512, "ftp")}));
  shipped.source = "m.json (shipped)";
  EXPECT_EQ(ChooseSetting({beside, shipped}, 0.01, 4096, PromptStates::kKept).spec, "static:keep=0.5");
  EXPECT_EQ(ChooseSetting({beside, shipped}, 0.01, 512, PromptStates::kKept).spec, "ftp")
      << "what the first does not cover";
}

Request AskPruned(int64_t tokens, const std::string& prune) {
  Request request;
  for (int64_t i = 0; i < tokens; ++i) request.tokens.push_back(static_cast<int32_t>(3 + i % 1000));
  request.max_tokens = 2;
  request.sampling.temperature = 0;
  request.prune = prune;
  return request;
}

// The engine's answer with a calibration beside the model.
Answer AskBeside(const json& calibration, const Request& request) {
  const TempFolder dir;
  dir.Copy(kModel, "m.gguf");
  dir.Write("m.gguf.coppice.json", calibration.dump());
  return Engine::Load(dir.Path("m.gguf"), {.threads = 1})->Generate(request);
}

std::string FingerprintOfBundled() {
  const OpenedModel model = OpenModel(kModel);
  return WeightsFingerprintOf(*model.store, model.config);
}

TEST(AutoEngine, RunsTheSettingAndSaysSo) {
  const json file = File({Entry(0.01, 400, "static:keep=0.5,layer=5,min=0")}, FingerprintOfBundled());
  const Answer covered = AskBeside(file, AskPruned(400, "auto"));
  EXPECT_TRUE(covered.prune_active);
  EXPECT_THAT(covered.prune_spec, HasSubstr("static:"));
  EXPECT_EQ(covered.auto_cause, AutoReason::kPruned);
  EXPECT_THAT(covered.auto_reason, HasSubstr("calibration m.gguf.coppice.json: 1 % loss, 300 to 500 tokens"));
  const Answer other = AskBeside(file, AskPruned(200, "auto"));
  EXPECT_EQ(other.prune_spec, "none");
  EXPECT_THAT(other.auto_reason, HasSubstr("the prompt has 200: dense"));
  EXPECT_EQ(other.auto_cause, AutoReason::kLength);
  const Answer named = AskBeside(file, AskPruned(400, "static:min=0"));
  EXPECT_THAT(named.auto_reason, "");
  EXPECT_EQ(named.auto_cause, AutoReason::kNotAsked);
}

// The document cache of an engine keeps a prompt's states, if the request lets it.
TEST(AutoEngine, OneQuestionWithoutTheDocumentCache) {
  json entry = Entry(0.01, 400, "static:keep=0.5,layer=5,min=0");
  entry["one_question"] = OneQuestion("static:keep=0.5,layer=3,min=0");
  const TempFolder dir;
  dir.Copy(kModel, "m.gguf");
  dir.Write("m.gguf.coppice.json", File({entry}, FingerprintOfBundled()).dump());
  const auto spec = [&](bool cache, bool use, double least_confidence = 0) {
    EngineOptions options{.threads = 1};
    if (cache) options.documents = DocumentCacheOptions();
    Request request = AskPruned(400, "auto");
    request.use_documents = use;
    request.least_confidence = least_confidence;
    return Engine::Load(dir.Path("m.gguf"), options)->Generate(request).prune_spec;
  };
  EXPECT_THAT(spec(false, true), HasSubstr("layer=3"));
  EXPECT_THAT(spec(true, false), HasSubstr("layer=3"));
  EXPECT_THAT(spec(true, true), HasSubstr("layer=5"));
  EXPECT_THAT(spec(false, true, 1e-9), HasSubstr("layer=5")) << "a fallback reads the states that were kept";
}

TEST(AutoEngine, OtherWeightsAndDamagedFiles) {
  const Answer other = AskBeside(File({Entry(0.01, 400, "static:min=0")}, "beef"), AskPruned(400, "auto"));
  EXPECT_EQ(other.prune_spec, "none");
  EXPECT_THAT(other.auto_reason, HasSubstr("m.gguf.coppice.json is of other weights: dense"));
  EXPECT_EQ(other.auto_cause, AutoReason::kOtherWeights);
  EXPECT_THAT(ErrorOf([] { AskBeside(json(5), AskPruned(400, "auto")); }), HasSubstr("m.gguf.coppice.json"));
  EXPECT_THAT(ErrorOf([] {
                AskBeside(File({Entry(0.01, 400, "static:layer=99")}, FingerprintOfBundled()),
                          AskPruned(400, "auto"));
              }),
              HasSubstr("entries[0].prune: static: layer=99"));
  EXPECT_EQ(AskBeside(json(5), AskPruned(20, "none")).prune_spec, "none")
      << "who does not ask does not read it";
}

TEST(Calibrations, ThoseThatAreShippedAreGood) {
  for (const EmbeddedFile& file : CalibrationFiles()) {
    const Calibration calibration = ParseCalibration(file.content, std::string(file.name));
    EXPECT_EQ(calibration.fingerprint.size(), 32u) << file.name;
    // A change of defaults must not silently end what is shipped: tune again, or write the old values out.
    const json model = json::parse(file.content)["model"];
    ModelShape shape;
    shape.architecture = model["architecture"];
    shape.layers.resize(model["layers"].get<size_t>());
    const Calibration checked = CheckedFor(shape, calibration);
    for (size_t i = 0; i < checked.entries.size(); ++i) {
      EXPECT_EQ(checked.entries[i].setting.prune, calibration.entries[i].setting.prune) << file.name;
      EXPECT_EQ(checked.entries[i].one_question.has_value(), calibration.entries[i].one_question.has_value())
          << file.name;
    }
  }
}

TEST(WeightsFingerprint, KnowsWeightsAndNothingElse) {
  const OpenedModel one = OpenModel(kModel), again = OpenModel(kModel);
  const std::string print = WeightsFingerprintOf(*one.store, one.config);
  EXPECT_EQ(print, "bb2e035af2875931a3c2c931be3b4e04") << "calibration files hold it: it must not change";
  EXPECT_EQ(print, WeightsFingerprintOf(*again.store, again.config));
  const OpenedModel other = OpenModel(std::string(COPPICE_SOURCE_DIR) + "/models/coppice-12-q8_0.gguf");
  EXPECT_NE(print, WeightsFingerprintOf(*other.store, other.config));
  ModelConfig stretched = one.config;
  stretched.ropes.front().base *= 2;
  EXPECT_NE(print, WeightsFingerprintOf(*one.store, stretched));
}

}  // namespace
}  // namespace coppice
