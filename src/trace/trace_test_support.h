// A small trace that has one of everything.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace coppice {

inline std::vector<int32_t> Span(int32_t first, int32_t end) {
  std::vector<int32_t> positions(static_cast<size_t>(end - first));
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

// Eight prompt tokens in three layers; two steps of a method that revives and swaps.
inline Trace SmallTrace() {
  TraceRecorder recorder;
  recorder.BeginPrefill(3, 8);
  recorder.Layer({.kept = Span(0, 8), .ffn = Span(0, 8)});
  recorder.Layer({.kept = {0, 1, 2, 5, 7}, .ffn = {0, 7}, .density = 0.25, .head_density = {0.1f, 0.3f}});
  recorder.Layer({.kept = {0, 1, 2, 5, 7}, .ffn = {7}, .rows_per_head = 4});
  recorder.EndPrefill({.kv = 1800, .aux = 300, .cold = 0}, 2400);
  recorder.BeginStep(8);
  for (int l = 0; l < 3; ++l) recorder.Attended(l, 9 - l);
  recorder.Event(1, TraceEventKind::kRevived, std::vector<int32_t>{4, 3});
  recorder.Event(2, TraceEventKind::kOffloaded, std::vector<int32_t>{0, 1, 2});
  recorder.Event(1, TraceEventKind::kRevived, std::vector<int32_t>{6});
  recorder.EndStep({.kv = 2100, .aux = 200, .cold = 300});
  recorder.BeginStep(9);
  recorder.Event(2, TraceEventKind::kLoaded, std::vector<int32_t>{1});
  recorder.Event(2, TraceEventKind::kEvicted, std::vector<int32_t>{8});
  recorder.Event(0, TraceEventKind::kDropped, std::vector<int32_t>{});
  recorder.EndStep({.kv = 2400, .aux = 200, .cold = 200});
  Trace trace = recorder.Take();
  trace.model = "small.gguf";
  trace.spec = "lazyllm:layers=1,keep=0.5";
  trace.backend = "cpu (avx2)";
  trace.tokens = {"The", " caf", "\xc3", "\xa9", " at", "\n", "\xff", " <b>", " one", " two", "."};
  return trace;
}

}  // namespace coppice
