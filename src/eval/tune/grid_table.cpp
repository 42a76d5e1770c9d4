#include "eval/tune/grid_table.h"

namespace coppice {

std::span<const GridMethod> GridTable() {
  static const std::vector<GridMethod> table = {
      {"coppice",
       true,
       false,
       {{"keep",
         {"0.6/0.4/0.2", "0.5/0.25/0.125", "0.35/0.15/0.08", "0.25/0.1/0.05", "0.18/0.08/0.04",
          "0.12/0.06/0.03"}},
        {"layers", {"@0.5/0.65/0.8", "@0.35/0.55/0.8", "@0.27/0.5/0.8", "@0.2/0.5/0.8"}},
        {"queries", {"-", "64/16/1", "4/4/1"}}}},
      {"lazyllm",
       true,
       false,
       {{"keep", {"0.7", "0.5", "0.35", "0.2"}},
        {"layers", {"@0.5/0.7/0.9", "@0.3/0.6/0.9", "@0.5"}},
        {"widen", {"-", "8"}},
        {"queries", {"-", "16"}},
        {"pool", {"-", "max"}}}},
      {"sliminfer",
       true,
       false,
       {{"keep", {"0.7/0.5/0.3", "0.5/0.25/0.125", "0.35/0.18/0.09", "0.25/0.125/0.0625"}},
        {"layers", {"@0.5/0.7/0.9", "@0.4/0.6/0.8", "@0.31/0.62/0.93"}},
        {"score", {"-", "mass"}}}},
      {"ftp",
       true,
       true,
       {{"eta", {"0.95", "0.9", "0.8", "0.65", "0.5"}},
        {"dense", {"@0.5", "@0.31", "@0.15"}},
        {"fill", {"-", "mean"}}}},
      {"static",
       true,
       false,
       {{"keep", {"0.6", "0.4", "0.2", "0.1"}}, {"layer", {"@0.6", "@0.5", "@0.35", "@0.25"}}}},
      {"pyramidinfer", true, false, {{"r", {"0.8", "0.6", "0.4", "0.25"}}}},
      {"minference", true, true, {{"slash", {"#0.25", "#0.12"}}, {"vertical", {"#0.06", "#0.03"}}}},
      {"flexprefill", true, true, {{"gamma", {"0.95", "0.9", "0.8"}}, {"min_budget", {"#0.125"}}}},
      {"xattention", true, true, {{"threshold", {"0.95", "0.9", "0.8"}}}},
      {"sdtp", false, false, {{"r", {"0.95", "0.9", "0.85", "0.8"}}}},
      {"random",
       false,
       false,
       {{"keep", {"0.8", "0.6", "0.4"}}, {"layers", {"@0.5/0.7/0.9", "@0.3/0.6/0.9"}}}},
  };
  return table;
}

}  // namespace coppice
