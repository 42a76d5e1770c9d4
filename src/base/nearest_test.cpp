#include "base/nearest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace coppice {
namespace {

TEST(Nearest, IsWhatWasMeant) {
  const std::vector<std::string> known = {"none", "lazyllm", "ftp", "coppice", "h2o", "snapkv", "keep", "a"};
  const std::pair<const char*, const char*> words[] = {{"copice", "coppice"},
                                                       {"coppcie", "coppice"},
                                                       {"Coppice", "coppice"},
                                                       {"lazy", "lazyllm"},
                                                       {"FTP", "ftp"},
                                                       {"h3o", "h2o"},
                                                       {"kepe", "keep"},
                                                       {"snapvk", "snapkv"},
                                                       {"nothing", ""},
                                                       {"none such", ""},
                                                       {"coppice", ""},
                                                       {"", ""},
                                                       {"x", ""},
                                                       {"la", ""},
                                                       {"seep", "keep"},
                                                       {"seed", ""}};
  for (const auto& [word, meant] : words) EXPECT_EQ(Nearest(word, known), meant) << word;
  EXPECT_EQ(Nearest(std::string(100'000, 'c'), known), "");
  EXPECT_EQ(Nearest("coppice", {}), "");
}

}  // namespace
}  // namespace coppice
