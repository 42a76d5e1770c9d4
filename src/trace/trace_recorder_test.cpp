#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "trace/trace.h"
#include "trace/trace_test_support.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;

TEST(TraceRecorder, SortsPositionsAndJoinsEventsOfOneLayerAndKind) {
  const Trace trace = SmallTrace();
  ASSERT_EQ(trace.steps.size(), 2u);
  ASSERT_EQ(trace.steps[0].events.size(), 2u);
  EXPECT_EQ(trace.steps[0].events[0].layer, 1);
  EXPECT_EQ(trace.steps[0].events[0].kind, TraceEventKind::kRevived);
  EXPECT_THAT(trace.steps[0].events[0].positions, ElementsAre(3, 4, 6));
  EXPECT_THAT(trace.steps[0].attended, ElementsAre(9, 8, 7));
  EXPECT_EQ(trace.steps[1].events.size(), 2u) << "an event without positions is none";
  EXPECT_THAT(trace.steps[1].attended, ElementsAre(0, 0, 0));
  EXPECT_EQ(trace.prefill[1].rows_per_head, 5);
  EXPECT_EQ(trace.prefill[2].rows_per_head, 4);
}

TEST(TraceRecorder, RowsInAnyOrderComeOutAscendingAndOnce) {
  TraceRecorder recorder;
  recorder.BeginPrefill(1, 4);
  recorder.Layer({.kept = {3, 1, 1, 0}, .ffn = {2, 2}});
  EXPECT_THAT(recorder.trace().prefill[0].kept, ElementsAre(0, 1, 3));
  EXPECT_THAT(recorder.trace().prefill[0].ffn, ElementsAre(2));
  EXPECT_EQ(recorder.trace().prefill[0].rows_per_head, 3);
}

TEST(TraceRecorder, BeginPrefillForgetsTheRunBefore) {
  TraceRecorder recorder;
  recorder.BeginPrefill(1, 2);
  recorder.Layer({.kept = {0, 1}, .ffn = {1}});
  recorder.EndPrefill({}, 0);
  recorder.BeginStep(2);
  recorder.EndStep({});
  recorder.BeginPrefill(2, 5, {0, 4});
  EXPECT_TRUE(recorder.trace().prefill.empty());
  EXPECT_TRUE(recorder.trace().steps.empty());
  EXPECT_EQ(recorder.trace().PromptPositions(), 2);
}

// A run that is cancelled between a layer's attention and its FFN leaves such a note.
TEST(TraceRecorder, BeginPrefillForgetsWhoComputedTheRunBefore) {
  TraceRecorder recorder;
  recorder.BeginPrefill(1, 2);
  recorder.Computed({{0}, {1}});
  recorder.BeginPrefill(1, 2);
  recorder.Layer({.kept = {0, 1}, .ffn = {1}});
  EXPECT_TRUE(recorder.trace().prefill[0].computed.empty());
}

TEST(TraceRecorder, CallsOutOfOrderAreProgrammerErrors) {
  TraceRecorder recorder;
  recorder.BeginPrefill(1, 2);
  EXPECT_THROW(recorder.BeginStep(2), CheckFailure) << "before the end of prefill";
  EXPECT_THROW(recorder.EndPrefill({}, 0), CheckFailure) << "a layer is missing";
  recorder.Layer({.kept = {0, 1}, .ffn = {1}});
  EXPECT_THROW(recorder.Layer({.kept = {0}, .ffn = {0}}), CheckFailure) << "a layer too many";
  EXPECT_THROW(recorder.BeginStep(1), CheckFailure) << "a position of the prompt";
  EXPECT_THROW(recorder.Attended(0, 1), CheckFailure) << "outside a step";
  recorder.BeginStep(2);
  EXPECT_THROW(recorder.BeginStep(3), CheckFailure) << "a step in a step";
  EXPECT_THROW(recorder.Attended(1, 1), CheckFailure) << "no such layer";
  recorder.EndStep({});
  EXPECT_THROW(recorder.BeginStep(2), CheckFailure) << "the same position again";
}

}  // namespace
}  // namespace coppice
