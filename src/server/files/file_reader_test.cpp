#include "server/files/file_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "server/errors.h"

namespace coppice::file_reader_test {
namespace {

class FileReaderTest : public ::testing::Test {
 protected:
  FileReaderTest() { std::filesystem::create_directories(folder_); }
  ~FileReaderTest() override { std::filesystem::remove_all(folder_); }

  // A tool that says "begun" by a file's place in the folder, and ends when the folder has the file "go".
  FileTools Tools() const {
    const std::string path = folder_ / "tool";
    std::ofstream(path) << "#!/bin/sh\nwhile [ ! -e " << (folder_ / "go").string()
                        << " ]; do :; done\necho text\n";
    chmod(path.c_str(), 0755);
    return {.pdftotext = path, .unzip = path};
  }
  void LetThemGo() const { std::ofstream(folder_ / "go") << "go"; }

  FileReader::Task Task(std::shared_ptr<const std::atomic<bool>> cancelled = nullptr) {
    return {.bytes = "%PDF-",
            .cancelled = std::move(cancelled),
            .done = [this](const FileText& text) { End(text.text == "text", false); },
            .failed =
                [this](const std::exception_ptr& error) {
                  try {
                    std::rethrow_exception(error);
                  } catch (const Cancelled&) {
                    End(false, true);
                  } catch (...) {
                    End(false, false);
                  }
                }};
  }
  void End(bool is_read, bool is_cancelled) {
    const std::lock_guard lock(mutex_);
    read_ += is_read ? 1 : 0;
    cancelled_ += is_cancelled ? 1 : 0;
    ++ended_;
    came_.notify_all();
  }
  void WaitFor(int ended) {
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return ended_ >= ended; });
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("coppice-file-reader-" + std::to_string(getpid()));
  std::mutex mutex_;
  std::condition_variable came_;
  int ended_ = 0;
  int read_ = 0;
  int cancelled_ = 0;
};

TEST_F(FileReaderTest, ManyFilesWaitAndTooManyAreRefused) {
  FileReader reader(Tools());
  int taken = 0;
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    try {
      reader.Submit(Task());
      ++taken;
    } catch (const HttpError& error) {
      EXPECT_EQ(error.fault().status, 503);
      EXPECT_GT(error.fault().retry_after, 0);
      ++refused;
    }
  }
  EXPECT_GE(taken, 4);
  EXPECT_LE(taken, 6);  // two are read, four wait
  EXPECT_EQ(taken + refused, 20);
  LetThemGo();
  WaitFor(taken);
  EXPECT_EQ(read_, taken);
  reader.Submit(Task());
  WaitFor(taken + 1);
}

TEST_F(FileReaderTest, AClientThatLeavesEndsItsChild) {
  FileReader reader(Tools());
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  reader.Submit(Task(gone));
  *gone = true;
  WaitFor(1);
  EXPECT_EQ(cancelled_, 1);
}

TEST_F(FileReaderTest, StopEndsChildrenAndWhatWaits) {
  FileReader reader(Tools());
  for (int i = 0; i < 4; ++i) reader.Submit(Task());
  reader.Stop();
  EXPECT_EQ(ended_, 4);
  EXPECT_EQ(cancelled_, 4);
  EXPECT_THROW(reader.Submit(Task()), HttpError);
}

}  // namespace
}  // namespace coppice::file_reader_test
