#include "server/merged_metrics.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

TEST(MergedMetrics, OneFamilyStandsTogetherAndNamesItsModels) {
  MergedMetrics merged;
  merged.Add("a",
             "# HELP x_total Things.\n# TYPE x_total counter\nx_total 1\n# HELP y Others.\n# TYPE y gauge\n"
             "y{kind=\"k\"} 2\n");
  merged.Add("b\"",
             "# HELP x_total Things.\n# TYPE x_total counter\nx_total 3\n# HELP z Named.\n# TYPE z gauge\n"
             "z{model_name=\"own\"} 4\n");
  merged.Add("a", "# HELP n Open.\n# TYPE n gauge\nn 0\n");
  merged.Replace("n", 5);
  EXPECT_EQ(merged.Text(),
            "# HELP x_total Things.\n# TYPE x_total counter\nx_total{model_name=\"a\"} 1\n"
            "x_total{model_name=\"b\\\"\"} 3\n"
            "# HELP y Others.\n# TYPE y gauge\ny{model_name=\"a\",kind=\"k\"} 2\n"
            "# HELP z Named.\n# TYPE z gauge\nz{model_name=\"own\"} 4\n"
            "# HELP n Open.\n# TYPE n gauge\nn 5\n");
}

}  // namespace
}  // namespace coppice
