#include "eval/report/svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "trace/texts.h"

namespace coppice {

namespace {

std::string ClassOf(std::string_view css_class) {
  return css_class.empty() ? "" : fmt::format(" class=\"{}\"", css_class);
}

std::string Ended(std::string_view element, std::string_view title) {
  return title.empty() ? "/>\n" : fmt::format("><title>{}</title></{}>\n", Escaped(title), element);
}

// Of a character in a sans-serif font, in ems; wide ones of unknown scripts count as whole.
double WidthOf(unsigned char c) {
  if (c >= 0xC0) return 1.0;  // the first byte of a character beyond ASCII
  if (c >= 0x80) return 0;    // its other bytes
  constexpr std::string_view kNarrow = " .,:;'|!ijlI/()[]";
  constexpr std::string_view kWide = "mwMW%@";
  if (kNarrow.find(static_cast<char>(c)) != std::string_view::npos) return 0.34;
  if (kWide.find(static_cast<char>(c)) != std::string_view::npos) return 0.92;
  return c >= 'A' && c <= 'Z' ? 0.7 : 0.59;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : ReplaceInvalidUtf8(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
        escaped += control ? "\xEF\xBF\xBD" : std::string(1, c);
      }
    }
  }
  return escaped;
}

std::string Coordinate(double value) {
  COPPICE_CHECK(std::isfinite(value));
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double TextWidth(std::string_view text, double size) {
  double ems = 0;
  for (const char c : text) ems += WidthOf(static_cast<unsigned char>(c));
  return ems * size;
}

std::string Shortened(std::string_view text, double width, double size) {
  if (TextWidth(text, size) <= width) return std::string(text);
  // Keeps more of the beginning, which has the method's name.
  const auto at_seam = [&](size_t at) {
    while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
  };
  for (size_t kept = text.size(); kept > 0; --kept) {
    const size_t head = at_seam(kept * 2 / 3);
    const size_t tail = at_seam(text.size() - (kept - kept * 2 / 3));
    std::string shorter = fmt::format("{}...{}", text.substr(0, head), text.substr(tail));
    if (TextWidth(shorter, size) <= width) return shorter;
  }
  return "...";
}

Svg::Svg(std::string id, double width, double height, std::string_view title, std::string_view description)
    : id_(std::move(id)), width_(width), height_(height), title_(title), description_(description) {}

void Svg::OpenGroup(std::string_view css_class) { body_ += fmt::format("<g{}>\n", ClassOf(css_class)); }

void Svg::CloseGroup() { body_ += "</g>\n"; }

void Svg::Line(Place from, Place to, std::string_view css_class) {
  body_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"{}/>\n", Coordinate(from.x),
                       Coordinate(from.y), Coordinate(to.x), Coordinate(to.y), ClassOf(css_class));
}

void Svg::Path(const std::string& d, std::string_view css_class, std::string_view title,
               std::string_view dash) {
  body_ +=
      fmt::format("<path d=\"{}\"{}{}{}", d, ClassOf(css_class),
                  dash.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", dash), Ended("path", title));
}

void Svg::Rect(Place corner, double width, double height, std::string_view css_class, std::string_view title,
               std::string_view fill) {
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}{}{}", Coordinate(corner.x),
                       Coordinate(corner.y), Coordinate(width), Coordinate(height), ClassOf(css_class),
                       fill.empty() ? "" : fmt::format(" fill=\"{}\"", fill), Ended("rect", title));
}

void Svg::Text(Place at, std::string_view text, Anchor anchor, std::string_view css_class, double turn) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  const std::string turned = turn == 0 ? ""
                                       : fmt::format(" transform=\"rotate({} {} {})\"", Coordinate(turn),
                                                     Coordinate(at.x), Coordinate(at.y));
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}{}>{}</text>\n", Coordinate(at.x),
                       Coordinate(at.y), kAnchors[static_cast<size_t>(anchor)], ClassOf(css_class), turned,
                       Escaped(text));
}

std::string Svg::Head(bool file) const {
  return fmt::format(
      "<svg{} class=\"chart\" role=\"img\" viewBox=\"0 0 {} {}\"{} aria-labelledby=\"{}-title {}-desc\">\n"
      "<title id=\"{}-title\">{}</title>\n<desc id=\"{}-desc\">{}</desc>\n",
      file ? " xmlns=\"http://www.w3.org/2000/svg\"" : "", Coordinate(width_), Coordinate(height_),
      file ? fmt::format(" width=\"{}\" height=\"{}\"", Coordinate(width_), Coordinate(height_)) : "", id_,
      id_, id_, Escaped(title_), id_, Escaped(description_));
}

std::string Svg::Element() const { return Head(false) + body_ + "</svg>\n"; }

std::string Svg::File(std::string_view style) const {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}<style>{}</style>\n<rect class=\"paper\" width=\"100%\" "
      "height=\"100%\"/>\n{}</svg>\n",
      Head(true), style, body_);
}

}  // namespace coppice
