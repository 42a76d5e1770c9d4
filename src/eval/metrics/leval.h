// The metrics of L-Eval's closed tasks (https://github.com/OpenLMLab/LEval, Evaluation/), with their guess: a
// prediction that names no letter counts as "A", as it does there.
#pragma once

#include <string>
#include <string_view>

namespace coppice {

// The letters of the choices that a prediction names, sorted ("AC"): all of them with `several`, else one.
std::string ChosenLetters(std::string_view prediction, bool several);
// 1 for the same letters, 0.25 for a part of them without a wrong one. No letter counts as a part, as in the
// official program.
double MultipleChoice(std::string_view prediction, std::string_view reference, bool several);

// The digits of the number after "The answer is". Without these words: the digits of the last word of the
// first paragraph that has any.
std::string FinalNumber(std::string_view prediction);
double FinalNumberMatch(std::string_view prediction, std::string_view reference);

// 1 if the prediction contains the reference. Case and spaces are ignored; numbers are compared as numbers.
double ExactOrContained(std::string_view prediction, std::string_view reference);

// codeU: 1 if the prediction's last n + 3 words contain the reference, which has n words.
double CodeOutput(std::string_view prediction, std::string_view reference);

// sci_fi: answers like "True [fact: False]", half a point for each of the two words. A prediction without the
// second word gets no point for it (the official program fails on it).
double LoyaltyAndFact(std::string_view prediction, std::string_view reference);

}  // namespace coppice
