// Whole reports from rows that are made up: the numbers that figures show, what is left out and why, hostile
// names.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "eval/report/figures/figures.h"
#include "eval/report/markdown.h"
#include "eval/report/page.h"
#include "eval/report/svg_test_support.h"
#include "test_files.h"

namespace coppice::report_test {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int kLayers = 6;

ordered_json Row(const std::string& task, int64_t length, const std::string& prune, double score,
                 double speed_up) {
  const bool dense = prune == "none";
  const double kept = dense ? 1 : 0.5;
  ordered_json row = {
      {"task", task},
      {"length", length},
      {"prune", prune},
      {"metric", task == "perplexity" ? "perplexity" : "number_match"},
      {"score", score},
      {"score_error", 3.0},
      {"score_interval", {score - 10, score + 4}},
      {"n", 10},
      {"ttft_ms", static_cast<double>(length) / speed_up},
      {"speed_up", speed_up},
      {"flops_ratio", kept},
      {"kl", dense ? 0 : 0.25},
      {"active", dense ? 0 : 10},
      {"spec", dense ? "none" : prune + ",block=64"},
      {"total_ms", 2.0 * static_cast<double>(length)},
      {"generated_tokens", 8},
      {"peak_held_bytes", 1024.0 * static_cast<double>(length)},
      {"peak_memory_bytes", 1e8},
      {"kept_per_layer", std::vector<double>(kLayers, kept)},
      {"ffn_per_layer", std::vector<double>(kLayers, kept)},
      {"parts_ms",
       {{"product", 0.25 * static_cast<double>(length)}, {"attention", 0.125 * static_cast<double>(length)}}},
      {"used_by_step", {{"all", {kept, 0.75}}, {"last", {kept}}}}};
  if (!dense)
    row["dropped_by_place"] = std::vector<std::vector<double>>(kLayers, std::vector<double>(10, 0.5));
  if (dense)
    row["attention_mass"] = std::vector<std::vector<double>>(kLayers - 1, std::vector<double>(20, 0.95));
  if (task == "niah")
    row["by_depth"] = {{{"depth", 0.0}, {"score", score}, {"n", 5}},
                       {{"depth", 1.0}, {"score", 50}, {"n", 5}}};
  return row;
}

const std::vector<std::string> kMethods = {"none", "ftp:eta=0.9", "ftp:eta=0.8",
                                           "sliminfer:keep=0.25/0.125/0.0625,min=0",
                                           "sliminfer:keep=0.25/0.125/0.0625,min=0+ftp"};

ordered_json Rows() {
  ordered_json rows = ordered_json::array();
  for (const char* task : {"niah", "ruler/vt"}) {
    for (const int64_t length : {1024, 4096}) {
      double score = 100;
      for (const std::string& prune : kMethods) {
        rows.push_back(Row(task, length, prune, score, prune == "none" ? 1 : 2));
        score -= 10;
      }
    }
  }
  return rows;
}

ordered_json Settings() { return {{"model", "/models/mini.gguf (15 bytes)"}, {"seed", 1}}; }

std::string BodyOf(const std::string& page) {
  const size_t begin = page.find("<body>");
  return page.substr(begin, page.find("</html>") - begin);
}

const Figure& Find(const std::vector<Figure>& figures, const std::string& id) {
  for (const Figure& figure : figures) {
    if (figure.id == id) return figure;
  }
  throw Error("no figure {}", id);
}

TEST(Report, EveryFigureIsThereAndWhole) {
  const ReportData data(RowsFromJson(Rows()), Settings());
  std::set<std::string> ids;
  for (const Figure& figure : Figures(data)) {
    EXPECT_EQ(figure.missing, "") << figure.id;
    EXPECT_TRUE(ids.insert(figure.id).second);
    EXPECT_NE(figure.picture.has_value(), !figure.html.empty()) << figure.id;
    if (!figure.picture) continue;
    const std::string svg = figure.picture->Element();
    EXPECT_EQ(MarkupFault(svg), "") << figure.id;
    EXPECT_THAT(svg, Not(HasSubstr("nan"))) << figure.id;
    EXPECT_GT(figure.numbers.size(), 1u) << figure.id;
    const std::vector<TextBox> boxes = TextBoxes(svg);
    for (size_t i = 0; i < boxes.size(); ++i) {
      EXPECT_GE(boxes[i].left, 0) << figure.id << ": " << boxes[i].text;
      EXPECT_LE(boxes[i].right, figure.picture->width()) << figure.id << ": " << boxes[i].text;
      EXPECT_LE(boxes[i].bottom, figure.picture->height()) << figure.id << ": " << boxes[i].text;
      for (size_t j = 0; j < i; ++j)
        EXPECT_FALSE(Overlap(boxes[i], boxes[j]))
            << figure.id << ": " << boxes[i].text << ", " << boxes[j].text;
    }
  }
  EXPECT_EQ(ids.size(), 12u);
}

TEST(Report, NumbersAreThoseOfTheRows) {
  const ReportData data(RowsFromJson(Rows()), Settings());
  ASSERT_EQ(data.arms().size(), 5u);
  EXPECT_EQ(data.model(), "mini.gguf (15 bytes)");
  EXPECT_EQ(data.Scored().size(), 4u);
  EXPECT_DOUBLE_EQ(data.Score(1), 90);
  EXPECT_DOUBLE_EQ(data.MeanInterval(data.Scored(), 1).low, 85);  // 10 and 4 over the root of four tasks
  EXPECT_DOUBLE_EQ(data.MeanInterval(data.Scored(), 1).high, 92);
  const std::vector<Figure> figures = Figures(data);
  EXPECT_THAT(Find(figures, "accuracy-ttft").numbers[2],
              ElementsAre("ftp eta=0.9", "50 %", "90.0", "85 to 92"));
  EXPECT_THAT(Find(figures, "accuracy-flops").numbers[1],
              ElementsAre("dense", "100 %", "100.0", "95 to 100"));
  EXPECT_THAT(Find(figures, "needles").numbers[1], ElementsAre("dense", "1k", "0 %", "100 %"));
  EXPECT_THAT(Find(figures, "computed").numbers[2], ElementsAre("ftp eta=0.9", "50 %", "75 %", "50 %"));
  EXPECT_THAT(Find(figures, "lengths").numbers[1],
              ElementsAre("Time to first token", "dense", "1024", "1.02 s"));
  EXPECT_THAT(Find(figures, "lengths").numbers[5 * 2 * 2 + 2],
              ElementsAre("Held at most: keys, values, parked states", "dense", "4096", "4 MiB"));
  EXPECT_THAT(Find(figures, "drop-by-layer").numbers[1], ElementsAre("ftp eta=0.9", "0", "50 %"));
  EXPECT_THAT(Find(figures, "token-use").numbers[2],
              ElementsAre("In all layers", "ftp eta=0.9", "50 %", "75 %"));
  EXPECT_THAT(Find(figures, "attention-mass").numbers[1], ElementsAre("1k tokens", "layer 0", "5 %", "95 %"));
  EXPECT_THAT(Find(figures, "modules").numbers[2],
              ElementsAre("1k tokens", "ftp eta=0.9", "0 %", "25 %", "0 %", "12 %", "0 %", "0 %", "0 %",
                          "0 %", "12 %"));
  EXPECT_THAT(Find(figures, "sweeps").numbers[1], ElementsAre("ftp", "eta", "0.8", "80 %", "2x"));
  EXPECT_THAT(Find(figures, "scores").html, HasSubstr(">90.0 <i>(80 to 94)</i><small>2x</small>"));
}

// A row that is dense says so where its score is, and why below the table.
TEST(Report, AMethodThatStoodAsideIsDense) {
  ordered_json rows = Rows();
  for (const char* task : {"fewshot/copa", "fewshot/boolq"}) {
    for (const std::string& method : kMethods) rows.push_back(Row(task, 0, method, 58, 1));
    rows.back()["active"] = 0;
    rows.back()["reason"] = "sdtp: 431 prompt tokens are below its break-even of 1024";
  }
  const ReportData data(RowsFromJson(rows), Settings());
  const std::string note =
      kMethods.back() +
      " stood aside in 2 of 6 tasks, which are dense there (sdtp: 431 prompt tokens are below its break-even "
      "of 1024); with min=0 it prunes prompts of every length.";
  const std::string html = ScoreTable(data).html;
  EXPECT_THAT(html, HasSubstr(">dense: 58.0"));
  EXPECT_THAT(html, HasSubstr("<p class=\"aside\">" + note));
  EXPECT_THAT(MarkdownTables(data), HasSubstr("\n" + note));
  EXPECT_THAT(MarkdownTables(data), HasSubstr("dense: 58.0"));
  EXPECT_THAT(ScoreTable(ReportData(RowsFromJson(Rows()), Settings())).html, Not(HasSubstr("aside")));
}

TEST(Report, PerplexityIsNoScore) {
  ordered_json rows = Rows();
  rows.push_back(Row("perplexity", 1024, "none", 17, 1));
  for (size_t m = 1; m < kMethods.size(); ++m) rows.push_back(Row("perplexity", 1024, kMethods[m], 18, 2));
  const ReportData data(RowsFromJson(rows), Settings());
  EXPECT_DOUBLE_EQ(data.Score(0), 100);
  EXPECT_THAT(ScoreTable(data).html, HasSubstr("perplexity<small>1k tokens"));
}

// Where dense is at 0, or as near to it as chance may take it (2.5 percent, from -7.5 on), nothing can be
// lost: such a task would make every method look alike.
TEST(Report, MeansLeaveOutWhatDenseDoesNotAnswer) {
  ordered_json rows = Rows();
  for (const std::string& method : kMethods) {
    rows.push_back(Row("ruler/fwe", 1024, method, 0, 2));
    rows.push_back(Row("ruler/cwe", 1024, method, 2.5, 2));
  }
  const ReportData data(RowsFromJson(rows), Settings());
  EXPECT_EQ(data.Scored().size(), 4u);
  EXPECT_EQ(data.LeftOut(), 2u);
  EXPECT_DOUBLE_EQ(data.Score(1), 90);
  const std::vector<Figure> figures = Figures(data);
  for (const char* id : {"scores", "accuracy-ttft", "accuracy-flops", "sweeps"})
    EXPECT_THAT(Find(figures, id).note,
                HasSubstr("2 are left out, where dense's score cannot be told from 0"))
        << id;
}

TEST(Report, LevelSweepsAreNotStretchedToNoise) {
  ordered_json rows = Rows();
  for (ordered_json& row : rows) row["score"] = row["prune"] == "ftp:eta=0.8" ? 99.8 : 100;
  const std::string svg =
      Find(Figures(ReportData(RowsFromJson(rows), Settings())), "sweeps").picture->Element();
  EXPECT_THAT(svg, HasSubstr(">80 %</text>"));
  EXPECT_THAT(svg, HasSubstr(">90 %</text>"));
}

// Dense and what computes everything at once are one line, and dense's bar of times is whole even where
// medians and means differ.
TEST(Report, LinesThatAreDensesAreNotDrawn) {
  ordered_json rows = Rows();
  for (ordered_json& row : rows) {
    if (row["prune"] == "ftp:eta=0.9") row["used_by_step"] = {{"all", {1.0}}, {"last", {1.0}}};
    if (row["prune"] == "none") row["ttft_ms"] = row["ttft_ms"].get<double>() / 4;
  }
  const std::vector<Figure> figures = Figures(ReportData(RowsFromJson(rows), Settings()));
  const std::string svg = Find(figures, "token-use").picture->Element();
  EXPECT_THAT(svg, HasSubstr("ftp eta=0.8"));
  EXPECT_THAT(svg, Not(HasSubstr("ftp eta=0.9")));
  EXPECT_THAT(Find(figures, "modules").picture->Element(), HasSubstr("\">100 %</text>"));
}

TEST(Report, TablesAsMarkdown) {
  ordered_json rows = Rows();
  for (ordered_json& row : rows) {
    if (row["task"] == "ruler/vt" && row["prune"] == "ftp:eta=0.9") row["active"] = 0;
  }
  const std::string text = MarkdownTables(ReportData(RowsFromJson(rows), Settings()));
  EXPECT_THAT(text, HasSubstr("means of 4 tasks and lengths"));
  EXPECT_THAT(text, HasSubstr("| dense |  | 100.0 (95 to 100) | 100 % | 100 % | 0 |  |\n"));
  EXPECT_THAT(text,
              HasSubstr("| ftp eta=0.9 | `ftp:eta=0.9` | 90.0 (85 to 92) | 50 % | 50 % | 0.25 | 2 of 4 |\n"));
  EXPECT_THAT(text, HasSubstr("| method | niah 1024 | niah 4096 | ruler/vt 1024 | ruler/vt 4096 |\n"));
  EXPECT_THAT(text, HasSubstr("| ftp eta=0.9 | 90.0 (80 to 94) | 90.0 (80 to 94) |"));
  EXPECT_THAT(text, HasSubstr("| ftp eta=0.9 | 50 % | 50 % | aside | aside |\n"));
  EXPECT_THAT(text, HasSubstr("| dense |  |  |  |  |\n"));  // of divergences
  for (ordered_json& row : rows) {
    if (row["prune"] == "ftp:eta=0.9") row["prune"] = "selective:model=a|b.gguf";
  }
  EXPECT_THAT(MarkdownTables(ReportData(RowsFromJson(rows), Settings())),
              HasSubstr("`selective:model=a\\|b.gguf`"));
  EXPECT_EQ(MarkdownTables(ReportData({}, {})), "No sample has been answered yet.\n");
}

TEST(Report, WhatTheRunDoesNotHaveIsLeftOutWithTheReason) {
  ordered_json rows = ordered_json::array();
  rows.push_back(
      {{"task", "ruler/vt"}, {"length", 1024}, {"prune", "none"}, {"metric", "x"}, {"score", 50.0}});
  const ReportData data(RowsFromJson(rows), {});
  for (const Figure& figure : Figures(data)) {
    if (figure.id == "scores") continue;
    EXPECT_FALSE(figure.missing.empty()) << figure.id;
    EXPECT_FALSE(figure.picture.has_value()) << figure.id;
  }
  const std::string page = ReportPage(data);
  EXPECT_THAT(page, HasSubstr("such as 2048, 4096 and 8192"));
  EXPECT_THAT(page, HasSubstr("such as ftp:eta=0.9 and ftp:eta=0.8"));
  EXPECT_EQ(MarkupFault(BodyOf(page)), "");
  EXPECT_THAT(ReportPage(ReportData({}, {})), HasSubstr("no sample has been answered"));
}

TEST(Report, RowsOfTheWrongKindAreNoAccident) {
  ordered_json rows = Rows();
  for (const char* field :
       {"score", "score_interval", "by_depth", "parts_ms", "used_by_step", "attention_mass",
        "dropped_by_place", "kept_per_layer", "spec", "length", "active", "ttft_ms", "metric"}) {
    for (const ordered_json& value : {ordered_json("x"), ordered_json(nullptr), ordered_json::array({"y"}),
                                      ordered_json::object({{"all", 1}}), ordered_json(-1e300),
                                      ordered_json::array({ordered_json::array({1})})}) {
      ordered_json bad = rows;
      bad[0][field] = value;
      bad[3][field] = value;
      EXPECT_EQ(MarkupFault(ReportPage(ReportData(RowsFromJson(bad), Settings())).substr(200)).find("no tag"),
                std::string::npos)
          << field << " " << value;
    }
  }
}

TEST(Report, HostileNamesStayText) {
  const std::string evil = "</title><script>alert(1)</script>\" onmouseover='x' \xff\x01";
  ordered_json rows = Rows();
  for (ordered_json& row : rows) {
    if (row["prune"] == kMethods[1]) row["prune"] = evil;
    if (row["task"] == "niah") row["task"] = evil;
    row["reason"] = evil;
    row["spec"] = evil;
  }
  const std::string page = ReportPage(ReportData(RowsFromJson(rows), {{"model", evil}, {evil, evil}}));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("\" onmouseover")));
  EXPECT_EQ(MarkupFault(BodyOf(page)), "");
}

