// Whether references occur in a prediction: RULER's metrics, and the ones of needle, line and key-value
// tasks.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace coppice {

// RULER: the share of references that the prediction holds, or whether it holds any; case does not count.
double StringMatchAll(std::string_view prediction, std::span<const std::string> references);
double StringMatchPart(std::string_view prediction, std::span<const std::string> references);

// Whether the prediction contains a reference with no digit next to it: 48213 is not in 148213.
double NumberMatch(std::string_view prediction, std::span<const std::string> references);

// LongEval's lines: whether the last number of the prediction is the reference.
double LastNumber(std::string_view prediction, std::string_view reference);

// BABILong: whether the prediction's first sentence contains the reference and no other label, not counting
// labels that the question names. https://github.com/booydar/babilong, babilong/metrics.py.
double OnlyLabel(std::string_view prediction, std::string_view reference, std::string_view question,
                 std::span<const std::string> labels);

}  // namespace coppice
