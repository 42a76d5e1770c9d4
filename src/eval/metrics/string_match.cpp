#include "eval/metrics/string_match.h"

#include <algorithm>

#include "eval/metrics/python_text.h"

namespace coppice {

namespace {

// RULER's evaluate.py prepares a prediction so: control characters become line ends, both ends are stripped.
std::string CleanPrediction(std::string_view prediction) {
  std::u32string text = Strip(ToCodePoints(prediction));
  for (char32_t& c : text) {
    if (c < 0x20) c = U'\n';
  }
  return ToUtf8(Lower(Strip(text)));
}

bool IsAsciiDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view FirstPart(std::string_view text, std::string_view separator) {
  return text.substr(0, text.find(separator));
}

}  // namespace

double StringMatchAll(std::string_view prediction, std::span<const std::string> references) {
  if (references.empty()) return 0;
  const std::string text = CleanPrediction(prediction);
  double found = 0;
  for (const std::string& reference : references) {
    if (text.find(LowerUtf8(reference)) != std::string::npos) found += 1;
  }
  return found / static_cast<double>(references.size());
}

double StringMatchPart(std::string_view prediction, std::span<const std::string> references) {
  const std::string text = CleanPrediction(prediction);
  const bool any = std::any_of(references.begin(), references.end(), [&](const std::string& reference) {
    return text.find(LowerUtf8(reference)) != std::string::npos;
  });
  return any ? 1 : 0;
}

double NumberMatch(std::string_view prediction, std::span<const std::string> references) {
  for (const std::string& reference : references) {
    if (reference.empty()) continue;
    for (size_t at = prediction.find(reference); at != std::string_view::npos;
         at = prediction.find(reference, at + 1)) {
      const size_t end = at + reference.size();
      const bool touches = (at > 0 && IsAsciiDigit(prediction[at - 1])) ||
                           (end < prediction.size() && IsAsciiDigit(prediction[end]));
      if (!touches) return 1;
    }
  }
  return 0;
}

double LastNumber(std::string_view prediction, std::string_view reference) {
  const std::vector<std::u32string> numbers = FindNumbers(ToCodePoints(prediction));
  if (numbers.empty()) return 0;
  const auto plain = [](std::u32string_view digits) {  // as int() reads them: 007 is 7
    const size_t first = digits.find_first_not_of(U'0');
    return first == std::u32string_view::npos ? std::u32string(U"0") : std::u32string(digits.substr(first));
  };
  return plain(numbers.back()) == plain(ToCodePoints(reference)) ? 1 : 0;
}

double OnlyLabel(std::string_view prediction, std::string_view reference, std::string_view question,
                 std::span<const std::string> labels) {
  const std::string lower = LowerUtf8(prediction);
  // The official code also cuts at "Question", which lower-cased text never holds.
  const std::string_view text = FirstPart(FirstPart(FirstPart(lower, "."), "<context>"), "<example>");
  const std::string asked = LowerUtf8(question);
  const std::string target = LowerUtf8(reference);
  size_t others = 0;
  bool found = false;
  for (const std::string& label : labels) {
    const std::string name = LowerUtf8(label);
    if (asked.find(name) != std::string::npos || text.find(name) == std::string_view::npos) continue;
    if (name == target) {
      found = true;
    } else {
      ++others;
    }
  }
  return found && others == 0 ? 1 : 0;
}

}  // namespace coppice
