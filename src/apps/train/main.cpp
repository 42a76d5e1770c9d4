// coppice-train: what `coppice train` starts. Exit codes as coppice: 0 done, 1 the work failed, 2 wrong
// usage, 130 interrupted.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "apps/flags.h"
#include "apps/train/train_sdtp.h"
#include "base/error.h"

namespace {

int Fail(std::string message, int code) {
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  fmt::print(stderr, "coppice: {}\n", message);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // as apps/cli/main.cpp
  CLI::App app("train predictors for pruning methods", "coppice train");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.require_subcommand(1);
  coppice::train::AddSdtp(app);
  try {
    app.parse(argc, argv);
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : Fail("cannot write to stdout", 1);
  } catch (const CLI::Success& done) {
    return app.exit(done);  // prints --help
  } catch (const CLI::ParseError& error) {
    Fail(error.what(), 2);
    fmt::print(stderr, "Try: coppice train sdtp --help\n");
    return 2;
  } catch (const coppice::Cancelled&) {
    return Fail("interrupted; the same command goes on from here", 130);
  } catch (const std::bad_alloc&) {
    return Fail("out of memory: a smaller --length may fit", 1);
  } catch (const std::exception& error) {
    return Fail(coppice::cli::MessageOf(error), 1);
  }
}
