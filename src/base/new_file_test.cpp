#include "base/new_file.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include "test_files.h"

namespace coppice {
namespace {

using testing::HasSubstr;

std::string Unfinished(const std::string& path) { return fmt::format("{}.test-{}.part", path, getpid()); }

TEST(NewFile, TheNameStandsForAWholeFileAlone) {
  const TempFolder folder;
  const std::string path = folder.Write("a", "old");
  {
    NewFile file(path, "test");
    file.Append("half");
    EXPECT_EQ(std::filesystem::file_size(Unfinished(path)), 4u);
  }
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
  EXPECT_EQ(folder.CountFiles(), 1u);
  NewFile file(path, "test");
  file.Append("whole");
  file.Sync();
  file.Commit();
  EXPECT_EQ(std::filesystem::file_size(path), 5u);
  EXPECT_EQ(folder.CountFiles(), 1u);
}

TEST(NewFile, TwoDoNotWriteIntoOne) {
  const TempFolder folder;
  NewFile first(folder.Path("a"), "test");
  EXPECT_THAT(ErrorOf([&] { NewFile(folder.Path("a"), "test"); }), HasSubstr("a: is being written already"));
  first.Append("whole");
  first.Commit();
  EXPECT_EQ(std::filesystem::file_size(folder.Path("a")), 5u);
}

TEST(NewFile, WhatLiesUnderItsUnfinishedNameIsNotPartOfIt) {
  const TempFolder folder;
  const std::string path = folder.Path("a");
  folder.Write(std::filesystem::path(Unfinished(path)).filename(), "left by a process of the same number");
  NewFile file(path, "test");
  file.Append("new");
  file.Commit();
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
}

TEST(RemoveAbandoned, KnowsItsOwn) {
  const TempFolder folder;
  folder.Write("a.test-17.part", "left");
  folder.Write("a.b.c.test-18.part", "");
  const char* const others[] = {"a.test-17.par",  "a.test-.part", "a.test-1x.part",
                                "a.rest-17.part", "test-17.part", "a.test17.part",
                                "part",           ".part",        "a"};
  for (const char* name : others) folder.Write(name, "somebody else's");
  std::filesystem::create_directory(folder.Path("folder.test-17.part"));
  std::filesystem::create_symlink(folder.Path("a"), folder.Path("link.test-17.part"));
  RemoveAbandoned(folder.path(), "test");
  EXPECT_EQ(folder.CountFiles(), std::size(others) + 2);
  for (const char* name : others) EXPECT_TRUE(std::filesystem::exists(folder.Path(name))) << name;
  RemoveAbandoned(folder.Path("none"), "test");
}

TEST(RemoveAbandoned, OnlyOfTheDead) {
  const TempFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    NewFile file(folder.Path("a"), "test");
    file.Append("half");
    const bool told = write(ready[1], "x", 1) == 1;
    while (told) pause();
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  RemoveAbandoned(folder.path(), "test");
  EXPECT_EQ(folder.CountFiles(), 1u) << "another process writes it";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(folder.CountFiles(), 1u);
  RemoveAbandoned(folder.path(), "test");
  EXPECT_EQ(folder.CountFiles(), 0u);
  close(ready[0]);
  close(ready[1]);
}

// What it holds may be somebody's prompt.
TEST(NewFile, OwnerOnlyWhateverTheUmask) {
  const TempFolder folder;
  const mode_t before = umask(0);
  for (const bool is_there : {false, true}) {
    const std::string path = folder.Path("secret");
    if (is_there) {
      const std::string old = folder.Write(fmt::format("secret.test-{}.part", getpid()), "old");
      std::filesystem::permissions(old, std::filesystem::perms(0666));
    }
    NewFile file(path, "test", NewFile::Mode::kOwnerOnly);
    file.Append("text");
    file.Commit();
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600)) << is_there;
    EXPECT_EQ(std::filesystem::file_size(path), 4u);
  }
  umask(before);
}

TEST(NewFile, FollowsNoLink) {
  const TempFolder folder;
  const std::string other = folder.Write("other", "precious");
  const std::string path = folder.Path("new");
  std::filesystem::create_symlink(other, Unfinished(path));
  EXPECT_NE(ErrorOf([&] { NewFile(path, "test"); }), "no error");
  EXPECT_EQ(std::filesystem::file_size(other), 8u);
}

}  // namespace
}  // namespace coppice
