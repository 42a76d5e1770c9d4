// LongBench's metrics of short answers: classes, paragraph numbers, counts.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace coppice {

// 1 over the number of classes that the prediction names, if the reference is among them. A class whose name
// is part of the reference does not count, unless the official code misses it because it removes items from
// the list it iterates.
double ClassificationScore(std::string_view prediction, std::string_view reference,
                           std::span<const std::string> classes);

// The share of the prediction's numbers that are the paragraph of the reference, "Paragraph 12" or "段落12".
double RetrievalScore(std::string_view prediction, std::string_view reference);

// The share of the prediction's numbers that equal the reference.
double CountScore(std::string_view prediction, std::string_view reference);

}  // namespace coppice
