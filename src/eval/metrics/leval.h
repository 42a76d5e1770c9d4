// The metrics of L-Eval's closed tasks (https://github.com/OpenLMLab/LEval, Evaluation/), with their guess: a
// prediction that names no letter counts as "A", as it does there.
#pragma once

#include <string>
#include <string_view>

namespace coppice {

// The letters of a multiple-choice answer that a prediction names, sorted ("AC"); with `several` all of them.
std::string ChosenLetters(std::string_view prediction, bool several);
// 1 for the same letters; with `several` a quarter for a part of them.
double MultipleChoice(std::string_view prediction, std::string_view reference, bool several);

// The digits of the number behind "The answer is", else of the last word with a digit in the first paragraph.
std::string FinalNumber(std::string_view prediction);
double FinalNumberMatch(std::string_view prediction, std::string_view reference);

// Whether the prediction holds the reference, case and spaces left out; as numbers where both are numbers.
double ExactOrContained(std::string_view prediction, std::string_view reference);

// codeU: the last words of the prediction, as many as the reference has and three more, hold the reference.
double CodeOutput(std::string_view prediction, std::string_view reference);

// sci_fi: "True [fact: False]" against the same; half a point for each of the two. A prediction without the
// second part gets nothing for it (the official program stops there).
double LoyaltyAndFact(std::string_view prediction, std::string_view reference);

}  // namespace coppice
