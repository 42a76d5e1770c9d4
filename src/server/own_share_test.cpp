// The budget of a job's own time, on a clock that the test sets.
#include "server/own_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace coppice {
namespace {

constexpr double kShare = 1.0 / 8;

struct Span {
  double begin = 0;
  double end = 0;
};

// A job that takes `mask` seconds for itself behind each step of `step` seconds, and looks at its budget
// every `slice` seconds: when it worked, until `end`.
std::vector<Span> Work(OwnShare& own, double mask, double step, double slice, double end) {
  std::vector<Span> worked;
  double now = 0;
  double booked = 0;
  double left = mask;
  while (now < end) {
    const double part = std::min(left, slice);
    worked.push_back({now, now + part});
    now += part;
    left -= part;
    own.Book(part, now - booked, kShare);
    booked = now;
    if (const double rest = own.Rest(kShare); rest > 0) {
      now += rest;
      booked = now;
      own.Rested();
    }
    if (left <= 0) {
      now += step;
      left = mask;
    }
  }
  return worked;
}

// The most own time in any `window` seconds.
double MostWithin(const std::vector<Span>& worked, double window) {
  double most = 0;
  for (const Span& first : worked) {
    double sum = 0;
    for (const Span& span : worked) {
      const double begin = std::max(span.begin, first.begin);
      sum += std::max(0.0, std::min(span.end, first.begin + window) - begin);
    }
    most = std::max(most, sum);
  }
  return most;
}

TEST(OwnShareTest, NoWindowHoldsMoreThanTheShare) {
  for (const double mask : {0.0005, 0.002, 0.01, 0.045, 0.5, 60.0}) {
    for (const double step : {0.001, 0.004, 0.02}) {
      OwnShare own;
      const std::vector<Span> worked = Work(own, mask, step, 0.0002, 4);
      for (const double window : {0.05, 0.3, 0.7, 2.0}) {
        EXPECT_LE(MostWithin(worked, window), kShare * window + OwnShare::kMostSaved + 0.0002 + 1e-9)
            << "masks of " << mask << " s, steps of " << step << " s, within " << window << " s";
      }
    }
  }
}

TEST(OwnShareTest, ASlowJobGetsItsShare) {
  OwnShare own;
  double sum = 0;
  for (const Span& span : Work(own, 0.045, 0.004, 0.0002, 10)) sum += span.end - span.begin;
  EXPECT_NEAR(sum, kShare * 10, OwnShare::kMostSaved + OwnShare::kOneTurn);
}

TEST(OwnShareTest, AJobWithinItsShareNeverRests) {
  OwnShare own;
  for (int i = 0; i < 1000; ++i) {
    own.Book(0.001, 0.009, kShare);
    ASSERT_EQ(own.Rest(kShare), 0);
    ASSERT_FALSE(own.slow());
  }
}

TEST(OwnShareTest, WhatAJobTookAloneIsForgiven) {
  OwnShare own;
  for (int i = 0; i < 1000; ++i) {
    own.Book(0.1, 0.1, kShare);
    own.Forgive();
  }
  EXPECT_EQ(own.Rest(kShare), 0);
}

TEST(OwnShareTest, AJobIsSlowUntilItHasSavedUpAgain) {
  OwnShare own;
  own.Book(1, 1, kShare);
  EXPECT_TRUE(own.slow());
  EXPECT_NEAR(own.Rest(kShare), 8 * (OwnShare::kOneTurn + 1 - 1 * kShare - OwnShare::kMostSaved), 1e-9);
  own.Rested();
  EXPECT_TRUE(own.slow());
  own.Book(0, 1, kShare);
  EXPECT_FALSE(own.slow());
  own.Book(1, 1, kShare);
  own.Begin();
  EXPECT_FALSE(own.slow());
}

}  // namespace
}  // namespace coppice
