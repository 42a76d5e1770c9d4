#include "eval/paper/paper_drawings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/paper/paper_page.h"
#include "eval/trace_sums.h"

namespace coppice::paper_drawings_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const PaperTable& TableOf(const Paper& paper, const std::string& id) {
  for (const PaperTable& table : paper.tables) {
    if (table.id == id) return table;
  }
  throw std::out_of_range(id);
}

ResultRow RowOf(const std::string& task, int64_t length, const std::string& prune, double score) {
  ResultRow row;
  row.task = task;
  row.length = length;
  row.prune = prune;
  row.score = score;
  row.n = 1;
  row.generated_tokens = 5;
  row.kept_per_layer = std::vector<double>(32, 1);
  return row;
}

TEST(PaperDrawings, ProbesAreACurveByLayerBesideDense) {
  const Paper paper = MakePaper("sliminfer", {});
  const PaperTable& table = TableOf(paper, "figure-2");
  EXPECT_FALSE(CurvesFigure(table, {}));
  PaperRows rows;
  for (const PaperMethod& method : table.methods)
    rows["figure-2"].push_back(RowOf("niah", 4096, method.specs.front(), method.x < 10 ? 0 : 90));
  const std::optional<Svg> figure = PaperFigure(table, rows, "m");
  ASSERT_TRUE(figure);
  EXPECT_THAT(figure->Element(), HasSubstr("needle&#39;s blocks dropped"));
  EXPECT_THAT(figure->Element(), HasSubstr("dropped before layer"));
  EXPECT_THAT(FillTable(table, rows, "m").lines[1].cells, ElementsAre("", "before layer 1", "0.00"));
}

TEST(PaperDrawings, TokenUseHasACurveForEachStage) {
  const Paper paper = MakePaper("lazyllm", {});
  const PaperTable& table = TableOf(paper, "figure-8");
  EXPECT_FALSE(TokenUseOfStages(table, {}));
  PaperRows rows;
  for (const std::string& task : LongBenchTasks()) {
    rows["longbench"].push_back(RowOf(task, 0, "none", 50));
    rows["longbench"].push_back(RowOf(task, 0, table.methods.front().specs.front(), 50));
    rows["longbench"].back().used_by_step = {
        {0.5, 0.7}, {0.125, 0.2}, {{0, {1}}, {10, {0.5, 0.75}}, {20, {0.25, 0.3}}, {30, {0.125, 0.2}}}};
  }
  const PaperSheet sheet = FillTable(table, rows, "m");
  ASSERT_EQ(sheet.lines.size(), 1u);
  EXPECT_THAT(sheet.lines[0].cells, ElementsAre("m", "LazyLLM", "100.00", "100.00", "50.00", "75.00", "25.00",
                                                "30.00", "12.50", "20.00"));
  const std::optional<Svg> figure = PaperFigure(table, rows, "m");
  ASSERT_TRUE(figure);
  for (const char* stage : {"layers 0 to 9", "layers 10 to 19", "layers 20 to 29", "layers 30 to 31"})
    EXPECT_THAT(figure->Element(), HasSubstr(stage));
}

TEST(PaperDrawings, HeatMapsAreOfTheMethodsThatLeaveTokensOut) {
  const Paper paper = MakePaper("ftp", {});
  const PaperTable& table = TableOf(paper, "heat-map");
  PaperRows rows;
  rows["heat-map"] = {RowOf("kamradt", 8192, "none", 100),
                      RowOf("kamradt", 8192, table.methods[1].specs.front(), 100)};
  EXPECT_FALSE(PlacesFigure(table, rows)) << "nothing was skipped";
  rows["heat-map"][1].ffn_skipped_by_place.assign(31, std::vector<double>(kPlaces, 0.5));
  rows["heat-map"][1].dropped_by_place.assign(32, std::vector<double>(kPlaces, 0.5));
  const std::optional<Svg> figure = PaperFigure(table, rows, "m");
  ASSERT_TRUE(figure);
  EXPECT_THAT(figure->Element(), HasSubstr("FTP, eta 0.90"));
  EXPECT_THAT(figure->Element(), Not(HasSubstr("Baseline")));
  EXPECT_THAT(figure->Element(), HasSubstr("skip the FFN"));
  EXPECT_THAT(figure->Element(), HasSubstr(">30</text>"));
  EXPECT_THAT(figure->Element(), Not(HasSubstr(">31</text>"))) << "the last layer runs its FFN once";
}

}  // namespace
}  // namespace coppice::paper_drawings_test
