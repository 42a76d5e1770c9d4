#include "server/access_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "test_files.h"

namespace coppice {
namespace {

HttpLogEntry Entry(const std::string& path) {
  return {.method = "POST",
          .path = path,
          .id = "req_1",
          .status = 200,
          .took = std::chrono::milliseconds(1234),
          .sent = 512,
          .whole = true,
          .note = {" prompt=7", {{"prompt_tokens", int64_t{7}}}}};
}

TEST(AccessLog, OneLineARequest) {
  const std::chrono::system_clock::time_point time{std::chrono::milliseconds(1'769'860'800'123)};
  EXPECT_EQ(LogLine(Entry("/v1/completions"), time),
            "2026-01-31T12:00:00.123Z POST /v1/completions status=200 ms=1234 sent=512 whole=yes prompt=7\n");
  EXPECT_EQ(LogLine(Entry("/a\nb\x1b[2J \xff"), time),
            "2026-01-31T12:00:00.123Z POST /a?b?[2J?? status=200 ms=1234 sent=512 whole=yes prompt=7\n");
  EXPECT_LT(LogLine(Entry(std::string(100'000, 'x')), time).size(), 400u);
}

TEST(AccessLog, OneObjectARequest) {
  const std::chrono::system_clock::time_point time{std::chrono::milliseconds(1'769'860'800'123)};
  HttpLogEntry entry = Entry("/v1/completions");
  entry.note.fields.emplace_back("model", std::string("m"));
  entry.note.fields.emplace_back("ttft_ms", 1.5);
  entry.note.fields.emplace_back("prune_active", true);
  EXPECT_EQ(JsonLogLine(entry, time),
            "{\"time\":\"2026-01-31T12:00:00.123Z\",\"request_id\":\"req_1\",\"method\":\"POST\","
            "\"path\":\"/v1/completions\",\"status\":200,\"bytes\":512,\"whole\":true,\"total_ms\":1234,"
            "\"prompt_tokens\":7,\"model\":\"m\",\"ttft_ms\":1.5,\"prune_active\":true}\n");
}

TEST(AccessLog, ObjectsEscapeWhatAClientSends) {
  const std::string hostile = "/a\nb\x1b[2J\"\\ \xff \xe2\x80\xa8 \x7f" + std::string(1, '\0');
  const std::string line = JsonLogLine(Entry(hostile), {});
  EXPECT_TRUE(
      std::ranges::all_of(line.substr(0, line.size() - 1), [](char c) { return c >= 0x20 && c < 0x7f; }));
  EXPECT_EQ(line.back(), '\n');
  const auto read = nlohmann::json::parse(line);
  EXPECT_EQ(read["path"], "/a\nb\x1b[2J\"\\ \xef\xbf\xbd \xe2\x80\xa8 \x7f" + std::string(1, '\0'));
  EXPECT_LT(JsonLogLine(Entry(std::string(100'000, '\1')), {}).size(), 2000u);
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
