#include "server/turn_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace coppice {
namespace {

// Sequences in simulated time: a tile is 100 tokens of a prompt and takes a tenth of a second, a token 0.05
// s.
struct Sequence {
  double arrived = 0;
  double prompt = 0;
  int tokens = 0;  // to generate
  double done = 0;
  double computed = 0;
  int generated = 0;
  int64_t last_turn = 0;
  double first_token = -1;
  double end = -1;
};

class Simulation {
 public:
  // Until all of them are through, or until `until`.
  void Run(std::vector<Sequence>& all, double until = 1e9) {
    while (now_ < until) {
      std::vector<Contender> contenders;
      std::vector<Sequence*> from;
      double next_arrival = 1e9;
      for (Sequence& s : all) {
        if (s.end >= 0) continue;
        if (s.arrived > now_) {
          next_arrival = std::min(next_arrival, s.arrived);
          continue;
        }
        contenders.push_back({.generates = s.done >= s.prompt,
                              .tokens_left = s.prompt - s.done,
                              .waited = now_ - s.arrived - s.computed,
                              .last_turn = s.last_turn});
        from.push_back(&s);
      }
      if (contenders.empty() && next_arrival == 1e9) return;
      if (contenders.empty()) {
        now_ = next_arrival;
        continue;
      }
      Turn(*from[order_.Next(contenders)]);
    }
  }
  double now() const { return now_; }

 private:
  void Turn(Sequence& s) {
    s.last_turn = ++turns_;
    const bool generates = s.done >= s.prompt;
    const double seconds = generates ? 0.05 : 0.1;
    now_ += seconds;
    s.computed += seconds;
    order_.Count(generates, seconds, generates ? 0 : 100);
    if (generates) {
      ++s.generated;
    } else {
      s.done += 100;
      if (s.done >= s.prompt) s.first_token = now_;
    }
    if (s.done >= s.prompt && s.generated == s.tokens) s.end = now_;
  }

  TurnOrder order_;
  double now_ = 0;
  int64_t turns_ = 0;
};

TEST(TurnOrder, ShortPromptPassesALongOne) {
  std::vector<Sequence> all = {
      {.prompt = 30'000}, {.arrived = 5, .prompt = 500}, {.arrived = 5, .prompt = 2000}};
  Simulation().Run(all);
  EXPECT_NEAR(all[1].first_token, 5.5, 0.15);
  EXPECT_NEAR(all[2].first_token, 7.5, 0.15);
  EXPECT_NEAR(all[0].first_token, 32.5, 0.15);  // their time, and nothing more
}

TEST(TurnOrder, EqualPromptsRunOneAfterTheOther) {
  std::vector<Sequence> all = {
      {.prompt = 5000}, {.arrived = 0.01, .prompt = 5000}, {.arrived = 0.02, .prompt = 5000}};
  Simulation().Run(all);
  EXPECT_NEAR(all[0].first_token, 5, 0.15);
  EXPECT_NEAR(all[1].first_token, 10, 0.25);
  EXPECT_NEAR(all[2].first_token, 15, 0.25);
}

// Short prompts that take all the time there is: the long one still comes to its end, within four times what
// it needs and its own time.
TEST(TurnOrder, NobodyStarves) {
  std::vector<Sequence> all = {{.prompt = 10'000}};  // 10 s
  for (int i = 0; i < 600; ++i) all.push_back({.arrived = i * 0.5, .prompt = 500});
  Simulation().Run(all, 300);
  ASSERT_GE(all[0].first_token, 0);
  EXPECT_GT(all[0].first_token, 20);  // it did let others pass
  EXPECT_LT(all[0].first_token, 60);
}

TEST(TurnOrder, PromptsAndTokensShareTheTime) {
  std::vector<Sequence> all = {{.prompt = 100, .tokens = 1'000'000}, {.prompt = 100, .tokens = 1'000'000}};
  Simulation simulation;
  simulation.Run(all, 10);
  EXPECT_NEAR(all[0].generated, all[1].generated, 5);  // the first was alone while the second was read
  const int before = all[0].generated + all[1].generated;
  const double begin = simulation.now();
  all.push_back({.arrived = begin, .prompt = 10'000});  // 10 s
  simulation.Run(all, begin + 20);
  EXPECT_NEAR(all[2].first_token - begin, 15, 0.5);
  EXPECT_NEAR(all[0].generated, all[1].generated, 5);
  EXPECT_NEAR(all[0].generated + all[1].generated - before, 5 / 0.05 + 5 / 0.05, 8);
}

// One sequence generates, and long prompts arrive at 1 s.
TEST(TurnOrder, FewTokensGetLessTimeWhereManyPromptsWait) {
  for (const auto& [prompts, share] : {std::pair(1, 1.0 / 3), std::pair(2, 1.0 / 4), std::pair(8, 0.2)}) {
    std::vector<Sequence> all = {{.prompt = 100, .tokens = 1'000'000}};
    for (int i = 0; i < prompts; ++i) all.push_back({.arrived = 1, .prompt = 100'000});
    Simulation simulation;
    simulation.Run(all, 1);
    const int before = all[0].generated;
    simulation.Run(all, 31);
    EXPECT_NEAR((all[0].generated - before) * 0.05, share * 30, 0.5) << prompts << " prompts";
  }
}

// After a while alone, a kind of work owes the other nothing.
TEST(TurnOrder, TimeAloneIsNotPaidBack) {
  std::vector<Sequence> all = {{.prompt = 20'000}, {.arrived = 20, .prompt = 0, .tokens = 100}};
  all.push_back({.arrived = 20, .prompt = 10'000});
  Simulation().Run(all);
  EXPECT_NEAR(all[1].end, 35, 0.3);  // 5 s of tokens in a third of the time; not all at once
}

TEST(TurnOrder, BeforeAnythingIsMeasuredTheOrderIsThatOfArrival) {
  TurnOrder order;
  const Contender contenders[] = {{.tokens_left = 10, .waited = 1}, {.tokens_left = 100'000, .waited = 2}};
  EXPECT_EQ(order.Next(contenders), 1u);
  order.Count(false, 1, 100);
  EXPECT_EQ(order.Next(contenders), 0u);
}

}  // namespace
}  // namespace coppice
