#include "kernels/gpu/driver.h"

#include <gtest/gtest.h>

#include <string>

#include "test_files.h"

namespace coppice {
namespace {

using gpu::SharedLibrary;

TEST(GpuSharedLibrary, OnlyAMissingFileIsNotInstalled) {
  EXPECT_FALSE(SharedLibrary::IfInstalled("libcoppice-none.so.1"));
  EXPECT_FALSE(SharedLibrary::IfInstalled("/no/such/folder/library.so"));
  ASSERT_TRUE(SharedLibrary::IfInstalled("libc.so.6"));
  EXPECT_NE(SharedLibrary::IfInstalled("libc.so.6")->Get("malloc"), nullptr);
}

TEST(GpuSharedLibrary, ABrokenFileIsAnErrorThatNamesIt) {
  const TempFolder folder;
  const std::string path = folder.Write("broken.so", "this is no library");
  const std::string error = ErrorOf([&] { SharedLibrary::IfInstalled(path); });
  EXPECT_TRUE(error.starts_with("[gpu] cannot load " + path + ": ")) << error;
}

TEST(GpuSharedLibrary, AMissingSymbolIsAnErrorThatNamesBoth) {
  EXPECT_EQ(ErrorOf([] { SharedLibrary("libc.so.6").Get("coppice_none"); }),
            "[gpu] libc.so.6 has no coppice_none: it is too old");
}

}  // namespace
}  // namespace coppice
