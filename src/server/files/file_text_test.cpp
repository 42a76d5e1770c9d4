#include "server/files/file_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "server/errors.h"

namespace coppice::file_text_test {
namespace {

using ::testing::HasSubstr;

const std::string kPdf = "%PDF-1.4\n";
const std::string kZip = "PK\3\4";

// Stand-ins for the tools, which say what these would.
class FileTextTest : public ::testing::Test {
 protected:
  FileTextTest() { std::filesystem::create_directories(folder_); }
  ~FileTextTest() override { std::filesystem::remove_all(folder_); }

  FileTools Scripts(const std::string& script) const {
    const std::string path = folder_ / "tool";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    chmod(path.c_str(), 0755);
    FileTools tools{.pdftotext = path, .unzip = path};
    tools.limits.wall = std::chrono::milliseconds(300);
    return tools;
  }
  // "STATUS MESSAGE" of the refusal; "" where there is a text.
  static std::string Refusal(const std::string& bytes, const FileTools& tools) {
    try {
      ReadFileText(bytes, tools, [] { return false; });
    } catch (const HttpError& error) {
      return std::to_string(error.fault().status) + " " + error.fault().message;
    }
    return "";
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("coppice-file-text-" + std::to_string(getpid()));
};

TEST_F(FileTextTest, PagesOfAPdf) {
  const FileTools tools = Scripts("printf 'One  \\n\\n\\n\\nTwo\\001\\n\\f\\n\\fThree\\n\\f'");
  const FileText file = ReadFileText(kPdf, tools, [] { return false; });
  EXPECT_EQ(file.kind, "pdf");
  EXPECT_EQ(file.text, "One\n\nTwo\n\nThree");
  EXPECT_EQ(file.pages, 3);
  EXPECT_THAT(file.warnings,
              ::testing::ElementsAre("1 of 3 pages hold no text: they are empty or pictures."));
}

TEST_F(FileTextTest, ATextThatIsMissingSaysWhatToDo) {
  EXPECT_THAT(Refusal(kPdf, Scripts("printf '\\f\\f'")),
              ::testing::StartsWith("422 the PDF file (2 pages) holds no text: it is probably a scan."));
  EXPECT_THAT(Refusal(kPdf, Scripts("exit 1")), ::testing::StartsWith("422 the PDF file is damaged"));
  EXPECT_THAT(Refusal(kPdf + "/Encrypt 5 0 R", Scripts("exit 1")), HasSubstr("locked by a password"));
  EXPECT_THAT(Refusal(kPdf, Scripts("exit 3")), HasSubstr("forbids to take text"));
  EXPECT_THAT(Refusal(kZip, Scripts("exit 11")), ::testing::StartsWith("415 the file is a ZIP archive"));
  EXPECT_THAT(Refusal(kZip, Scripts("exit 82")), HasSubstr("locked by a password"));
  EXPECT_THAT(Refusal(kZip, Scripts("exit 9")), HasSubstr("damaged"));
  EXPECT_THAT(Refusal(kZip, Scripts("echo '<html/>'")), HasSubstr("holds no Word document"));
  EXPECT_THAT(Refusal("\xD0\xCF\x11\xE0", {}), HasSubstr("415 the file is in Word's older format"));
  EXPECT_THAT(Refusal("GIF89a", {}), HasSubstr("415 the file is neither PDF nor DOCX"));
}

TEST_F(FileTextTest, AToolThatIsMissingIsNamed) {
  EXPECT_THAT(Refusal(kPdf, {}),
              HasSubstr("501 this server cannot read PDF files: pdftotext is not installed "
                        "there. Install the package poppler-utils"));
  EXPECT_THAT(Refusal(kZip, {}), HasSubstr("Install the package unzip"));
}

TEST_F(FileTextTest, WhatNeverEndsIsEnded) {
  EXPECT_THAT(Refusal(kPdf, Scripts("exec sleep 1000")), HasSubstr("422 reading the PDF file took longer"));
  EXPECT_THAT(Refusal(kZip, Scripts("exec sleep 1000")), HasSubstr("422 reading the DOCX file took longer"));
}

TEST_F(FileTextTest, MuchTextIsRefused) {
  FileTools tools = Scripts("while :; do echo 0123456789; done");
  tools.most_text = size_t{1} << 20;
  tools.limits.wall = std::chrono::seconds(60);
  EXPECT_THAT(Refusal(kPdf, tools), HasSubstr("413 the PDF file holds more than 1 MiB of text"));
  const std::string root =
      "<w:document xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\">";
  tools = Scripts("echo '" + root + "'; while :; do echo '<w:p/>'; done");
  tools.most_xml = size_t{1} << 20;
  tools.limits.wall = std::chrono::seconds(60);
  EXPECT_THAT(Refusal(kZip, tools), HasSubstr("413 the DOCX file unpacks to more than 1 MiB"));
}

TEST_F(FileTextTest, AFaultOfTheToolIsNoFaultOfTheServer) {
  EXPECT_THAT(Refusal(kPdf, Scripts("kill -SEGV $$")), HasSubstr("422 reading the PDF file failed"));
}

}  // namespace
}  // namespace coppice::file_text_test
