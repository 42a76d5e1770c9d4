// The text of PDF and DOCX files, by programs of the system that run as children with limits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/files/child.h"

namespace coppice {

struct FileTools {
  std::string pdftotext;  // paths; empty: not installed
  std::string unzip;
  ChildLimits limits = {};
  size_t most_text = size_t{8} << 20;  // bytes of a file's text
  size_t most_xml = size_t{64} << 20;  // bytes of a DOCX file's main part
};

// Looks in the folders of the system: neither PATH nor a request says where.
FileTools FindFileTools();

struct FileText {
  std::string kind;  // "pdf" or "docx"
  std::string text = {};
  std::optional<int64_t> pages = {};  // of a PDF
  std::vector<std::string> warnings = {};
};

// `bytes` say what kind of file they are. Throws HttpError, whose sentence says what to do, for a kind that
// is not read here (415), a tool that is not installed (501), too much text (413), and a file that is
// damaged, locked, or holds no text (422); and Cancelled.
FileText ReadFileText(const std::string& bytes, const FileTools& tools,
                      const std::function<bool()>& cancelled);

}  // namespace coppice
