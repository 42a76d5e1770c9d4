// The tables of the papers: that their data hold together, and how a table is filled.
#include "eval/paper/paper.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "eval/paper/paper_page.h"
#include "eval/paper/paper_run.h"
#include "eval/paper/sheet.h"
#include "eval/task.h"
#include "policies/registry.h"
#include "test_files.h"

namespace coppice::paper_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

const char* const kPapers[] = {"lazyllm", "ftp", "sdtp", "sliminfer"};

TEST(Paper, EveryPublishedFigureHasItsPlace) {
  for (const char* name : kPapers) {
    const Paper paper = MakePaper(name, {});
    std::set<std::string> ids;
    for (const PaperTable& table : paper.tables) {
      SCOPED_TRACE(paper.name + " " + table.id);
      EXPECT_TRUE(ids.insert(table.id).second);
      const size_t columns = table.wide ? table.groups.size() : table.measures.size();
      for (const PublishedRow& row : table.published) {
        EXPECT_EQ(row.values.size(), columns) << row.model << " " << row.method;
        EXPECT_TRUE(std::any_of(table.methods.begin(), table.methods.end(), [&](const PaperMethod& method) {
          return method.label == row.method;
        })) << row.method;
        EXPECT_TRUE(table.wide ? row.group.empty()
                               : std::any_of(table.groups.begin(), table.groups.end(),
                                             [&](const PaperGroup& g) { return g.label == row.group; }))
            << row.group;
        EXPECT_TRUE(std::any_of(row.values.begin(), row.values.end(), [](double v) { return v > 0; }));
      }
    }
  }
}

TEST(Paper, EveryGroupIsRun) {
  for (const char* name : kPapers) {
    const Paper paper = MakePaper(name, {});
    for (const PaperTable& table : paper.tables) {
      for (const PaperGroup& group : table.groups) {
        if (group.average) continue;
        SCOPED_TRACE(paper.name + " " + table.id + " " + group.label);
        const PaperRun& run = paper.Run(group.run);
        for (const std::string& task : group.tasks) {
          EXPECT_THAT(run.tasks, Contains(task));
          EXPECT_EQ(FindTasks(task).size(), 1u);
        }
        if (run.lengths.empty()) {
          EXPECT_EQ(group.length, 0);
        } else {
          EXPECT_THAT(run.lengths, Contains(group.length));
        }
      }
    }
  }
}

