#include "eval/metrics/class_count.h"

#include <algorithm>
#include <vector>

#include "eval/metrics/python_text.h"

namespace coppice {

namespace {

double ShareOfNumbers(std::string_view prediction, std::u32string_view wanted) {
  const std::vector<std::u32string> numbers = FindNumbers(ToCodePoints(prediction));
  if (numbers.empty()) return 0;
  return static_cast<double>(std::count(numbers.begin(), numbers.end(), wanted)) /
         static_cast<double>(numbers.size());
}

}  // namespace

double ClassificationScore(std::string_view prediction, std::string_view reference,
                           std::span<const std::string> classes) {
  std::vector<std::string_view> named;
  for (const std::string& name : classes) {
    if (prediction.find(name) != std::string_view::npos) named.push_back(name);
  }
  for (size_t i = 0; i < named.size(); ++i) {
    const std::string_view name = named[i];
    if (name == reference || reference.find(name) == std::string_view::npos) continue;
    named.erase(
        std::find(named.begin(), named.end(), name));  // what follows it is skipped, as in the original
  }
  if (std::find(named.begin(), named.end(), reference) == named.end()) return 0;
  return 1.0 / static_cast<double>(named.size());
}

double RetrievalScore(std::string_view prediction, std::string_view reference) {
  const std::u32string text = ToCodePoints(reference);
  for (const std::u32string_view label : {U"Paragraph ", U"段落"}) {
    for (size_t at = text.find(label); at != std::u32string::npos; at = text.find(label, at + 1)) {
      const size_t digits = at + label.size();
      if (digits < text.size() && IsPythonDigit(text[digits]))
        return ShareOfNumbers(prediction, FindNumbers(std::u32string_view(text).substr(digits)).front());
    }
  }
  return 0;
}

double CountScore(std::string_view prediction, std::string_view reference) {
  return ShareOfNumbers(prediction, ToCodePoints(reference));
}

}  // namespace coppice
