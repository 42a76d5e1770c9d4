#include "server/files/file_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "base/error.h"
#include "server/errors.h"
#include "server/files/docx_text.h"

namespace coppice {

namespace {

constexpr size_t kPdfHeader = 1024;  // readers look for "%PDF-" in so many bytes
constexpr std::string_view kPasted = "or paste the text instead";

std::string FindProgram(const std::string& name) {
  constexpr std::array<const char*, 3> kFolders = {"/usr/bin/", "/usr/local/bin/", "/bin/"};
  for (const char* folder : kFolders) {
    const std::string path = folder + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

HttpError Unreadable(std::string message) {
  return HttpError({422, "invalid_request_error", std::move(message)});
}

HttpError NoTool(const char* kind, const char* program, const char* package) {
  return HttpError({501, "not_supported_error",
                    fmt::format("this server cannot read {} files: {} is not installed there. Install the "
                                "package {} on the server and start it again, {}.",
                                kind, program, package, kPasted)});
}

HttpError TooMuchText(const char* kind, size_t bytes) {
  return HttpError(
      {413, "invalid_request_error",
       fmt::format("the {} file holds more than {} MiB of text: split it, {}.", kind, bytes >> 20, kPasted)});
}

// Of a child that did not end by itself.
void CheckEnd(const ChildResult& result, const FileTools& tools, const char* kind) {
  if (result.end == ChildEnd::kTooLong) {
    throw Unreadable(fmt::format("reading the {} file took longer than {} seconds: split it, {}.", kind,
                                 tools.limits.wall.count() / 1000, kPasted));
  }
  if (result.end == ChildEnd::kKilled) {
    throw Unreadable(
        fmt::format("reading the {} file failed or took more memory or processor time than this "
                    "server allows: save the file anew with another program, {}.",
                    kind, kPasted));
  }
}

// Without spaces at line ends, control characters, and more than one empty line in a row.
std::string Tidied(std::string_view raw) {
  std::string text;
  text.reserve(raw.size());
  for (const char c : raw) {
    if (c == '\f') {  // the end of a page, and not always of a line
      if (!text.empty() && text.back() != '\n') text += '\n';
    } else if (c == '\n') {
      while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
      if (!text.empty() && !text.ends_with("\n\n")) text += c;
    } else if (c == '\t' || static_cast<unsigned char>(c) >= ' ') {
      text += c;
    }
  }
  while (!text.empty() && text.find_last_of(" \t\n") == text.size() - 1) text.pop_back();
  return text;
}

bool HasText(std::string_view text) { return text.find_first_not_of(" \t\r\n\f") != std::string_view::npos; }

// pdftotext ends each page with a form feed.
void CountPages(std::string_view raw, FileText& file) {
  int64_t pages = 0;
  int64_t empty = 0;
  for (size_t end = raw.find('\f'); end != std::string_view::npos; end = raw.find('\f')) {
    ++pages;
    if (!HasText(raw.substr(0, end))) ++empty;
    raw.remove_prefix(end + 1);
  }
  file.pages = pages;
  if (empty > 0 && empty < pages) {
    file.warnings.push_back(
        fmt::format("{} of {} pages hold no text: they are empty or pictures.", empty, pages));
  }
}

FileText ReadPdf(const std::string& bytes, const FileTools& tools, const std::function<bool()>& cancelled) {
  if (tools.pdftotext.empty()) throw NoTool("PDF", "pdftotext", "poppler-utils");
  std::string raw;
  const auto take = [&](std::string_view piece) {
    raw += piece;
    return raw.size() <= tools.most_text;
  };
  // -raw: in the order in which the file holds the text. What writes PDFs today does it column by column and
  // row by row of tables; without it pdftotext mixed the columns of a page, -layout puts them side by side.
  const ChildResult result = RunChild({tools.pdftotext, "-raw", "-q", "-enc", "UTF-8", "/dev/stdin", "-"},
                                      bytes, tools.limits, cancelled, take);
  if (result.end == ChildEnd::kDeclined) throw TooMuchText("PDF", tools.most_text);
  CheckEnd(result, tools, "PDF");
  if (result.code == 3) {
    throw Unreadable(
        fmt::format("the PDF file forbids to take text out of it: ask its author for another, {}.", kPasted));
  }
  // pdftotext says no more than "cannot be opened" by its code, and -q keeps it from saying why.
  if (result.code != 0 && bytes.find("/Encrypt") != std::string::npos) {
    throw Unreadable(
        fmt::format("the PDF file is locked by a password: save a copy without one, {}.", kPasted));
  }
  if (result.code != 0) {
    throw Unreadable(
        fmt::format("the PDF file is damaged: save it anew from the program that made it, {}.", kPasted));
  }
  FileText file{.kind = "pdf"};
  CountPages(raw, file);
  file.text = Tidied(raw);
  if (!HasText(file.text)) {
    throw Unreadable(
        fmt::format("the PDF file ({} {}) holds no text: it is probably a scan. Let a program for text "
                    "recognition (ocrmypdf, for example) make a PDF with text of it, {}.",
                    *file.pages, *file.pages == 1 ? "page" : "pages", kPasted));
  }
  return file;
}

// unzip's exit codes: 11 no such part, 80 to 82 a password or a method that it does not know.
HttpError DocxFault(int code) {
  if (code == 11) {
    return HttpError(
        {415, "invalid_request_error",
         fmt::format("the file is a ZIP archive but not a Word document: it holds no word/document.xml. "
                     "Send PDF, DOCX or plain text, {}.",
                     kPasted)});
  }
  if (code >= 80)
    return Unreadable(
        fmt::format("the DOCX file is locked by a password: save a copy without one, {}.", kPasted));
  return Unreadable(fmt::format(
      "the DOCX file is damaged: open it in the program that made it and save it anew, {}.", kPasted));
}

FileText ReadDocx(const std::string& bytes, const FileTools& tools, const std::function<bool()>& cancelled) {
  if (tools.unzip.empty()) throw NoTool("DOCX", "unzip", "unzip");
  DocxText reader(tools.most_text);
  size_t xml = 0;
  std::string fault;
  const auto take = [&](std::string_view piece) {
    xml += piece.size();
    if (xml > tools.most_xml) return false;
    try {
      reader.Push(piece);
    } catch (const Error& error) {
      fault = error.what();
    }
    return fault.empty();
  };
  const ChildResult result =
      RunChild({tools.unzip, "-p", "/dev/stdin", "word/document.xml"}, bytes, tools.limits, cancelled, take);
  if (xml > tools.most_xml) {
    throw HttpError({413, "invalid_request_error",
                     fmt::format("the DOCX file unpacks to more than {} MiB: split it, {}.",
                                 tools.most_xml >> 20, kPasted)});
  }
  FileText file{.kind = "docx"};
  CheckEnd(result, tools, "DOCX");
  // 1: a warning, with which everything was unpacked.
  if (fault.empty() && result.end == ChildEnd::kExited && result.code > 1) throw DocxFault(result.code);
  try {
    if (!fault.empty()) throw Error("{}", fault);
    file.text = Tidied(reader.Finish());
  } catch (const Error& error) {
    throw Unreadable(
        fmt::format("the DOCX file cannot be read: {}. Save it anew from the program that made "
                    "it, {}.",
                    error.what(), kPasted));
  }
  if (!HasText(file.text))
    throw Unreadable(fmt::format("the DOCX file holds no text but perhaps pictures: {}.",
                                 "save it as a PDF and let a program recognise the text, or paste the text"));
  return file;
}

}  // namespace

FileTools FindFileTools() { return {.pdftotext = FindProgram("pdftotext"), .unzip = FindProgram("unzip")}; }

FileText ReadFileText(const std::string& bytes, const FileTools& tools,
                      const std::function<bool()>& cancelled) {
  const std::string_view file = bytes;
  if (file.substr(0, kPdfHeader).find("%PDF-") != std::string_view::npos)
    return ReadPdf(bytes, tools, cancelled);
  if (file.starts_with("PK\3\4")) return ReadDocx(bytes, tools, cancelled);
  // Word's older format, and a DOCX file that Word has locked, are containers of this kind.
  if (file.starts_with("\xD0\xCF\x11\xE0")) {
    throw HttpError(
        {415, "invalid_request_error",
         fmt::format("the file is in Word's older format, or locked by a password: save it as DOCX "
                     "or PDF, without a password, {}.",
                     kPasted)});
  }
  throw HttpError(
      {415, "invalid_request_error",
       fmt::format("the file is neither PDF nor DOCX: save it as one of these or as plain text, {}.",
                   kPasted)});
}

}  // namespace coppice