// Specs that need a file of the user are checked when the file is there.
TEST(Paper, EverySettingIsAccepted) {
  size_t accepted = 0;
  for (const int layers : {10, 24, 28, 32}) {
    const ModelShape shape{
        .architecture = "llama",
        .name = {},
        .hidden = 256,
        .vocab = 256,
        .layers = std::vector<LayerShape>(static_cast<size_t>(layers),
                                          {.heads = 8, .kv_heads = 4, .head_dim = 32, .ffn = 512})};
    // Methods open these when a prompt is there, so no file is needed. SDTP's predictors are read at once.
    const PaperModel model{.shape = shape,
                           .compressor = "a,b+c.gguf",
                           .classifier = "lingua,2",
                           .small_classifier = "lingua \"small\""};
    for (const char* name : kPapers) {
      for (const PaperTable& table : MakePaper(name, model).tables) {
        for (const PaperMethod& method : table.methods) {
          EXPECT_TRUE(!method.specs.empty() || !method.missing.empty()) << table.id << " " << method.label;
          for (const std::string& spec : method.specs) {
            SCOPED_TRACE(spec);
            EXPECT_TRUE(spec == "none" || spec.ends_with("min=0")) << "the papers prune every length";
            EXPECT_NO_THROW(MakePolicy(spec, {.shape = shape, .tokens = 40000}, {}));
            ++accepted;
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 300u);
}

TEST(Paper, UnknownNamesSayWhatThereIs) {
  EXPECT_THAT(ErrorOf([] { MakePaper("gemfilter", {}); }),
              HasSubstr("paper gemfilter: there are lazyllm, ftp, sdtp, sliminfer"));
  EXPECT_THAT(ErrorOf([] { TablesOf(MakePaper("lazyllm", {}), "9"); }),
              HasSubstr("table 9: lazyllm has 1, 2, figure-6"));
  EXPECT_EQ(TablesOf(MakePaper("lazyllm", {}), "").size(), 4u);
}

TEST(Paper, AFigureIsATable) {
  EXPECT_EQ(FigureId(MakePaper("lazyllm", {}), "8"), "figure-8");
  EXPECT_EQ(FigureId(MakePaper("ftp", {}), "heat-map"), "heat-map");
  for (const char* figure : {"3", "longbench", "figure-2", ""})
    EXPECT_THAT(ErrorOf([&] { FigureId(MakePaper("sliminfer", {}), figure); }),
                HasSubstr(fmt::format("figure {}: sliminfer has 2, 7", figure)));
  EXPECT_THAT(ErrorOf([] { Check(PaperOptions{.paper = "lazyllm", .figure = "1"}); }),
              HasSubstr("figure 1: lazyllm has 6, 8"))
      << "a table is no figure";
  EXPECT_NO_THROW(Check(PaperOptions{.paper = "sliminfer", .figure = "2"})) << "figure 2, not table 2";
  EXPECT_THAT(ErrorOf([] { Check(PaperOptions{.paper = "ftp", .table = "1", .figure = "heat-map"}); }),
              HasSubstr("not together with a table"));
}

// The stages of figure 8 are those of the method's own setting, which tables 1 and 2 run, too.
TEST(Paper, LazyLlmsStagesAreTheMethods) {
  const auto columns = [](const ModelShape& shape) {
    const Paper paper = MakePaper("lazyllm", {.shape = shape});
    const PaperTable& figure = paper.tables.back();
    EXPECT_EQ(figure.methods.back().specs, paper.tables.front().methods.back().specs);
    std::vector<std::string> labels;
    for (size_t g = 0; g < figure.groups.size(); g += 2) labels.push_back(figure.groups[g].label);
    return labels;
  };
  EXPECT_THAT(
      columns({.architecture = "llama", .name = "coppice-mini", .layers = std::vector<LayerShape>(10)}),
      ElementsAre("layers 0 to 3, prefill", "layers 4 to 5, prefill", "layers 6 to 7, prefill",
                  "layers 8 to 9, prefill"));
  EXPECT_THAT(columns({.architecture = "llama", .name = "another", .layers = std::vector<LayerShape>(10)}),
              ElementsAre("layers 0 to 2, prefill", "layers 3 to 5, prefill", "layers 6 to 8, prefill",
                          "layers 9 to 9, prefill"));
  EXPECT_THAT(columns({.architecture = "llama", .name = {}, .layers = std::vector<LayerShape>(1)}),
              ElementsAre("layers 0 to 0, prefill"));
}

TEST(Paper, FilesOfTheUserMakeMethodsRun) {
  const auto specs = [](const PaperModel& model) {
    return MakePaper("sdtp", model).tables.front().methods.back().specs;
  };
  EXPECT_TRUE(specs({}).empty());
  EXPECT_THAT(specs({.predictors = "p.safetensors"}),
              ElementsAre("sdtp:file=p.safetensors,preset=file,min=0"));
  EXPECT_THAT(specs({.predictors = "p,1+2"}), ElementsAre("sdtp:file=\"p,1+2\",preset=file,min=0"));
}

// Rows as a run gives them.
ResultRow RowOf(const std::string& task, const std::string& prune, double score, double speed_up) {
  ResultRow row;
  row.task = task;
  row.length = 4096;
  row.prune = prune;
  row.score = score;
  row.speed_up = speed_up;
  row.total_speed_up = speed_up / 2;
  row.n = 3;
  row.active = 3;
  return row;
}

PaperTable TwoGroups() {
  return {.id = "t",
          .title = "two groups",
          .source = "nowhere",
          .groups = {{.label = "A", .run = "r", .tasks = {"a/1", "a/2"}},
                     {.label = "B", .run = "r", .tasks = {"b/1"}},
                     {.label = "Mean", .average = true}},
          .methods = {{"Baseline", {"none"}}, {"Two seeds", {"x:seed=1", "x:seed=2"}}},
          .measures = {PaperMeasure::kScore, PaperMeasure::kTtftSpeedUp},
          .published = {{"Model P", "A", "Two seeds", {12.5, kNotGiven}}}};
}

PaperRows RowsOfTwoGroups() {
  PaperRows rows;
  for (const char* task : {"a/1", "a/2", "b/1"}) {
    const double base = task[0] == 'a' ? (task[2] == '1' ? 10 : 30) : 50;
    rows["r"].push_back(RowOf(task, "none", base, 1));
    rows["r"].push_back(RowOf(task, "x:seed=1", base - 2, task[2] == '1' ? 2 : 8));
    rows["r"].push_back(RowOf(task, "x:seed=2", base - 4, task[2] == '1' ? 2 : 8));
  }
  return rows;
}

TEST(Sheet, MeansOverTasksSeedsAndGroups) {
  const PaperSheet sheet = FillTable(TwoGroups(), RowsOfTwoGroups(), "m.gguf");
  ASSERT_EQ(sheet.columns.size(), 5u);
  EXPECT_EQ(sheet.columns[2].block, "m.gguf");
  EXPECT_EQ(sheet.columns[4].block, "Model P, published");
  EXPECT_EQ(sheet.columns[4].name, "score") << "a column that the paper does not give is left out";
  ASSERT_EQ(sheet.lines.size(), 6u);
  EXPECT_THAT(sheet.lines[0].cells, ElementsAre("A", "Baseline", "20.00", "1.00", ""));
  // Scores: the mean of 8, 28, 6 and 26. Ratios: the geometric mean of 2, 8, 2 and 8.
  EXPECT_THAT(sheet.lines[1].cells, ElementsAre("", "Two seeds", "17.00", "4.00", "12.50"));
  EXPECT_THAT(sheet.lines[3].cells, ElementsAre("", "Two seeds", "47.00", "2.00", ""));
  EXPECT_THAT(sheet.lines[4].cells, ElementsAre("Mean", "Baseline", "35.00", "1.00", ""));
  EXPECT_THAT(sheet.lines[5].cells, ElementsAre("", "Two seeds", "32.00", "2.83", ""));
  EXPECT_THAT(sheet.notes, ElementsAre("3 samples of each task"));
}

TEST(Sheet, AMissingTaskLeavesScoresBlankAndRatiosOfTheOthers) {
  PaperRows rows = RowsOfTwoGroups();
  std::erase_if(rows["r"], [](const ResultRow& row) { return row.task == "a/2"; });
  const PaperSheet sheet = FillTable(TwoGroups(), rows, "m.gguf", {"no data: a/2"});
  EXPECT_THAT(sheet.lines[1].cells, ElementsAre("", "Two seeds", "", "2.00", "12.50"));
  EXPECT_THAT(sheet.lines[3].cells, ElementsAre("", "Two seeds", "47.00", "2.00", ""));
  EXPECT_THAT(sheet.lines[5].cells, ElementsAre("", "Two seeds", "", "2.00", "")) << "no mean of a part";
  EXPECT_EQ(sheet.notes.front(), "no data: a/2");
}

TEST(Sheet, AMethodThatCannotRunIsSaidAndBlank) {
  PaperTable table = TwoGroups();
  table.methods[1].specs.clear();
  table.methods[1].missing = "needs a file";
  const PaperSheet sheet = FillTable(table, RowsOfTwoGroups(), "m.gguf");
  EXPECT_THAT(sheet.lines[1].cells, ElementsAre("", "Two seeds", "", "", "12.50"));
  EXPECT_THAT(sheet.notes, Contains("Two seeds needs a file"));
}

TEST(Sheet, AWideTableHasALineForEachMethodAndTheMeanOfItsScores) {
  PaperTable table = TwoGroups();
  table.wide = true;
  table.measures.clear();
  table.groups.push_back({.label = "end to end x",
                          .run = "r",
                          .tasks = {"a/1", "a/2", "b/1"},
                          .measure = PaperMeasure::kTotalSpeedUp});
  table.published = {{"Model P", "", "Baseline", {kNotGiven, kNotGiven, 40.5, kNotGiven}},
                     {"Model P", "", "Two seeds", {kNotGiven, kNotGiven, 39, 1.5}}};
  const PaperSheet sheet = FillTable(table, RowsOfTwoGroups(), "m.gguf");
  ASSERT_EQ(sheet.lines.size(), 4u);
  EXPECT_THAT(sheet.lines[0].cells, ElementsAre("m.gguf", "Baseline", "20.00", "50.00", "35.00", "0.50"));
  EXPECT_THAT(sheet.lines[1].cells, ElementsAre("", "Two seeds", "17.00", "47.00", "32.00", "1.59"));
  EXPECT_THAT(sheet.lines[2].cells, ElementsAre("Model P, published", "Baseline", "", "", "40.50", ""));
  EXPECT_TRUE(sheet.lines[3].published);
}

TEST(Sheet, LazyLlmsFirstTableHasThePapersShape) {
  const Paper paper = MakePaper("lazyllm", {});
  const PaperSheet sheet = FillTable(paper.tables[0], {}, "m.gguf");
  ASSERT_EQ(sheet.columns.size(), 2u + 3 + 2 + 2);
  ASSERT_EQ(sheet.lines.size(), 7u * 5);
  EXPECT_THAT(sheet.lines[5].cells,
              ElementsAre("Multi-document QA", "Baseline", "", "", "", "22.43", "1.00", "20.71", "1.00"));
  EXPECT_THAT(sheet.lines[9].cells, ElementsAre("", "LazyLLM", "", "", "", "22.31", "2.34", "20.68", "2.65"));
  EXPECT_EQ(sheet.lines[30].cells[0], "Macro-average");
}

TEST(Sheet, WinRatesAreOfTheJudgesVerdicts) {
  const Paper paper = MakePaper("ftp", {});
  const PaperTable table = TablesOf(paper, "5").front();
  PaperRows rows;
  for (const PaperGroup& group : table.groups) {
    if (group.average) continue;
    rows["leval-open"].push_back(RowOf(group.tasks.front(), "none", 20, 1));
    rows["leval-open"].push_back(RowOf(group.tasks.front(), table.methods[1].specs.front(), 18, 1.5));
    rows["leval-open"].back().win_rate = group.label == "news_summ" ? 20 : 46;
  }
  const PaperSheet sheet = FillTable(table, rows, "m.gguf");
  EXPECT_EQ(sheet.columns[2].name, "win rate %");
  EXPECT_THAT(sheet.lines[0].cells, ElementsAre("financial_qa", "Baseline", "", "20.00", "1.00", "0.50"));
  EXPECT_EQ(sheet.lines[1].cells[2], "46.00");
  const std::vector<std::string>& average = sheet.lines[table.groups.size() * 3 - 2].cells;
  EXPECT_EQ(average[1], table.methods[1].label);
  EXPECT_EQ(average[2], "44.00") << "12 of 46, one of 20";
}

TEST(Sheet, LengthsOfTheUserReplaceThePapers) {
  Paper paper = MakePaper("sdtp", {});
  ReplaceLengths({512, 4096}, paper);
  EXPECT_THAT(paper.Run("lengths").lengths, ElementsAre(512, 4096));
  EXPECT_THAT(paper.Run("longbench").lengths, ElementsAre(4096));
  const PaperTable& table = paper.tables.front();
  ASSERT_EQ(table.groups.size(), 2u);
  EXPECT_EQ(table.groups[0].label, "512");
  const PaperSheet sheet = FillTable(table, {}, "m.gguf");
  EXPECT_EQ(sheet.lines[2].cells[0], "4K");
  EXPECT_EQ(sheet.lines[3].cells[8], "47.81") << "the published figures of that length stay beside it";
}

// LongBench's categories become the tasks, and published figures, which are not of these tasks, go.
TEST(Sheet, TasksOfTheUserReplaceLongBench) {
  Paper paper = MakePaper("lazyllm", {});
  ReplaceTasks({"niah", "kv_retrieval/75"}, paper);
  EXPECT_THAT(paper.Run("longbench").tasks, ElementsAre("niah", "kv_retrieval/75"));
  const PaperTable& tall = paper.tables[0];
  ASSERT_EQ(tall.groups.size(), 3u);
  EXPECT_EQ(tall.groups[1].label, "kv_retrieval/75");
  EXPECT_TRUE(tall.groups[2].average);
  EXPECT_TRUE(tall.published.empty());
  const PaperTable& wide = paper.tables[2];
  ASSERT_EQ(wide.groups.size(), 5u) << "two tasks, their mean, and two ratios of both";
  EXPECT_THAT(wide.groups[4].tasks, ElementsAre("niah", "kv_retrieval/75"));
  const PaperTable& stages = paper.tables[3];
  EXPECT_EQ(stages.groups.size(), 8u) << "its columns are layers";
  EXPECT_THAT(stages.groups[0].tasks, ElementsAre("niah", "kv_retrieval/75"));
}

TEST(PaperPage, HoldsTablesFiguresAndNotesAsText) {
  const PaperTable table = TwoGroups();
  const PaperRows rows = RowsOfTwoGroups();
  const std::optional<Svg> figure = PaperFigure(table, rows, "m.gguf");
  ASSERT_TRUE(figure);
  const std::string page = PageText({.title = "A <paper>",
                                     .model = "m.gguf",
                                     .tables = {{FillTable(table, rows, "m.gguf", {"1 < 2"}), figure}},
                                     .reports = {"p-r/report.html"}});
  EXPECT_THAT(page, HasSubstr("A &lt;paper&gt;"));
  EXPECT_THAT(page, HasSubstr("<li>1 &lt; 2</li>"));
  EXPECT_THAT(page, HasSubstr("colspan=\"2\">m.gguf</th>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"first published\">12.50</td>"));
  EXPECT_THAT(page, HasSubstr("href=\"p-r/report.html\""));
  EXPECT_THAT(page, HasSubstr("<svg"));
  EXPECT_FALSE(PaperFigure(MakePaper("lazyllm", {}).tables[2], rows, "m.gguf")) << "a wide table";
}

}  // namespace
}  // namespace coppice::paper_test
