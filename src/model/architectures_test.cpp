#include "model/architectures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::HasSubstr;

std::string PageRow(const Architecture& row) {
  std::string types;
  for (const HfType& type : row.hf) types += (types.empty() ? "" : ", ") + std::string(type.name);
  return "| " + std::string(row.gguf) + " | " + types + " | " + row.models + " |";
}

// The page lists the table's rows, in its order, and no others.
TEST(Architectures, ThePageHasTheTable) {
  std::ifstream page(COPPICE_SOURCE_DIR "/docs/models.md");
  ASSERT_TRUE(page.good());
  std::vector<std::string> rows;
  bool in_table = false;
  for (std::string line; std::getline(page, line);) {
    if (line == "|---|---|---|" && rows.empty()) {
      in_table = true;
    } else if (in_table && line.starts_with("|")) {
      rows.push_back(line);
    } else {
      in_table = false;
    }
  }
  std::vector<std::string> wanted;
  for (const Architecture& row : Architectures()) wanted.push_back(PageRow(row));
  EXPECT_EQ(rows, wanted);
}

// The first paragraph of README's section on models.
TEST(Architectures, TheReadmeHasTheModels) {
  std::ifstream file(COPPICE_SOURCE_DIR "/README.md");
  ASSERT_TRUE(file.good());
  std::string text;
  bool in_section = false;
  for (std::string line; std::getline(file, line) && !(in_section && line.empty() && !text.empty());) {
    if (in_section && !line.empty()) text += (text.empty() ? "" : " ") + line;
    if (line == "## Models") in_section = true;
  }
  std::string wanted;
  for (const Architecture& row : Architectures())
    wanted += (wanted.empty() ? "" : "; ") + std::string(row.models);
  EXPECT_EQ(text, wanted + ".");
}

TEST(Architectures, NamesAreDistinct) {
  std::set<std::string> gguf;
  std::set<std::string> hf;
  for (const Architecture& row : Architectures()) {
    EXPECT_TRUE(gguf.insert(row.gguf).second) << row.gguf;
    for (const HfType& type : row.hf) EXPECT_TRUE(hf.insert(type.name).second) << type.name;
  }
}

// The refusal of an unknown name lists every name that is known.
TEST(Architectures, ARefusalListsTheTable) {
  const std::string of_gguf = ErrorOf([] { ArchitectureOfGguf("gpt2", "m.gguf", "key"); });
  const std::string of_hf = ErrorOf([] { ArchitectureOfHf("gpt2", "config.json", "key"); });
  for (const Architecture& row : Architectures()) {
    EXPECT_THAT(of_gguf, HasSubstr(row.gguf));
    for (const HfType& type : row.hf) EXPECT_THAT(of_hf, HasSubstr(type.name));
  }
  EXPECT_THAT(ErrorOf([] { ArchitectureOfGguf("qwen3next", "m.gguf", "general.architecture"); }),
              HasSubstr("general.architecture = 'qwen3next' is not supported: its kind of layers with"));
}

}  // namespace
}  // namespace coppice
