// The commands of the program. Each function adds a command to the parser, with a callback that runs it.
#pragma once

#include <CLI/CLI.hpp>

namespace coppice::cli {

void AddRun(CLI::App& app);
void AddChat(CLI::App& app);
void AddCompare(CLI::App& app);
void AddBench(CLI::App& app);
void AddEval(CLI::App& app);
void AddReport(CLI::App& app);
void AddTune(CLI::App& app);
void AddInspect(CLI::App& app);
void AddDoctor(CLI::App& app);
void AddTokenize(CLI::App& app);
void AddMethods(CLI::App& app);
void AddSynth(CLI::App& app);
void AddTrace(CLI::App& app);
void AddTrain(CLI::App& app);
void AddServe(CLI::App& app);
void AddPerplexity(CLI::App& app);

// The whole program: what main() gets and returns.
int Program(int argc, char** argv);

// If mpirun started several processes and this program has no MPI, becomes the program that has it. Throws
// Error where that is not there.
void StartMpiProgram(char** argv);

}  // namespace coppice::cli
