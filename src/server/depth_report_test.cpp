#include "server/depth_report.h"

#include <gtest/gtest.h>

#include <numeric>

#include "server/web_files.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

std::vector<int32_t> From(int32_t begin, int32_t end) {
  std::vector<int32_t> positions(static_cast<size_t>(end - begin));
  std::iota(positions.begin(), positions.end(), begin);
  return positions;
}

TEST(DepthReport, TellsEachLayerOnce) {
  DepthReport report(10);
  EXPECT_EQ(report.TakeLayers(), ordered_json::array());
  report.recorder().BeginPrefill(4, 10);
  report.recorder().Layer({.kept = From(0, 10), .ffn = From(0, 10)});
  report.recorder().Layer({.kept = From(0, 10), .ffn = {0, 1, 9}});
  EXPECT_EQ(report.TakeLayers(),
            ordered_json::parse(R"([{"layer": 0, "kept": [10]}, {"layer": 1, "ffn": [2, 7, 1]}])"));
  EXPECT_EQ(report.TakeLayers(), ordered_json::array());
  report.recorder().Layer({.kept = {3, 4, 6, 9}, .ffn = {3, 4, 6, 9}});
  report.recorder().Layer({.kept = {3, 4, 6}, .ffn = {}});
  EXPECT_EQ(report.TakeLayers(), ordered_json::parse(R"([{"layer": 2, "kept": [0, 3, 2, 1, 1, 2, 1]},
                                                         {"layer": 3, "kept": [0, 3, 2, 1, 1, 3],
                                                          "ffn": [0, 10]}])"));
}

TEST(DepthReport, CountsTheLayersOfEachToken) {
  DepthReport report(6);
  ordered_json prune = {{"spec", "x"}};
  report.AddDepths(prune);
  EXPECT_EQ(prune.size(), 1u) << "nothing was computed";
  report.recorder().BeginPrefill(3, 6);
  report.recorder().Layer({.kept = From(0, 6), .ffn = From(0, 6)});
  report.recorder().Layer({.kept = {0, 1, 5}, .ffn = {0, 1, 5}});
  report.AddDepths(prune);
  EXPECT_EQ(prune.size(), 1u) << "the prefill is under way";
  report.recorder().Layer({.kept = {0, 5}, .ffn = {5}});
  report.recorder().EndPrefill({}, 0);
  report.AddDepths(prune);
  EXPECT_EQ(prune["depth"], ordered_json::parse("[[3, 1], [2, 1], [1, 3], [3, 1]]"));
  EXPECT_FALSE(prune.contains("final_depth"));
  EXPECT_FALSE(prune.contains("ffn_depth")) << "the last layer computes one row in any run";
}

TEST(DepthReport, CountsWhatCameBackButNoGeneratedToken) {
  DepthReport report(3);
  TraceRecorder& recorder = report.recorder();
  recorder.BeginPrefill(2, 3);
  recorder.Layer({.kept = From(0, 3), .ffn = {2}});
  recorder.Layer({.kept = {2}, .ffn = {2}});
  recorder.EndPrefill({}, 0);
  recorder.BeginStep(3);
  const std::vector<int32_t> back = {1, 3};
  recorder.Event(1, TraceEventKind::kRevived, back);
  recorder.Event(1, TraceEventKind::kDropped, std::vector<int32_t>{0});
  recorder.EndStep({});
  ordered_json prune;
  report.AddDepths(prune);
  EXPECT_EQ(prune["depth"], ordered_json::parse("[[1, 2], [2, 1]]"));
  EXPECT_EQ(prune["final_depth"], ordered_json::parse("[[1, 1], [2, 2]]"));
  EXPECT_EQ(prune["ffn_depth"], ordered_json::parse("[[0, 2], [2, 1]]"));
}

TEST(DepthReport, PackedPositionsAreToldAsPromptTokens) {
  DepthReport report(8);
  report.recorder().BeginPrefill(1, 8, {1, 2, 7});
  report.recorder().Layer({.kept = {0, 1, 2}, .ffn = {2}});
  report.recorder().EndPrefill({}, 0);
  EXPECT_EQ(report.TakeLayers(), ordered_json::parse(R"([{"layer": 0, "kept": [0, 1, 2, 4, 1],
                                                          "ffn": [0, 7, 1]}])"));
  ordered_json prune;
  report.AddDepths(prune);
  EXPECT_EQ(prune["depth"], ordered_json::parse("[[0, 1], [1, 2], [0, 4], [1, 1]]"));
}

std::string_view FileNamed(std::string_view name) {
  for (const EmbeddedFile& file : WebFiles()) {
    if (file.name == name) return file.content;
  }
  return {};
}

// What a file names must be there: a browser would find out too late.
TEST(WebFiles, NameOnlyEachOther) {
  ASSERT_FALSE(FileNamed("server/index.html").empty());
  const std::pair<std::string_view, std::string_view> kMarks[] = {
      {"\"web/", ""}, {"from '../lib/", "lib/"}, {"from './", ""}};
  int named = 0;
  for (const EmbeddedFile& file : WebFiles()) {
    const std::string folder(file.name.substr(0, file.name.find('/') + 1));
    for (const auto& [mark, place] : kMarks) {
      for (size_t at = file.content.find(mark); at != std::string_view::npos;
           at = file.content.find(mark, at + 1)) {
        const std::string_view rest = file.content.substr(at + mark.size());
        const std::string name(rest.substr(0, rest.find_first_of("\"'")));
        const std::string whole = (mark == "from './" ? folder : std::string(place)) + name;
        EXPECT_FALSE(FileNamed(whole).empty()) << file.name << " names " << whole;
        ++named;
      }
    }
  }
  EXPECT_GT(named, 15);
}

// Texts of users and models must not become markup, and nothing may be asked of elsewhere.
TEST(WebFiles, HoldNothingThatThePolicyWouldRefuse) {
  for (const EmbeddedFile& file : WebFiles()) {
    for (const std::string_view bad : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                                       "eval(", "new Function", "https:", "javascript:", "@import", "url(",
                                       "<style", "<script>", " style=", " onclick=", " onload="}) {
      EXPECT_EQ(file.content.find(bad), std::string_view::npos) << file.name << " holds " << bad;
    }
    for (size_t at = file.content.find("http:"); at != std::string_view::npos;
         at = file.content.find("http:", at + 1)) {
      EXPECT_TRUE(file.content.substr(at).starts_with("http://www.w3.org/2000/svg")) << file.name;
    }
  }
}

}  // namespace
}  // namespace coppice
