#include "engine/dry_penalty.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "byte_tokenizer.h"

namespace coppice {
namespace {

using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

std::unordered_map<int32_t, double> Penalties(const DryOptions& options, std::vector<int32_t> history) {
  return DryPenalties(options, history);
}

TEST(DryPenalty, GrowsWithTheRepetition) {
  const DryOptions dry{.multiplier = 2, .base = 3, .allowed_length = 2, .last_n = -1, .breakers = {}};
  EXPECT_THAT(Penalties(dry, {1, 2, 3, 9, 2}), IsEmpty());  // one token is allowed
  EXPECT_THAT(Penalties(dry, {1, 2, 3, 9, 1, 2}), UnorderedElementsAre(Pair(3, 2.0)));
  EXPECT_THAT(Penalties(dry, {0, 1, 2, 3, 9, 0, 1, 2}), UnorderedElementsAre(Pair(3, 6.0)));
  // The longest repetition counts; others give other tokens.
  EXPECT_THAT(Penalties(dry, {1, 2, 3, 0, 1, 2, 3, 7, 1, 2, 4, 0, 1, 2}),
              UnorderedElementsAre(Pair(3, 6.0), Pair(4, 2.0)));
  EXPECT_THAT(Penalties({}, {1, 2, 3, 1, 2}), IsEmpty());
}

TEST(DryPenalty, BreakersAndTheWindowEndRepetitions) {
  const DryOptions broken{.multiplier = 1, .base = 2, .allowed_length = 2, .last_n = -1, .breakers = {5}};
  EXPECT_THAT(Penalties(broken, {5, 1, 2, 3, 5, 1, 2}), UnorderedElementsAre(Pair(3, 1.0)));
  EXPECT_THAT(Penalties(broken, {1, 5, 2, 3, 1, 5, 2}), IsEmpty());
  EXPECT_THAT(Penalties(broken, {1, 2, 5, 1, 2}), IsEmpty());  // a breaker itself is never penalised
  const DryOptions window{.multiplier = 1, .base = 2, .allowed_length = 2, .last_n = 4, .breakers = {}};
  EXPECT_THAT(Penalties(window, {1, 2, 3, 1, 2}), IsEmpty());
  EXPECT_THAT(Penalties(window, {0, 1, 2, 1, 2}), UnorderedElementsAre(Pair(1, 1.0)));
}

// Against the definition, by trying every length at every place.
TEST(DryPenalty, IsItsDefinition) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<int32_t> history(static_cast<size_t>(random() % 40));
    for (int32_t& id : history) id = static_cast<int32_t>(random() % 4);
    const DryOptions dry{.multiplier = 0.5,
                         .base = 1.5,
                         .allowed_length = 1 + round % 3,
                         .last_n = -1,
                         .breakers = round % 2 == 0 ? std::vector<int32_t>{3} : std::vector<int32_t>{}};
    std::map<int32_t, double> expected;
    for (size_t next = 1; next < history.size(); ++next) {
      size_t length = 0;
      while (length < next && history[next - 1 - length] == history[history.size() - 1 - length] &&
             !std::ranges::binary_search(dry.breakers, history[next - 1 - length]))
        ++length;
      if (static_cast<int64_t>(length) < dry.allowed_length) continue;
      if (std::ranges::binary_search(dry.breakers, history[next])) continue;
      double& penalty = expected[history[next]];
      penalty = std::max(penalty, 0.5 * std::pow(1.5, static_cast<double>(length) -
                                                          static_cast<double>(dry.allowed_length)));
    }
    const auto found = Penalties(dry, history);
    EXPECT_EQ((std::map<int32_t, double>(found.begin(), found.end())), expected);
  }
}

TEST(DryPenalty, FindsBreakersInTheVocabulary) {
  const ByteTokenizer tokenizer("");
  const std::vector<int32_t> ids = TokensWith(tokenizer, std::vector<std::string>{":", "\n"});
  ASSERT_GE(ids.size(), 2u);
  EXPECT_TRUE(std::ranges::is_sorted(ids));
  for (const int32_t id : ids) EXPECT_NE(tokenizer.Piece(id, true).find_first_of(":\n"), std::string::npos);
}

}  // namespace
}  // namespace coppice
