#include "eval/metrics/leval.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "eval/metrics/python_text.h"

namespace coppice {

namespace {

bool IsChoice(char32_t c) { return c >= U'A' && c <= U'D'; }

std::u32string Sorted(std::u32string_view letters) {
  const std::set<char32_t> distinct(letters.begin(), letters.end());
  return {distinct.begin(), distinct.end()};
}

std::u32string OnlyChoices(std::u32string_view text) {
  std::u32string letters;
  std::copy_if(text.begin(), text.end(), std::back_inserter(letters), IsChoice);
  return letters;
}

// Capitals that white space, a full stop or a bracket follows: "A. C)".
std::u32string Options(std::u32string_view text) {
  std::u32string found;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const char32_t next = text[i + 1];
    if (text[i] >= U'A' && text[i] <= U'Z' && (IsPythonSpace(next) || next == U'.' || next == U')'))
      found.push_back(text[i]);
  }
  return found;
}

std::u32string SeveralLetters(std::u32string_view text) {
  const size_t leading =
      static_cast<size_t>(std::find_if_not(text.begin(), text.end(), IsChoice) - text.begin());
  const std::u32string first(text.substr(0, leading));
  if (leading > 1) return Sorted(first);
  std::u32string_view rest = text.substr(leading);
  rest = rest.substr(0, rest.find(U"Question"));
  const std::u32string letters = Sorted(OnlyChoices(first + Options(rest)));
  if (!letters.empty()) return letters;
  const auto begin = std::find_if(rest.begin(), rest.end(), IsChoice);
  const std::u32string run(begin, std::find_if_not(begin, rest.end(), IsChoice));
  return run.empty() ? U"A" : run;
}

std::u32string Replaced(std::u32string text, std::u32string_view from, std::u32string_view to) {
  for (size_t at = text.find(from); at != std::u32string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

std::u32string CodeText(std::string_view prediction) {
  std::u32string text;
  bool in_space = false;
  for (const char32_t c : ToCodePoints(prediction)) {
    if (!IsPythonSpace(c) || !in_space) text.push_back(IsPythonSpace(c) ? U' ' : c);
    in_space = IsPythonSpace(c);
  }
  for (const std::u32string_view drop : {U",", U"'", U"\\", U".0"})
    text = Replaced(std::move(text), drop, U"");
  text = Replaced(std::move(text), U"] [", U"][");
  text = Replaced(std::move(text), U"[ [", U"[[");
  return Replaced(std::move(text), U"] ]", U"]]");
}

std::string FirstVerdict(std::u32string_view text) {
  for (const std::u32string& word : SplitWords(text)) {
    if (word.find(U"true") != std::u32string::npos) return "true";
    if (word.find(U"false") != std::u32string::npos) return "false";
  }
  return "";
}

std::optional<double> AsNumber(std::string_view text) {
  const std::string stripped = ToUtf8(Strip(ToCodePoints(text)));
  try {
    size_t used = 0;
    const double value = std::stod(stripped, &used);
    const bool decimal = stripped.find_first_of("xXpP") == std::string::npos;
    if (used == stripped.size() && decimal) return value;
  } catch (const std::logic_error&) {
  }
  return std::nullopt;
}

std::string LowerWithoutSpaces(std::string_view text) {
  std::string lower = LowerUtf8(text);
  std::erase(lower, ' ');
  return lower;
}

}  // namespace

std::string ChosenLetters(std::string_view prediction, bool several) {
  const std::u32string text = ToCodePoints(prediction);
  if (Strip(text).empty()) return "None";
  if (std::u32string_view(U"ABCD").find(text) != std::u32string_view::npos) return ToUtf8(text);
  if (!several) {
    const auto first = std::find_if(text.begin(), text.end(), IsChoice);
    if (first != text.end()) return ToUtf8(std::u32string(1, *first));
  }
  return ToUtf8(SeveralLetters(text));
}

double MultipleChoice(std::string_view prediction, std::string_view reference, bool several) {
  const std::vector<std::u32string> words = SplitWords(ToCodePoints(reference));
  std::u32string gold = words.empty() ? U"" : OnlyChoices(words.front());
  if (gold.empty()) gold = U"A";
  const std::u32string chosen = ToCodePoints(ChosenLetters(prediction, several));
  if (chosen == gold) return 1;
  const bool part = std::all_of(chosen.begin(), chosen.end(),
                                [&](char32_t c) { return gold.find(c) != std::u32string::npos; });
  return part ? 0.25 : 0;
}

std::string FinalNumber(std::string_view prediction) {
  const std::u32string text = ToCodePoints(prediction);
  constexpr std::u32string_view kLabel = U"The answer is ";
  std::u32string word;
  for (size_t at = text.find(kLabel); at != std::u32string::npos && word.empty();
       at = text.find(kLabel, at + 1)) {
    const size_t begin = at + kLabel.size();
    if (begin < text.size() && !IsPythonSpace(text[begin]))
      word = SplitWords(std::u32string_view(text).substr(begin)).front();
  }
  if (word.empty()) {
    const std::vector<std::u32string> words =
        SplitAt(std::u32string_view(text).substr(0, text.find(U"\n\n")), U' ');
    const auto last = std::find_if(words.rbegin(), words.rend(), [](const std::u32string& candidate) {
      return std::any_of(candidate.begin(), candidate.end(), IsPythonDigit);
    });
    if (last != words.rend()) word = *last;
  }
  std::u32string digits;
  for (const char32_t c : std::u32string_view(word).substr(0, word.find(U'.'))) {
    if (IsPythonDigit(c)) digits.push_back(c);
  }
  return ToUtf8(digits);
}

double FinalNumberMatch(std::string_view prediction, std::string_view reference) {
  return ExactOrContained(FinalNumber(prediction), FinalNumber(reference));
}

double ExactOrContained(std::string_view prediction, std::string_view reference) {
  const std::optional<double> guess = AsNumber(prediction);
  const std::optional<double> gold = AsNumber(reference);
  if (guess && gold) return *guess == *gold ? 1 : 0;
  return LowerWithoutSpaces(prediction).find(LowerWithoutSpaces(reference)) != std::string::npos ? 1 : 0;
}

double CodeOutput(std::string_view prediction, std::string_view reference) {
  const size_t wanted = SplitWords(ToCodePoints(reference)).size() + 3;
  std::u32string text = CodeText(prediction);
  for (const std::u32string_view drop :
       {U"will be", U"of the code", U"is", U"would be", U"the value of", U"the result of", U"printed"}) {
    text = Replaced(std::move(text), drop, U"");
  }
  constexpr std::u32string_view kLabel = U"the final output";
  const size_t label = text.rfind(kLabel);
  if (label != std::u32string::npos) text.erase(0, label + kLabel.size());
  // re.split keeps the empty texts outside leading and trailing white space.
  std::vector<std::u32string> words = SplitWords(text);
  if (text.empty() || IsPythonSpace(text.front())) words.insert(words.begin(), U"");
  if (!text.empty() && IsPythonSpace(text.back())) words.emplace_back();
  const size_t count = std::min(words.size(), wanted);
  const size_t begin = label != std::u32string::npos ? 0 : words.size() - count;
  std::u32string joined;
  for (size_t i = begin; i < begin + count; ++i) joined += (i > begin ? U" " : U"") + words[i];
  return ExactOrContained(ToUtf8(joined), ToUtf8(CodeText(reference)));
}

double LoyaltyAndFact(std::string_view prediction, std::string_view reference) {
  const auto parts = [](std::string_view text) {
    const std::u32string lower = Lower(ToCodePoints(text));
    constexpr std::u32string_view kLabel = U"[fact:";
    const size_t label = lower.find(kLabel);
    const std::u32string_view whole = lower;
    const auto fact =
        label == std::u32string::npos ? std::u32string_view() : whole.substr(label + kLabel.size());
    return std::pair(FirstVerdict(whole.substr(0, label)), FirstVerdict(fact));
  };
  const auto [loyalty, fact] = parts(prediction);
  const auto [gold_loyalty, gold_fact] = parts(reference);
  return (!loyalty.empty() && loyalty == gold_loyalty ? 0.5 : 0) +
         (!fact.empty() && fact == gold_fact ? 0.5 : 0);
}

}  // namespace coppice
