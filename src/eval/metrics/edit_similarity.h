// LongBench's score of completed code.
#pragma once

#include <string_view>

namespace coppice {

// 2 M / (length of both), with M the characters in the blocks that Python's difflib.SequenceMatcher matches:
// the longest common block first, then left and right of it. In texts of 200 characters and more, frequent
// characters of `reference` start no block. In [0, 1].
double SequenceRatio(std::u32string_view prediction, std::u32string_view reference);

// SequenceRatio of the reference and the prediction's first line that is neither a comment nor Markdown,
// rounded to whole percent. LongBench calls fuzzywuzzy, which uses difflib unless python-Levenshtein is
// installed; LongBench's requirements do not list that.
double CodeSimilarity(std::string_view prediction, std::string_view reference);

}  // namespace coppice
