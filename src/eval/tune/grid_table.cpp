#include "eval/tune/grid_table.h"

namespace coppice {

// Late stages first: where several facts compete, a model decides only in its second half which is asked for
// (docs/quality.md).
std::span<const char* const> PromisingForms() {
  static constexpr const char* forms[] = {
      "coppice",
      "coppice:layers=@0.42/0.67/0.83,keep=0.4/0.15/0.05",
      "sliminfer",
      "coppice:layers=@0.5/0.75/0.88,keep=0.5/0.2/0.1",
      "coppice:layers=@0.3/0.62/0.83,keep=0.4/0.15/0.05",
      "uniprefill",
      "coppice:layers=@0.6/0.75/0.88,keep=0.4/0.15/0.05",
      "coppice:layers=@0.42/0.67/0.83,keep=0.25/0.1/0.05",
      "lazyllm:layers=@0.5/0.7/0.9,keep=0.5",
      "flashprefill",
  };
  return forms;
}

std::span<const GridMethod> GridTable() {
  static const std::vector<GridMethod> table = {
      {"coppice",
       true,
       false,
       6,
       {{"keep",
         {"0.7/0.5/0.3", "0.6/0.4/0.2", "0.5/0.25/0.125", "0.35/0.15/0.08", "0.25/0.1/0.05", "0.18/0.08/0.04",
          "0.12/0.06/0.03"}},
        {"layers", {"@0.65/0.75/0.85", "@0.5/0.65/0.8", "@0.35/0.55/0.8", "@0.27/0.5/0.8", "@0.2/0.5/0.8"}}}},
      {"sliminfer",
       true,
       false,
       2,
       {{"keep", {"0.7/0.5/0.3", "0.5/0.25/0.125", "0.35/0.18/0.09", "0.25/0.125/0.0625"}},
        {"layers", {"@0.5/0.7/0.9", "@0.4/0.6/0.8", "@0.31/0.62/0.93"}},
        {"score", {"-", "mass"}}}},
      {"lazyllm",
       true,
       false,
       2,
       {{"keep", {"0.7", "0.5", "0.35", "0.2"}},
        {"layers", {"@0.5/0.7/0.9", "@0.3/0.6/0.9", "@0.5"}},
        {"", {"-", "widen=8", "pool=max,queries=16,widen=8"}}}},
      {"ftp",
       true,
       true,
       1,
       {{"eta", {"0.98", "0.95", "0.9", "0.8", "0.65", "0.5"}},
        {"dense", {"@0.7", "@0.5", "@0.31"}},
        {"fill", {"-", "mean"}}}},
      {"flexprefill", true, true, 1, {{"gamma", {"0.95", "0.9", "0.8"}}, {"min_budget", {"#0.125"}}}},
      {"xattention", true, true, 1, {{"threshold", {"0.95", "0.9", "0.8"}}}},
      {"flashprefill", true, true, 1, {{"alpha", {"0.04", "0.08", "0.18", "0.35"}}}},
      // Blocks of 64 keys for each query block.
      {"minference",
       true,
       true,
       1,
       {{"",
         {"pattern=block_sparse,blocks=64", "pattern=block_sparse,blocks=32",
          "pattern=block_sparse,blocks=16", "pattern=block_sparse,blocks=8"}}}},
      {"static", true, false, 0.5, {{"keep", {"0.6", "0.4", "0.2"}}, {"layer", {"@0.7", "@0.5", "@0.25"}}}},
      {"pyramidinfer", true, false, 0.5, {{"r", {"0.8", "0.6", "0.4"}}}},
      {"fastkv", true, false, 1, {{"keep", {"0.5", "0.35", "0.2"}}}},
      {"spts", true, false, 1, {{"keep", {"#0.6", "#0.4", "#0.25"}}, {"drop", {"#0.1"}}}},
      {"uniprefill", true, false, 1, {{"p", {"0.99", "0.95", "0.9", "0.8"}}}},
      {"sdtp", false, false, 1, {{"r", {"0.95", "0.9", "0.85", "0.8"}}}},
      {"gemfilter",
       false,
       false,
       1,
       {{"keep", {"0.5", "0.35", "0.2"}}, {"layer", {"@0.5", "@0.4", "@0.3"}}, {"kernel", {"-", "31"}}}},
      {"random",
       false,
       false,
       1,
       {{"keep", {"0.8", "0.6", "0.4"}}, {"layers", {"@0.5/0.7/0.9", "@0.3/0.6/0.9"}}}},
  };
  return table;
}

}  // namespace coppice
