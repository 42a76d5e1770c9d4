#include "server/files/child.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace coppice::child_test {
namespace {

using ::testing::HasSubstr;

struct Ran {
  ChildResult result;
  std::string output;
};

Ran RunScript(
    const std::string& script, std::string_view input = "", const ChildLimits& limits = {},
    const std::function<bool()>& cancelled = [] { return false; }, size_t most = 1 << 20) {
  Ran ran;
  ran.result = RunChild({"/bin/sh", "-c", script}, input, limits, cancelled, [&](std::string_view piece) {
    ran.output += piece;
    return ran.output.size() <= most;
  });
  return ran;
}

TEST(Child, ReadsItsInputTwiceAndTellsItsCode) {
  const std::string input(200'000, 'x');
  const Ran ran = RunScript("exec cat /dev/stdin", input);
  EXPECT_EQ(ran.result.end, ChildEnd::kExited);
  EXPECT_EQ(ran.result.code, 0);
  EXPECT_EQ(ran.output, input);
  const Ran failed = RunScript("echo broken >&2; exit 7");
  EXPECT_EQ(failed.result.code, 7);
  EXPECT_EQ(failed.result.errors, "broken\n");
}

TEST(Child, InheritsNeitherEnvironmentNorFiles) {
  const int open_file =
      fcntl(STDERR_FILENO, F_DUPFD, 20);  // not close-on-exec; the shell opens a low one itself
  setenv("COPPICE_CHILD_TEST", "secret", 1);
  const Ran ran = RunScript("echo \"[$COPPICE_CHILD_TEST]\"; for f in /proc/self/fd/*; do echo $f; done");
  unsetenv("COPPICE_CHILD_TEST");
  close(open_file);
  EXPECT_THAT(ran.output, HasSubstr("[]"));
  for (const char* standard : {"/fd/0\n", "/fd/1\n", "/fd/2\n"}) EXPECT_THAT(ran.output, HasSubstr(standard));
  EXPECT_THAT(ran.output, ::testing::Not(HasSubstr("/fd/" + std::to_string(open_file) + "\n")));
}

TEST(Child, HasTheLimits) {
  const ChildLimits limits{.cpu = std::chrono::seconds(7), .memory_bytes = int64_t{512} << 20};
  // NPROC is no option of every shell, so the kernel tells it.
  const Ran ran = RunScript(
      "ulimit -t; ulimit -v; ulimit -f; while read -r line; do echo $line; done < "
      "/proc/self/limits",
      "", limits);
  EXPECT_THAT(ran.output, ::testing::StartsWith("7\n524288\n0\n"));
  EXPECT_THAT(ran.output, HasSubstr("Max processes 0 0 processes"));
  EXPECT_THAT(ran.output, HasSubstr("Max core file size 0 0 bytes"));
}

TEST(Child, WhatNeverEndsIsEnded) {
  const ChildLimits limits{.wall = std::chrono::milliseconds(100)};
  EXPECT_EQ(RunScript("exec sleep 1000", "", limits).result.end, ChildEnd::kTooLong);
  // One that closed its output, and one that ignores what may be ignored.
  EXPECT_EQ(RunScript("exec >&- 2>&-; exec sleep 1000", "", limits).result.end, ChildEnd::kTooLong);
  EXPECT_EQ(RunScript("trap '' TERM INT HUP; while :; do :; done", "", limits).result.end,
            ChildEnd::kTooLong);
}

TEST(Child, EndsAtTheLimitOfProcessorTime) {
  const ChildLimits limits{.cpu = std::chrono::seconds(1)};
  EXPECT_EQ(RunScript("while :; do :; done", "", limits).result.end, ChildEnd::kKilled);
}

TEST(Child, MuchOutputIsDeclined) {
  const Ran ran = RunScript(
      "while :; do echo 0123456789; done", "", {}, [] { return false; }, 1000);
  EXPECT_EQ(ran.result.end, ChildEnd::kDeclined);
}

TEST(Child, OfManyErrorsTheBeginningIsKept) {
  const Ran ran = RunScript("i=0; while [ $i -lt 3000 ]; do echo 0123456789 >&2; i=$((i+1)); done; echo end");
  EXPECT_EQ(ran.result.end, ChildEnd::kExited);
  EXPECT_EQ(ran.output, "end\n");
  EXPECT_EQ(ran.result.errors.size(), 4096U);
}

TEST(Child, EndsWithItsCaller) {
  std::string pid;
  const auto take = [&](std::string_view piece) {
    pid += piece;
    return true;
  };
  const std::vector<std::string> words = {"/bin/sh", "-c", "echo $$; exec sleep 1000"};
  EXPECT_THROW(RunChild(
                   words, "", {}, [&] { return pid.ends_with('\n'); }, take),
               Cancelled);
  EXPECT_EQ(kill(std::stoi(pid), 0), -1) << "process " << pid << " lives";
}

TEST(Child, AFaultOfTheCallerEndsIt) {
  std::string pid;
  const auto take = [&](std::string_view piece) -> bool {
    pid += piece;
    throw std::runtime_error("no more");
  };
  const std::vector<std::string> words = {"/bin/sh", "-c", "echo $$; exec sleep 1000"};
  EXPECT_THROW(RunChild(
                   words, "", {}, [] { return false; }, take),
               std::runtime_error);
  EXPECT_EQ(kill(std::stoi(pid), 0), -1) << "process " << pid << " lives";
}

TEST(Child, AProgramThatIsNotThereIsAnError) {
  const auto none = [] { return false; };
  const auto take = [](std::string_view) { return true; };
  try {
    RunChild({"/nonexistent/program"}, "", {}, none, take);
    FAIL() << "it started";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/nonexistent/program: cannot be started: No such file or directory");
  }
}

}  // namespace
}  // namespace coppice::child_test
