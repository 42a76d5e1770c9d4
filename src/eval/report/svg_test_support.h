// Reads back what Svg wrote, for tests.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include "eval/report/svg.h"

namespace coppice {

struct TextBox {
  std::string text;
  double left = 0, top = 0, right = 0, bottom = 0;
};

// The boxes of all texts that are not turned.
inline std::vector<TextBox> TextBoxes(const std::string& svg) {
  static const std::regex kText(
      "<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\" text-anchor=\"(\\w+)\"( class=\"[^\"]*\")?>([^<]*)</text>");
  std::vector<TextBox> boxes;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kText), end; it != end; ++it) {
    const double x = std::stod((*it)[1]), y = std::stod((*it)[2]);
    const double width = TextWidth((*it)[5].str(), 11);
    const std::string anchor = (*it)[3];
    const double left = anchor == "start" ? x : anchor == "end" ? x - width : x - width / 2;
    boxes.push_back({(*it)[5], left, y - 8, left + width, y + 1});
  }
  return boxes;
}

inline bool Overlap(const TextBox& a, const TextBox& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// "" where every element is closed in order and every attribute is in quotes.
inline std::string MarkupFault(const std::string& text) {
  static const std::regex kTag("<(/?)([A-Za-z][A-Za-z0-9]*)((?:\\s+[A-Za-z0-9:-]+=\"[^\"<>]*\")*)\\s*(/?)>");
  std::vector<std::string> open;
  size_t at = 0;
  while ((at = text.find('<', at)) != std::string::npos) {
    std::smatch match;
    if (text.compare(at, 2, "<?") == 0 || text.compare(at, 2, "<!") == 0) {
      ++at;
      continue;
    }
    if (!std::regex_search(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), match, kTag,
                           std::regex_constants::match_continuous))
      return "no tag: " + text.substr(at, 80);
    const std::string name = match[2];
    const bool is_void = name == "meta" || name == "br";
    if (match[1].length() > 0) {
      if (open.empty() || open.back() != name) return "closes " + name;
      open.pop_back();
    } else if (match[4].length() == 0 && !is_void) {
      open.push_back(name);
    }
    at += static_cast<size_t>(match.length());
  }
  return open.empty() ? "" : "open: " + open.back();
}

}  // namespace coppice
