#include "grammar/number_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "grammar/grammar_test_support.h"

namespace coppice {
namespace {

bool Holds(const NumberBounds& b, double x) {
  return (!b.low || (b.low_is_open ? x > *b.low : x >= *b.low)) &&
         (!b.high || (b.high_is_open ? x < *b.high : x <= *b.high));
}

// Every spelling of a number with up to three digits before and two behind the point, against arithmetic.
TEST(NumberRangeTest, AgreesWithArithmetic) {
  Random random(7);
  const auto bound = [&](int digits) {
    const double scale = std::pow(10, static_cast<int>(random.Uniform() * (digits + 1)));
    return std::round((random.Uniform() - 0.5) * 400 * scale) / scale;
  };
  for (int round = 0; round < 300; ++round) {
    NumberBounds bounds;
    const bool whole = round % 2 == 0;
    const double a = bound(whole ? round % 3 : 2);
    const double b = round % 5 == 0 ? a + 0.5 : bound(2);
    if (round % 7 != 0) bounds.low = std::min(a, b);
    if (round % 11 != 0) bounds.high = std::max(a, b);
    bounds.low_is_open = round % 3 == 0;
    bounds.high_is_open = round % 4 == 0;
    std::shared_ptr<const Automaton> automaton;
    try {
      automaton = Compiled(NumbersBetween(bounds, whole));
    } catch (const Error& error) {
      ASSERT_STREQ(error.what(), "no text fits the grammar");
    }
    for (int i = -30'000; i <= 30'000; i += 1 + round % 13) {
      const double x = i / 100.0;
      std::string text = fmt::format("{}{}", i < 0 ? "-" : "", std::abs(i) / 100);
      if (i % 100 != 0) {
        if (whole) continue;
        text += fmt::format(".{:02}", std::abs(i) % 100);
        if (i % 10 == 0 && i % 3 == 0) text.pop_back();
      }
      ASSERT_EQ(automaton != nullptr && Fits(automaton, text), Holds(bounds, x))
          << text << " in " << (bounds.low_is_open ? "(" : "[") << bounds.low.value_or(-INFINITY) << ", "
          << bounds.high.value_or(INFINITY) << (bounds.high_is_open ? ")" : "]") << (whole ? " whole" : "");
    }
  }
}

TEST(NumberRangeTest, RefusesBoundsBeyondADoublesDigits) {
  EXPECT_THROW(NumbersBetween({.low = 1e30}, true), Error);
  EXPECT_THROW(NumbersBetween({.high = 1e-30}, false), Error);
}

}  // namespace
}  // namespace coppice
