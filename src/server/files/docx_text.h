// The text of a DOCX file, from the XML of its main part (word/document.xml) as it arrives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coppice {

// Reads text, tabs, breaks, paragraphs and tables of WordprocessingML, and ignores all else. Cells of a row
// are separated by tabs. The XML may be anything; memory is that of the text and of one tag.
class DocxText {
 public:
  // `most`: bytes of text.
  explicit DocxText(size_t most) : most_(most) {}

  // Takes the next bytes of the XML. Throws Error for what is no XML of a Word document, with a document type
  // (whose entities could grow without limit), with a tag of more than 64 KiB, or with more text than `most`.
  void Push(std::string_view bytes);
  // The text, at the end of the XML. Throws Error if the XML is not whole.
  std::string Finish();

 private:
  void Tag(std::string_view tag);
  void Open(std::string_view name, bool is_empty);
  void Close(std::string_view name);
  void FindPrefix(std::string_view root);
  bool IsWord(std::string_view tag, std::string_view& name) const;
  void Characters(std::string_view raw);
  void Add(std::string_view text);
  size_t TakeMarkup(std::string_view text);

  const size_t most_;
  std::string text_;
  std::string rest_;           // of the XML, not read yet
  std::string prefix_;         // of the names of WordprocessingML, with its colon
  int64_t depth_ = 0;          // of elements
  int64_t skipped_depth_ = 0;  // of the element whose content is a repetition; 0: none
  int64_t cells_ = 0;          // table cells that are open
  bool in_text_ = false;       // within <w:t>
  bool begun_ = false;         // a byte order mark was looked for
  bool ended_ = false;         // the root element
};

}  // namespace coppice
