// The kinds of question that a calibration was measured on, in words that `auto` prints.
//
// What pruning keeps depends on the question: a setting that finds every fact that stands alone loses one
// among nine of its form, because the layers at which it drops tokens do not know yet which of them is asked
// for (docs/quality.md).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

enum class QuestionKind {
  kOneFact,
  kCompetingFacts,
  kSeveralKeys,
  kSeveralValues,
  kSeveralQueries,
  kChain,
  kPairs,
  kWords,
  kDocuments,
  kSummary,
  kText,
  kOther,
};

// As files have it: "one_fact".
std::string_view NameOf(QuestionKind kind);
// Empty for a name that this program does not know.
std::optional<QuestionKind> KindNamed(std::string_view name);
// "one fact among noise"
std::string_view WordsOf(QuestionKind kind);
// "one fact among noise, several keys and facts that compete", each once; empty for none.
std::string WordsOf(std::span<const QuestionKind> kinds);

// Of a task of `coppice eval`. `alone`: the needle of niah has no others of its form beside it.
QuestionKind KindOfTask(std::string_view task, bool alone);

// Whether `tried` lacks one of the kinds that tune's default tasks have: what was measured then says nothing
// about it. Kinds that dense could not answer count as tried: there is nothing to lose.
bool IsNarrow(std::span<const QuestionKind> tried);

}  // namespace coppice
