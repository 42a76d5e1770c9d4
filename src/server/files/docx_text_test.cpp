#include "server/files/docx_text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/error.h"

namespace coppice::docx_text_test {
namespace {

constexpr size_t kMost = 1 << 20;
constexpr const char* kRoot =
    "<w:document xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\" "
    "xmlns:a='http://schemas.openxmlformats.org/drawingml/2006/main' "
    "xmlns:mc='http://schemas.openxmlformats.org/markup-compatibility/2006'>";

std::string Whole(const std::string& body) { return kRoot + body + "</w:document>"; }

std::string TextOf(const std::string& xml, size_t step = std::string::npos, size_t most = kMost) {
  DocxText reader(most);
  for (size_t at = 0; at < xml.size();) {
    const std::string piece = xml.substr(at, step);
    reader.Push(piece);
    at += piece.size();
  }
  return reader.Finish();
}

std::string FaultOf(const std::string& xml, size_t most = kMost) {
  try {
    TextOf(xml, 1000, most);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

constexpr const char* kDamaged = "the XML of the document is damaged";

TEST(DocxText, ReadsParagraphsTabsBreaksAndEntities) {
  const std::string xml =
      "\xEF\xBB\xBF<?xml version=\"1.0\"?>\n" +
      Whole(
          "<w:body><w:p><w:pPr><w:tabs><w:tab w:val=\"left\"/></w:tabs></w:pPr><w:r><w:t>One</w:t><w:tab/>"
          "<w:t xml:space=\"preserve\"> two</w:t></w:r></w:p><w:p/>\n<w:p><w:r><w:t>a &lt; b &amp;&amp; "
          "&#x20AC;&#228;</w:t><w:br/><w:t>next</w:t></w:r></w:p></w:body>");
  const std::string text = "One\t two\n\na < b && \xE2\x82\xAC\xC3\xA4\nnext\n";
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, xml.size()}) EXPECT_EQ(TextOf(xml, step), text);
}

TEST(DocxText, RowsOfATableAreLines) {
  const auto cell = [](const std::string& text) {
    return "<w:tc><w:p><w:r><w:t>" + text + "</w:t></w:r></w:p></w:tc>";
  };
  EXPECT_EQ(TextOf(Whole("<w:tbl><w:tr>" + cell("Room") + cell("Serial") + "</w:tr><w:tr>" + cell("1") +
                         cell("220") + "</w:tr></w:tbl>")),
            "Room\tSerial\n1\t220\n");
}

TEST(DocxText, ReadsWhatStandsThereOnce) {
  EXPECT_EQ(
      TextOf(Whole("<w:p><w:del><w:r><w:delText>old</w:delText></w:r></w:del><w:moveFrom><w:r><w:t>moved"
                   "</w:t></w:r></w:moveFrom><w:r><w:instrText>PAGE</w:instrText><mc:Choice><w:t>box</w:t>"
                   "</mc:Choice><mc:Fallback><w:p><w:t>box</w:t></w:p></mc:Fallback><a:t>drawn</a:t>"
                   "<!-- <w:t>said</w:t> --><w:t><![CDATA[a<b]]></w:t></w:r></w:p>")),
      "boxa<b\n");
}

TEST(DocxText, PrefixesAreThoseOfTheFile) {
  EXPECT_EQ(
      TextOf("<ns0:document xmlns:ns0='http://purl.oclc.org/ooxml/wordprocessingml/main'><ns0:p><ns0:t>x"
             "</ns0:t><w:t xmlns:w='urn:other'>y</w:t></ns0:p></ns0:document>"),
      "x\n");
  EXPECT_EQ(
      TextOf("<document xmlns=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\"><p><t>x</t>"
             "</p></document>"),
      "x\n");
}

TEST(DocxText, RefusesWhatIsNoWordDocument) {
  EXPECT_EQ(FaultOf("<html><body/></html>"), "the file holds no Word document");
  EXPECT_EQ(FaultOf("not XML at all"), kDamaged);
  EXPECT_EQ(FaultOf(""), kDamaged);
  EXPECT_EQ(FaultOf("\xFF\xFE<\0w"), kDamaged);
  EXPECT_EQ(FaultOf("<!DOCTYPE x [<!ENTITY a \"aaaa\">]>" + Whole("")),
            "the XML of the document has a document type");
}

TEST(DocxText, RefusesWhatIsDamaged) {
  EXPECT_EQ(FaultOf(kRoot + std::string("<w:p><w:t>cut")), kDamaged);
  EXPECT_EQ(FaultOf(kRoot + std::string("<w:p><w:t")), kDamaged);
  EXPECT_EQ(FaultOf(Whole("") + "<w:p/>"), kDamaged);
  EXPECT_EQ(FaultOf("</w:p>"), kDamaged);
  EXPECT_EQ(FaultOf(Whole("<w:p <w:t>x</w:t>")), kDamaged);
  for (const char* entity : {"&nbsp;", "&#0;", "&#xD800;", "&#x110000;", "&#;", "&#99999999999999;", "& "})
    EXPECT_EQ(FaultOf(Whole("<w:t>" + std::string(entity) + "</w:t>")), kDamaged) << entity;
}

TEST(DocxText, MemoryHasALimit) {
  EXPECT_EQ(FaultOf(Whole("<w:t>" + std::string(2000, 'x') + "</w:t>"), 1000),
            "the text of the document is too long");
}

TEST(DocxText, DepthHasALimit) {
  const auto nested = [](int levels) {
    std::string opened;
    std::string closed;
    for (int i = 0; i < levels; ++i) {
      opened += "<w:p>";
      closed += "</w:p>";
    }
    return Whole(opened + "<w:t>x</w:t>" + closed);
  };
  EXPECT_EQ(TextOf(nested(900)).substr(0, 2), "x\n");
  EXPECT_EQ(FaultOf(nested(1000)), "the XML of the document has elements more than 1,000 deep");
}

// Whatever bytes come, it throws Error or gives a text within the limit.
TEST(DocxText, TakesAnyBytes) {
  const std::string parts[] = {"<w:p>",
                               "</w:p>",
                               "<w:t>",
                               "</w:t>",
                               "<w:tc>",
                               "</w:tc>",
                               "</w:tr>",
                               "<",
                               ">",
                               "&",
                               ";",
                               "&amp;",
                               "<!--",
                               "-->",
                               "<![CDATA[",
                               "]]>",
                               "<mc:Fallback>",
                               "</mc:Fallback>",
                               "\"",
                               "'",
                               "x",
                               "/",
                               "<?",
                               "?>",
                               std::string(1, '\0'),
                               "\xFF"};
  std::mt19937 random(3);
  int whole = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string body;
    for (auto n = random() % 12; n > 0; --n) body += parts[random() % std::size(parts)];
    try {
      EXPECT_LE(TextOf(Whole(body), 1 + random() % 9, 64).size(), 64U);
      ++whole;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(whole, 100);
}

}  // namespace
}  // namespace coppice::docx_text_test
