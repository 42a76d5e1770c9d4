#include "server/files/docx_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.h"

namespace coppice {

namespace {

constexpr size_t kLongestTag = size_t{64} << 10;
constexpr size_t kLongestEntity = 12;
constexpr uint32_t kLastCodePoint = 0x10FFFF;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kSpaces = " \t\r\n";
// The namespace's two names end so: ECMA-376's and ISO 29500's "strict" one.
constexpr std::array<std::string_view, 2> kWordNames = {"/wordprocessingml/2006/main",
                                                        "/wordprocessingml/main"};

void AppendUtf8(uint32_t code, std::string& text) {
  const auto byte = [&](uint32_t value) { text += static_cast<char>(value); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3F));
  } else {
    byte(0xF0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3F));
    byte(0x80 | (code >> 6 & 0x3F));
  }
  byte(0x80 | (code & 0x3F));
}

// What `name`, the part between & and ;, stands for; "" where XML knows no such entity.
std::string EntityText(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, char>, 5> kNamed = {
      {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};
  for (const auto& [known, letter] : kNamed) {
    if (name == known) return std::string(1, letter);
  }
  if (name.size() < 2 || name[0] != '#') return "";
  const bool is_hex = name[1] == 'x';
  name.remove_prefix(is_hex ? 2 : 1);
  uint32_t code = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), code, is_hex ? 16 : 10);
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  if (error != std::errc() || end != name.data() + name.size() || code == 0 || code > kLastCodePoint ||
      is_surrogate)
    return "";
  std::string text;
  AppendUtf8(code, text);
  return text;
}

// `text` without an entity that goes on in the bytes to come.
size_t WholeEntities(std::string_view text) {
  const size_t last = text.rfind('&');
  const bool is_open = last != std::string_view::npos && text.find(';', last) == std::string_view::npos;
  return is_open && text.size() - last <= kLongestEntity ? last : text.size();
}

std::string_view NameOf(std::string_view tag) { return tag.substr(0, tag.find_first_of(" \t\r\n/")); }

Error NotWhole() { return Error("the XML of the document is damaged"); }

}  // namespace

void DocxText::Push(std::string_view bytes) {
  rest_ += bytes;
  if (!begun_) {
    if (rest_.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(rest_)) return;
    if (rest_.starts_with(kByteOrderMark)) rest_.erase(0, kByteOrderMark.size());
    begun_ = true;
  }
  std::string_view left = rest_;
  while (!left.empty()) {
    const size_t begin = left.find('<');
    const size_t text = begin == std::string_view::npos ? WholeEntities(left) : begin;
    Characters(left.substr(0, text));
    left.remove_prefix(text);
    if (begin == std::string_view::npos) break;
    const size_t taken = TakeMarkup(left);
    if (taken == 0) break;
    left.remove_prefix(taken);
  }
  if (left.size() > kLongestTag) throw Error("the XML of the document has a tag of more than 64 KiB");
  rest_.erase(0, rest_.size() - left.size());
}

// Takes the tag, comment or section at the beginning of `text`. Returns its length, or 0 if it is not whole.
size_t DocxText::TakeMarkup(std::string_view text) {
  constexpr std::string_view kComment = "<!--";
  constexpr std::string_view kSection = "<![CDATA[";
  const auto until = [&](std::string_view end, size_t from) {
    const size_t at = text.find(end, from);
    return at == std::string_view::npos ? 0 : at + end.size();
  };
  if (text.size() < kSection.size() && (kComment.starts_with(text) || kSection.starts_with(text))) return 0;
  if (text.starts_with(kComment)) return until("-->", kComment.size());
  if (text.starts_with("<?")) return until("?>", 2);
  if (text.starts_with(kSection)) {
    const size_t size = until("]]>", kSection.size());
    if (size > 0 && in_text_ && skipped_depth_ == 0)
      Add(text.substr(kSection.size(), size - kSection.size() - 3));
    return size;
  }
  if (text.starts_with("<!")) throw Error("the XML of the document has a document type");
  char quote = 0;
  for (size_t at = 1; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '<') {
      throw NotWhole();
    } else if (c == '>') {
      Tag(text.substr(1, at - 1));
      return at + 1;
    }
  }
  return 0;
}

