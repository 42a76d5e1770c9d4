// Elements of SVG as text. Text from outside (task names, specs, paths) is escaped here and nowhere else.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coppice {

// For text and quoted attributes of HTML and SVG: markup is escaped, and what XML forbids (control
// characters, bytes that are not UTF-8) becomes U+FFFD.
std::string Escaped(std::string_view text);

// "12.5", "-3", "0": at most two digits behind the point, the same in every locale.
std::string Coordinate(double value);

// An upper estimate of a text's width in the pages' fonts, so that a layout need not know them.
double TextWidth(std::string_view text, double size = 12);
// With "..." in its middle where it would be wider.
std::string Shortened(std::string_view text, double width, double size = 12);

enum class Anchor { kStart, kMiddle, kEnd };

struct Place {
  double x = 0;
  double y = 0;
};

// A picture under construction. Colours are classes of kChartStyle, so that one picture serves light and
// dark; a browser shows a mark's title as its tooltip.
class Svg {
 public:
  // `id` must be unique in its page; title and description are for those who cannot see it.
  Svg(std::string id, double width, double height, std::string_view title, std::string_view description);

  void OpenGroup(std::string_view css_class);
  void CloseGroup();
  void Line(Place from, Place to, std::string_view css_class);
  // `d` is a path's data; `dash` as stroke-dasharray, or empty.
  void Path(const std::string& d, std::string_view css_class, std::string_view title = {},
            std::string_view dash = {});
  // `fill` is a colour, or empty where the class has one.
  void Rect(Place corner, double width, double height, std::string_view css_class,
            std::string_view title = {}, std::string_view fill = {});
  void Text(Place at, std::string_view text, Anchor anchor, std::string_view css_class = {}, double turn = 0);

  double width() const { return width_; }
  double height() const { return height_; }
  // <svg ...>...</svg>; `style` is included if the picture is a file of its own, with its xmlns.
  std::string Element() const;
  std::string File(std::string_view style) const;

 private:
  std::string Head(bool file) const;

  std::string id_;
  double width_;
  double height_;
  std::string title_;
  std::string description_;
  std::string body_;
};

}  // namespace coppice
