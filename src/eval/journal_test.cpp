#include "eval/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "test_files.h"

namespace coppice::journal_test {
namespace {

using testing::HasSubstr;

TEST(Journal, RefusesWhatIsNoRecord) {
  const TempFolder folder;
  const std::string path = folder.Path("journal.jsonl");
  const auto failure = [&](const std::string& content) -> std::string {
    std::ofstream(path, std::ios::binary) << content;
    try {
      Journal journal(path, {{"seed", 1}});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string head = "{\"settings\": {\"seed\": 1}}\n";
  EXPECT_EQ(failure(head), "no error");
  for (const std::string& bad : {std::string(""), std::string("{}\n"), std::string("x\n"),
                                 std::string("[]\n"), head.substr(0, 9), head + "{}\n", head + "nonsense\n",
                                 head + "{\"task\": 1, \"length\": 1, \"id\": \"0\", \"arms\": []}\n",
                                 head + std::string(1000, '[') + "\n"}) {
    EXPECT_THAT(failure(bad), HasSubstr(path)) << bad;
  }
  const std::string record = "{\"task\": \"t\", \"length\": 1, \"id\": \"0\", \"arms\": []}\n";
  EXPECT_EQ(failure(head + record), "no error");
  EXPECT_THAT(failure("{\"settings\": {\"seed\": 1, \"more\": 2}}\n" + record),
              HasSubstr("was begun with more = 2"));
  EXPECT_THAT(failure("{\"settings\": {}}\n" + record), HasSubstr("was begun with seed = null, not 1"));
  EXPECT_EQ(failure("{\"settings\": {\"seed\": 2}}\n"), "no error")
      << "without records there is nothing to mix";
}

}  // namespace
}  // namespace coppice::journal_test
