// coppice: the command line. Exit codes: 0 done, 1 the work failed, 2 wrong usage, 130 interrupted.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/terminal.h"
#include "apps/cli/version.h"
#include "apps/flags.h"
#include "base/cpu_info.h"
#include "base/error.h"
#include "comm/comm.h"
#include "engine/follow.h"
#include "kernels/gpu/gpu_backend.h"
#include "policies/spec.h"
#include "text/tokenizer/tokenizer.h"

namespace {

std::string VersionText() {
  std::string isa;
  try {
    isa = coppice::IsaName(coppice::ChooseIsa());
  } catch (const coppice::Error& error) {
    isa = error.what();
  }
  return fmt::format("coppice {} ({}), {}\nisa: {} on {}\nbackends: cpu, {}, reference", coppice::kVersion,
                     coppice::kBuildType, coppice::kCompiler, isa, coppice::Cpu().model,
                     coppice::HasGpuKernels() ? "gpu" : "gpu (built without kernels)");
}

// A mapped model file was truncated while in use: its weights are gone, so the process cannot go on.
void OnBusError(int) {
  constexpr char kMessage[] =
      "coppice: a mapped file was cut short, or cannot be read, while it was in use\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(1);
}

// Prints the message as one line of valid text, whatever it quotes from a file or the command line.
int Fail(const std::string& error, int code) {
  coppice::Utf8Stream text;
  std::string message = text.Push(error);
  message += text.Flush();
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  fmt::print(stderr, "coppice: {}\n", message);
  return code;
}

// Writing to stdout may have failed: a full disk, a closed pipe.
constexpr const char* kUnwritten = "cannot write to stdout";
int Done() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return Fail(kUnwritten, 1);
  return 0;
}

}  // namespace

namespace {

// The program of one process, or of process 0.
int Main(int argc, char** argv) {
  CLI::App app("coppice: long prompts, pruned while they are read", "coppice");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // the last value counts
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", VersionText);
  app.footer("Each command explains itself: coppice run --help");
  coppice::cli::AddRun(app);
  coppice::cli::AddChat(app);
  coppice::cli::AddCompare(app);
  coppice::cli::AddBench(app);
#ifndef COPPICE_SMALL
  coppice::cli::AddEval(app);
  coppice::cli::AddReport(app);
  coppice::cli::AddTune(app);
#endif
  coppice::cli::AddInspect(app);
  coppice::cli::AddDoctor(app);
  coppice::cli::AddTokenize(app);
  coppice::cli::AddMethods(app);
  coppice::cli::AddSynth(app);
  coppice::cli::AddTrace(app);
  coppice::cli::AddTrain(app);
  coppice::cli::AddServe(app);
#ifndef COPPICE_SMALL
  coppice::cli::AddPerplexity(app);
#endif
  try {
    std::vector<std::string> words = coppice::cli::RewriteAliases(argc, argv);
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    app.parse(words);
    if (app.get_subcommands().empty()) {
      fmt::print("{}", app.help());
      return 2;
    }
    return Done();
  } catch (const CLI::Success& done) {
    app.exit(done);  // prints --help, --version
    return Done();
  } catch (const CLI::ParseError& error) {
    Fail(error.what(), 2);
    const auto chosen = app.get_subcommands();
    fmt::print(stderr, "Try: coppice {}--help\n", chosen.empty() ? "" : chosen.front()->get_name() + " ");
    return 2;
  } catch (const coppice::Cancelled&) {
    return Fail("interrupted", 130);
  } catch (const coppice::PruneError& error) {
    return Fail(fmt::format("--prune: {}", error.what()), 1);
  } catch (const std::bad_alloc&) {
    return Fail("out of memory: a shorter prompt, a smaller --ctx-size or a pruning method may fit", 1);
  } catch (const std::exception& error) {
    return Fail(std::ferror(stdout) != 0 ? kUnwritten : coppice::cli::MessageOf(error),
                1);  // fmt's message names no file
  }
}

// The program of the other processes. mpirun sends SIGTERM to all of them when it gets a signal; process 0
// decides what that means, because a server first ends the requests that have begun.
int FollowOrAbort(coppice::Comm& world) {
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);
  try {
    coppice::Follow(world);
  } catch (const std::exception& error) {
    world.Abort(error.what());  // process 0 would wait for this one
  }
  return 0;
}

}  // namespace

int coppice::cli::Program(int argc, char** argv) {
  // A closed stdin is an empty one: else the next file that is opened would get its number, and be read
  // as it.
  if (fcntl(STDIN_FILENO, F_GETFD) == -1 && open("/dev/null", O_RDONLY) == -1)
    return Fail("stdin is closed", 1);
  try {
    StartMpiProgram(argv);
    Comm& world = World();
    // Behind World(), because MPI installs a handler of SIGBUS, too. Writing beyond a file size limit is an
    // error like a full disk (the cold tier's file, a model being made), and must not kill the process.
    std::signal(SIGXFSZ, SIG_IGN);
    std::signal(SIGBUS, OnBusError);
    if (!world.leads()) return FollowOrAbort(world);
    const int code = Main(argc, argv);
    if (world.size() > 1) SendEnd(world);
    return code;
  } catch (const std::exception& error) {
    return Fail(error.what(), 1);
  }
}

int main(int argc, char** argv) { return coppice::cli::Program(argc, argv); }
