#include "engine/question_kinds.h"

#include <algorithm>
#include <array>

namespace coppice {

namespace {

struct KindInfo {
  QuestionKind kind;
  std::string_view name;
  std::string_view words;
};

constexpr std::array kKinds = {
    KindInfo{QuestionKind::kOneFact, "one_fact", "one fact among noise"},
    KindInfo{QuestionKind::kCompetingFacts, "competing_facts", "facts that compete"},
    KindInfo{QuestionKind::kSeveralKeys, "several_keys", "several keys"},
    KindInfo{QuestionKind::kSeveralValues, "several_values", "several values of one key"},
    KindInfo{QuestionKind::kSeveralQueries, "several_queries", "several questions at once"},
    KindInfo{QuestionKind::kChain, "chain", "chains of assignments"},
    KindInfo{QuestionKind::kPairs, "pairs", "pairs of keys and values"},
    KindInfo{QuestionKind::kWords, "words", "words to count"},
    KindInfo{QuestionKind::kDocuments, "documents", "questions about documents"},
    KindInfo{QuestionKind::kSummary, "summary", "summaries"},
    KindInfo{QuestionKind::kText, "text", "texts to continue"},
    KindInfo{QuestionKind::kOther, "other", "other tasks"},
};

constexpr std::array kWanted = {QuestionKind::kOneFact, QuestionKind::kCompetingFacts,
                                QuestionKind::kSeveralKeys, QuestionKind::kSeveralValues,
                                QuestionKind::kSeveralQueries};

const KindInfo& InfoOf(QuestionKind kind) {
  return *std::find_if(kKinds.begin(), kKinds.end(), [&](const KindInfo& info) { return info.kind == kind; });
}

}  // namespace

std::string_view NameOf(QuestionKind kind) { return InfoOf(kind).name; }
std::string_view WordsOf(QuestionKind kind) { return InfoOf(kind).words; }

std::optional<QuestionKind> KindNamed(std::string_view name) {
  for (const KindInfo& info : kKinds) {
    if (info.name == name) return info.kind;
  }
  return std::nullopt;
}

std::string WordsOf(std::span<const QuestionKind> kinds) {
  std::vector<std::string_view> words;
  for (const KindInfo& info : kKinds) {
    if (std::find(kinds.begin(), kinds.end(), info.kind) != kinds.end()) words.push_back(info.words);
  }
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " and " : ", ";
    text += words[i];
  }
  return text;
}

QuestionKind KindOfTask(std::string_view task, bool alone) {
  struct Prefix {
    std::string_view prefix;
    QuestionKind kind;
  };
  static constexpr std::array prefixes = {
      Prefix{"ruler/niah_single", QuestionKind::kOneFact},
      Prefix{"ruler/niah_multikey", QuestionKind::kSeveralKeys},
      Prefix{"ruler/niah_multivalue", QuestionKind::kSeveralValues},
      Prefix{"ruler/niah_multiquery", QuestionKind::kSeveralQueries},
      Prefix{"ruler/vt", QuestionKind::kChain},
      Prefix{"ruler/cwe", QuestionKind::kWords},
      Prefix{"ruler/fwe", QuestionKind::kWords},
      Prefix{"kamradt", QuestionKind::kOneFact},
      Prefix{"kv_retrieval", QuestionKind::kPairs},
      Prefix{"longeval", QuestionKind::kPairs},
      Prefix{"babi", QuestionKind::kChain},
      Prefix{"longbench/gov_report", QuestionKind::kSummary},
      Prefix{"longbench/qmsum", QuestionKind::kSummary},
      Prefix{"longbench/multi_news", QuestionKind::kSummary},
      Prefix{"longbench/samsum", QuestionKind::kSummary},
      Prefix{"longbench/vcsum", QuestionKind::kSummary},
      Prefix{"longbench/lcc", QuestionKind::kText},
      Prefix{"longbench/repobench", QuestionKind::kText},
      Prefix{"longbench", QuestionKind::kDocuments},
      Prefix{"leval_open/gov_report", QuestionKind::kSummary},
      Prefix{"leval", QuestionKind::kDocuments},
      Prefix{"perplexity", QuestionKind::kText},
      Prefix{"continue", QuestionKind::kText},
  };
  if (task == "niah") return alone ? QuestionKind::kOneFact : QuestionKind::kCompetingFacts;
  for (const Prefix& p : prefixes) {
    if (task.starts_with(p.prefix)) return p.kind;
  }
  return QuestionKind::kOther;
}

bool IsNarrow(std::span<const QuestionKind> tried) {
  return !std::all_of(kWanted.begin(), kWanted.end(), [&](QuestionKind kind) {
    return std::find(tried.begin(), tried.end(), kind) != tried.end();
  });
}

}  // namespace coppice