TEST(Report, ThePageNeedsNothingElse) {
  const std::string page = ReportPage(ReportData(RowsFromJson(Rows()), Settings()));
  EXPECT_EQ(page, ReportPage(ReportData(RowsFromJson(Rows()), Settings())));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* outside : {"http://", "https://", "<script", "<link", "src="})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  EXPECT_LT(page.size(), 400000u);
}

TEST(Report, AFolderBecomesAPageAndPictures) {
  const TempFolder temporary;
  const std::string& folder = temporary.path();
  const ordered_json arm = {{"prune", "none"},
                            {"score", 1},
                            {"ttft_ms", 5},
                            {"kept_per_layer", {1.0, 1.0}},
                            {"ffn_per_layer", {1.0, 1.0}}};
  const auto write = [&](const ordered_json& arms) {
    const ordered_json record = {{"task", "t"}, {"length", 8}, {"id", "0"}, {"arms", arms}};
    std::ofstream(folder + "/samples.jsonl") << "{\"settings\": {\"model\": \"m\"}}\n"
                                             << record.dump() << "\n{\"torn";
  };
  write(ordered_json::array({arm}));
  WriteReport(folder, {.pictures = folder + "/pictures", .markdown = folder + "/tables.md"});
  EXPECT_TRUE(std::filesystem::exists(folder + "/report.html"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/results.json"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/pictures/computed.svg"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/tables.md"));
  // The rows alone draw the same page, but for the settings.
  std::filesystem::rename(folder + "/results.json", folder + "/rows.json");
  EXPECT_EQ(WriteReport(folder + "/rows.json"), folder + "/rows.html");
  EXPECT_TRUE(std::filesystem::exists(folder + "/rows.html"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/results.json"));
  std::ofstream(folder + "/rows.json") << "{}";
  EXPECT_THROW(WriteReport(folder + "/rows.json"), Error);
  EXPECT_THROW(WriteReport(folder + "/none.json"), Error);
  const auto failure = [&]() -> std::string {
    try {
      WriteReport(folder);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  ordered_json bad = arm;
  bad["ttft_ms"] = "soon";
  write(ordered_json::array({bad}));
  EXPECT_THAT(failure(), HasSubstr("samples.jsonl"));
  write(ordered_json::array({"no object"}));
  EXPECT_THAT(failure(), HasSubstr("line 2 is no record"));
  std::filesystem::remove(folder + "/samples.jsonl");
  EXPECT_THAT(failure(), HasSubstr("samples.jsonl"));
}

}  // namespace
}  // namespace coppice::report_test
