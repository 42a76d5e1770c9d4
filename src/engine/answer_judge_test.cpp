// Scripted answers: how sure a model is of each token.
#include "engine/answer_judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace coppice {
namespace {

using Verdict = AnswerJudge::Verdict;
using Script = std::vector<std::pair<const char*, double>>;  // tokens with probabilities

struct Judged {
  Verdict verdict;
  int64_t seen;  // tokens until the verdict; one more than the script has if its end gave it
  double least;
};

Judged Judge(const Script& script, double least = 0.6) {
  AnswerJudge judge(least);
  int64_t seen = 0;
  for (const auto& [text, probability] : script) {
    ++seen;
    if (judge.Add(text, std::log(probability)) != Verdict::kOpen)
      return {judge.verdict(), seen, judge.least_mean()};
  }
  return {judge.End(), seen + 1, judge.least_mean()};
}

Script Question(double sure = 0.95) {
  Script script;
  for (const char* text : {"The", " secret", " code", " of", " the", " misty", " harbor", " is"})
    script.emplace_back(text, sure);
  return script;
}

Script operator+(Script a, const Script& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(AnswerJudge, AFactBehindTheRepeatedQuestionIsRead) {
  const Script sure = {{" 4", 0.9}, {"8", 0.9}, {"2", 0.8}, {"1", 0.9}, {".", 0.9}};
  const Script unsure = {{" 4", 0.3}, {"8", 0.4}, {"2", 0.5}, {"1", 0.6}, {".", 0.9}};
  EXPECT_EQ(Judge(Question() + sure).verdict, Verdict::kBelieved);
  const Judged doubted = Judge(Question() + unsure);
  EXPECT_EQ(doubted.verdict, Verdict::kDoubted);
  EXPECT_LE(doubted.seen, 12) << "as soon as four tokens are below the bound";
  EXPECT_LT(doubted.least, 0.6);
  // The mean over all of them, or over the first eight, would pass.
  EXPECT_EQ(Judge(Question(0.99) + Question(0.99) + unsure).verdict, Verdict::kDoubted);
  // One unsure word among sure ones is no doubt: another word for the same.
  EXPECT_EQ(Judge(Question() + Script{{" about", 0.3}, {" 4", 0.9}, {"8", 0.9}, {".", 0.9}}).verdict,
            Verdict::kBelieved);
}

TEST(AnswerJudge, JudgesAtTheEndOfTheFirstSentence) {
  const Script rest = {{" It", 0.1}, {" is", 0.1}, {" old", 0.1}, {" too", 0.1}, {".", 0.1}};
  const Script fact = {{" 48", 0.9}, {".", 0.9}};
  const Judged judged = Judge(Question() + fact + rest);
  EXPECT_EQ(judged.verdict, Verdict::kBelieved) << "what follows is not read";
  EXPECT_EQ(judged.seen, 11) << "with the token that shows that the sentence has ended";
  for (const Script& end : std::vector<Script>{{{" \"48", 0.9}, {".\"", 0.9}},
                                               {{" **48", 0.9}, {".**", 0.9}},
                                               {{" 48", 0.9}, {"!", 0.9}},
                                               {{" 48", 0.9}, {"\n", 0.9}},
                                               {{" 48", 0.9}, {"\u3002", 0.9}}})
    EXPECT_EQ(Judge(Question() + end + rest).verdict, Verdict::kBelieved) << end.back().first;
}

TEST(AnswerJudge, WhatEndsNoSentence) {
  const Script doubt = {{" x", 0.1}, {" y", 0.1}, {" z", 0.1}, {" w", 0.1}};
  const Script bare = {{"5", 0.1}, {" y", 0.1}, {" z", 0.1}, {" w", 0.1}};
  // The repeated question, a list's beginning, a fraction, an abbreviation's first stop, what is too short.
  EXPECT_EQ(Judge(Question() + Script{{"?", 0.9}} + doubt).verdict, Verdict::kDoubted);
  EXPECT_EQ(Judge(Question() + Script{{"?", 0.9}, {"\n\n", 0.9}} + doubt).verdict, Verdict::kDoubted);
  EXPECT_EQ(Judge(Question() + Script{{":", 0.9}, {"\n\n", 0.9}} + doubt).verdict, Verdict::kDoubted);
  EXPECT_EQ(Judge(Question() + Script{{" 3", 0.9}, {".", 0.9}} + bare).verdict, Verdict::kDoubted);
  EXPECT_EQ(Judge(Script{{"Sure", 0.9}, {".", 0.9}} + doubt).verdict, Verdict::kDoubted);
  EXPECT_EQ(Judge(Script{{"Sure", 0.9}, {"!\n", 0.9}} + doubt).verdict, Verdict::kDoubted);
}

TEST(AnswerJudge, ShortAndEndlessAnswers) {
  EXPECT_EQ(Judge({}).verdict, Verdict::kBelieved);
  EXPECT_EQ(Judge({}).least, 1);
  EXPECT_EQ(Judge({{"48", 0.5}}).verdict, Verdict::kDoubted);
  EXPECT_EQ(Judge({{"48", 0.9}, {".", 0.9}}).verdict, Verdict::kBelieved);
  EXPECT_NEAR(Judge({{"48", 0.9}, {".", 0.4}}).least, 0.6, 1e-9) << "the geometric mean";
  Script endless;
  for (int64_t i = 0; i < 100; ++i) endless.emplace_back(" word", i < AnswerJudge::kMostTokens ? 0.9 : 0.1);
  const Judged judged = Judge(endless);
  EXPECT_EQ(judged.verdict, Verdict::kBelieved);
  EXPECT_EQ(judged.seen, AnswerJudge::kMostTokens + 1);
}

TEST(AnswerJudge, BoundsAtTheirEnds) {
  EXPECT_EQ(Judge(Question(0.999), 1).verdict, Verdict::kDoubted);
  EXPECT_EQ(Judge(Question(1e-6), 1e-9).verdict, Verdict::kBelieved);
}

}  // namespace
}  // namespace coppice