void DocxText::Tag(std::string_view tag) {
  if (tag.empty() || ended_) throw NotWhole();
  if (tag[0] == '/') {
    if (depth_ == 0) throw NotWhole();
    tag.remove_prefix(1);
    std::string_view name;
    if (skipped_depth_ == 0 && IsWord(tag, name)) Close(name);
    if (skipped_depth_ == depth_) skipped_depth_ = 0;
    if (--depth_ == 0) ended_ = true;
    return;
  }
  if (depth_ == 0) FindPrefix(tag);
  const bool is_empty = tag.ends_with('/');
  if (!is_empty) ++depth_;
  if (skipped_depth_ != 0) return;
  std::string_view name;
  const bool is_word = IsWord(tag, name);
  // The same text once more: for programs that do not know its new form, or at the place that it was moved
  // from.
  const bool is_repetition = is_word ? name == "moveFrom" : NameOf(tag).ends_with(":Fallback");
  if (is_repetition && !is_empty) {
    skipped_depth_ = depth_;
  } else if (is_word) {
    Open(name, is_empty);
  }
  if (depth_ == 0) throw NotWhole();  // an empty root
}

void DocxText::FindPrefix(std::string_view root) {
  for (const std::string_view name : kWordNames) {
    for (const char quote : {'"', '\''}) {
      const size_t end = root.find(std::string(name) + quote);
      if (end == std::string_view::npos) continue;
      const size_t begin = root.rfind(quote, end);
      if (begin == std::string_view::npos || begin == 0 || root[begin - 1] != '=') continue;
      const std::string_view attribute = root.substr(0, begin - 1);
      const std::string_view key = attribute.substr(attribute.find_last_of(kSpaces) + 1);
      prefix_ = key.starts_with("xmlns:") ? std::string(key.substr(6)) + ":" : "";
      return;
    }
  }
  throw Error("the file holds no Word document");
}

bool DocxText::IsWord(std::string_view tag, std::string_view& name) const {
  const std::string_view whole = NameOf(tag);
  if (!whole.starts_with(prefix_)) return false;
  name = whole.substr(prefix_.size());
  return name.find(':') == std::string_view::npos;
}

void DocxText::Open(std::string_view name, bool is_empty) {
  if (name == "t") {
    in_text_ = !is_empty;
  } else if (name == "tab") {
    // Tab stops of a paragraph's form have the same name, and stand before its text.
    if (!text_.empty() && text_.back() != '\n') Add("\t");
  } else if (name == "br" || name == "cr") {
    Add("\n");
  } else if (name == "noBreakHyphen") {
    Add("-");
  } else if (name == "tc" && !is_empty) {
    ++cells_;
  } else if (name == "p" && is_empty && cells_ == 0) {
    Add("\n");
  }
}

void DocxText::Close(std::string_view name) {
  const auto trim = [this] {
    while (!text_.empty() && (text_.back() == ' ' || text_.back() == '\t')) text_.pop_back();
  };
  if (name == "t") {
    in_text_ = false;
  } else if (name == "p") {
    Add(cells_ > 0 ? " " : "\n");
  } else if (name == "tc") {
    cells_ = std::max<int64_t>(0, cells_ - 1);
    while (!text_.empty() && text_.back() == ' ') text_.pop_back();
    Add("\t");
  } else if (name == "tr") {
    trim();
    Add(cells_ > 0 ? " " : "\n");
  }
}

void DocxText::Characters(std::string_view raw) {
  if (raw.empty()) return;
  if (!in_text_) {
    if (depth_ == 0 && raw.find_first_not_of(kSpaces) != std::string_view::npos) throw NotWhole();
    return;
  }
  if (skipped_depth_ != 0) return;
  while (!raw.empty()) {
    const size_t plain = std::min(raw.find('&'), raw.size());
    Add(raw.substr(0, plain));
    raw.remove_prefix(plain);
    if (raw.empty()) return;
    const size_t end = raw.find(';');
    const std::string text = end > kLongestEntity ? "" : EntityText(raw.substr(1, end - 1));
    if (text.empty()) throw NotWhole();
    Add(text);
    raw.remove_prefix(end + 1);
  }
}

void DocxText::Add(std::string_view text) {
  if (text_.size() + text.size() > most_) throw Error("the text of the document is too long");
  text_ += text;
}

std::string DocxText::Finish() {
  if (!ended_ || rest_.find_first_not_of(kSpaces) != std::string::npos) throw NotWhole();
  return std::move(text_);
}

}  // namespace coppice
