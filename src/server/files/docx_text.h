// The text of a DOCX file, from the XML of its main part (word/document.xml) as it arrives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace coppice {

// Reads text, tabs, breaks, paragraphs and tables of WordprocessingML (ECMA-376, part 1, and ISO 29500's
// "strict" form), and ignores all else. Cells of a row are separated by tabs. The XML may be anything.
class DocxText {
 public:
  // `most`: bytes of text.
  explicit DocxText(size_t most);
  ~DocxText();

  // Takes the next bytes of the XML. Throws Error for what is no XML of a Word document, with a document type
  // (whose entities could grow without limit), with elements more than 1,000 deep, or with more text than
  // `most`. Call nothing after that.
  void Push(std::string_view bytes);
  // The text, at the end of the XML. Throws Error if the XML is not whole.
  std::string Finish();

 private:
  struct Parser;

  void Parse(std::string_view bytes, bool at_end);
  // Of an element, whose name expat gives as "NAMESPACE NAME".
  void Open(std::string_view element);
  void Close(std::string_view element);
  void OpenWord(std::string_view name);
  void CloseWord(std::string_view name);
  void Add(std::string_view text);
  void Fail(const char* why);

  const size_t most_;
  std::string text_;
  std::string fault_;          // why the parser was stopped
  int64_t depth_ = 0;          // of elements
  int64_t skipped_depth_ = 0;  // of the element whose content is a repetition; 0: none
  int64_t cells_ = 0;          // table cells that are open
  bool in_text_ = false;       // within <w:t>
  std::unique_ptr<Parser> parser_;
};

}  // namespace coppice
