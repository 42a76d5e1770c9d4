// coppice eval --paper: the tables of a paper.
#pragma once

#include <string>

#include "eval/paper/paper_run.h"

namespace coppice::cli {

// Runs the tables and prints them.
void EvalPaper(const PaperOptions& options, const std::string& model, Engine& engine);

}  // namespace coppice::cli
