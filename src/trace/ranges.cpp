#include "trace/ranges.h"

#include <fmt/core.h>

#include <charconv>
#include <iterator>

#include "base/check.h"
#include "formats/printable.h"

namespace coppice {
namespace {

// Takes a number from the front of `text`; false where there is none, or it is no int32.
bool TakeNumber(std::string_view& text, int32_t& number) {
  if (text.empty() || text.front() < '0' || text.front() > '9')
    return false;  // from_chars would take a minus
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return true;
}

}  // namespace

std::string RangesText(std::span<const int32_t> positions) {
  std::string text;
  for (size_t i = 0; i < positions.size();) {
    size_t j = i + 1;
    while (j < positions.size() && positions[j] == positions[j - 1] + 1) ++j;
    COPPICE_DCHECK(positions[i] >= 0 && (j == positions.size() || positions[j] > positions[j - 1]));
    if (!text.empty()) text += ',';
    fmt::format_to(std::back_inserter(text), "{}", positions[i]);
    if (j > i + 1) fmt::format_to(std::back_inserter(text), "-{}", positions[j - 1]);
    i = j;
  }
  return text;
}

std::string ParseRanges(std::string_view text, int64_t end, int64_t most, std::vector<int32_t>& positions) {
  while (!text.empty()) {
    const std::string_view here = text;
    int32_t first = 0;
    if (!TakeNumber(text, first)) return fmt::format("no position at \"{}\"", Printable(here));
    int32_t last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!TakeNumber(text, last)) return fmt::format("no range at \"{}\"", Printable(here));
    }
    if (!text.empty()) {
      if (text.front() != ',' || text.size() == 1) return fmt::format("bad list at \"{}\"", Printable(here));
      text.remove_prefix(1);
    }
    if (last < first || (!positions.empty() && first <= positions.back())) {
      return fmt::format("positions do not ascend at \"{}\"", Printable(here));
    }
    if (last >= end) return fmt::format("position {} is outside 0 to {}", last, end - 1);
    if (last - first >= most - static_cast<int64_t>(positions.size())) {
      return fmt::format("more than {} positions", most);
    }
    for (int32_t p = first; p <= last; ++p) positions.push_back(p);
  }
  return "";
}

}  // namespace coppice
