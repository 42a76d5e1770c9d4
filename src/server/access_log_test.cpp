#include "server/access_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "test_files.h"

namespace coppice {
namespace {

HttpLogEntry Entry(const std::string& path) {
  return {.method = "POST",
          .path = path,
          .status = 200,
          .took = std::chrono::milliseconds(1234),
          .sent = 512,
          .whole = true,
          .note = " prompt=7"};
}

TEST(AccessLog, OneLineARequest) {
  const std::chrono::system_clock::time_point time{std::chrono::milliseconds(1'769'860'800'123)};
  EXPECT_EQ(LogLine(Entry("/v1/completions"), time),
            "2026-01-31T12:00:00.123Z POST /v1/completions status=200 ms=1234 sent=512 whole=yes prompt=7\n");
  EXPECT_EQ(LogLine(Entry("/a\nb\x1b[2J \xff"), time),
            "2026-01-31T12:00:00.123Z POST /a?b?[2J?? status=200 ms=1234 sent=512 whole=yes prompt=7\n");
  EXPECT_LT(LogLine(Entry(std::string(100'000, 'x')), time).size(), 400u);
}

TEST(AccessLog, AppendsToAFileOfItsOwner) {
  const TempFolder folder;
  const std::string path = folder.Path("log");
  for (int i = 0; i < 2; ++i) AccessLog(path).Write(Entry("/health"));
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms(0077),
            std::filesystem::perms(0));
  EXPECT_THROW(AccessLog(folder.Path("no/log")), Error);
}

}  // namespace
}  // namespace coppice
