#include "server/files/docx_text.h"

#include <expat.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/error.h"

namespace coppice {

namespace {

constexpr int64_t kDeepest = 1000;  // expat keeps a record of each element that is open
// The namespaces of WordprocessingML: ECMA-376's, and that of ISO 29500's "strict" form.
constexpr std::string_view kWord[] = {"http://schemas.openxmlformats.org/wordprocessingml/2006/main ",
                                      "http://purl.oclc.org/ooxml/wordprocessingml/main "};
constexpr std::string_view kFallback = "http://schemas.openxmlformats.org/markup-compatibility/2006 Fallback";

// The element's name in WordprocessingML; "" if it is another language's.
std::string_view WordName(std::string_view element) {
  for (const std::string_view space : kWord)
    if (element.starts_with(space)) return element.substr(space.size());
  return "";
}

}  // namespace

struct DocxText::Parser {
  Parser() : expat(XML_ParserCreateNS(nullptr, ' ')) {
    if (expat == nullptr) throw std::bad_alloc();
  }
  ~Parser() { XML_ParserFree(expat); }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  XML_Parser expat;
};

DocxText::DocxText(size_t most) : most_(most), parser_(std::make_unique<Parser>()) {
  XML_Parser expat = parser_->expat;
  XML_SetUserData(expat, this);
  XML_SetElementHandler(
      expat,
      [](void* self, const XML_Char* name, const XML_Char**) { static_cast<DocxText*>(self)->Open(name); },
      [](void* self, const XML_Char* name) { static_cast<DocxText*>(self)->Close(name); });
  XML_SetCharacterDataHandler(expat, [](void* self, const XML_Char* text, int size) {
    auto* reader = static_cast<DocxText*>(self);
    if (reader->in_text_ && reader->skipped_depth_ == 0)
      reader->Add(std::string_view(text, static_cast<size_t>(size)));
  });
  XML_SetStartDoctypeDeclHandler(
      expat, [](void* self, const XML_Char*, const XML_Char*, const XML_Char*, int) {
        static_cast<DocxText*>(self)->Fail("the XML of the document has a document type");
      });
}

DocxText::~DocxText() = default;

void DocxText::Push(std::string_view bytes) {
  // XML_Parse takes an int.
  constexpr size_t kPiece = size_t{1} << 20;
  for (; bytes.size() > kPiece; bytes.remove_prefix(kPiece)) Parse(bytes.substr(0, kPiece), false);
  Parse(bytes, false);
}

std::string DocxText::Finish() {
  Parse("", true);
  return std::move(text_);
}

void DocxText::Parse(std::string_view bytes, bool at_end) {
  const auto status = XML_Parse(parser_->expat, bytes.data(), static_cast<int>(bytes.size()), at_end);
  if (!fault_.empty()) throw Error("{}", fault_);
  if (status == XML_STATUS_OK) return;
  if (XML_GetErrorCode(parser_->expat) == XML_ERROR_NO_MEMORY) throw std::bad_alloc();
  throw Error("the XML of the document is damaged");
}

// Handlers are called by a library in C, so they do not throw.
void DocxText::Fail(const char* why) {
  if (fault_.empty()) fault_ = why;
  XML_StopParser(parser_->expat, XML_FALSE);
}

void DocxText::Open(std::string_view element) {
  const std::string_view name = WordName(element);
  if (depth_++ == 0 && name.empty()) return Fail("the file holds no Word document");
  if (depth_ > kDeepest) return Fail("the XML of the document has elements more than 1,000 deep");
  if (skipped_depth_ != 0) return;
  // The same text once more: for programs that do not know its new form, or at the place that it was moved
  // from.
  if (element == kFallback || name == "moveFrom")
    skipped_depth_ = depth_;
  else
    OpenWord(name);
}

void DocxText::Close(std::string_view element) {
  if (skipped_depth_ == 0) CloseWord(WordName(element));
  if (skipped_depth_ == depth_) skipped_depth_ = 0;
  --depth_;
}

void DocxText::OpenWord(std::string_view name) {
  if (name == "t") {
    in_text_ = true;
  } else if (name == "tab") {
    // Tab stops of a paragraph's form have the same name, and stand before its text.
    if (!text_.empty() && text_.back() != '\n') Add("\t");
  } else if (name == "br" || name == "cr") {
    Add("\n");
  } else if (name == "noBreakHyphen") {
    Add("-");
  } else if (name == "tc") {
    ++cells_;
  }
}

void DocxText::CloseWord(std::string_view name) {
  const auto trim = [this](std::string_view what) {
    while (!text_.empty() && what.find(text_.back()) != what.npos) text_.pop_back();
  };
  if (name == "t") {
    in_text_ = false;
  } else if (name == "p") {
    Add(cells_ > 0 ? " " : "\n");
  } else if (name == "tc") {
    --cells_;
    trim(" ");
    Add("\t");
  } else if (name == "tr") {
    trim(" \t");
    Add(cells_ > 0 ? " " : "\n");
  }
}

void DocxText::Add(std::string_view text) {
  if (text_.size() + text.size() > most_) return Fail("the text of the document is too long");
  text_ += text;
}

}  // namespace coppice
