#include "trace/trace.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace coppice {
namespace {

void SortUnique(std::vector<int32_t>& positions) {
  if (std::ranges::is_sorted(positions, std::less_equal<>())) return;  // nearly always
  std::ranges::sort(positions);
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
}

}  // namespace

void TraceRecorder::BeginPrefill(int layers, int64_t prompt_tokens, std::vector<int32_t> entered) {
  COPPICE_CHECK(layers > 0 && prompt_tokens > 0);
  trace_ = Trace();
  trace_.layers = layers;
  trace_.prompt_tokens = prompt_tokens;
  trace_.entered = std::move(entered);
  trace_.prefill.reserve(static_cast<size_t>(layers));
  computed_.clear();  // of a run that ended between Computed and Layer
  in_step_ = false;
}

void TraceRecorder::Layer(TraceLayer layer) {
  COPPICE_CHECK(static_cast<int>(trace_.prefill.size()) < trace_.layers);
  SortUnique(layer.kept);
  SortUnique(layer.ffn);
  if (layer.rows_per_head == 0) layer.rows_per_head = static_cast<int64_t>(layer.kept.size());
  if (!computed_.empty()) layer.computed = std::exchange(computed_, {});
  trace_.prefill.push_back(std::move(layer));
}

void TraceRecorder::EndPrefill(const TraceBytes& bytes, int64_t kv_bytes_dense) {
  COPPICE_CHECK(static_cast<int>(trace_.prefill.size()) == trace_.layers);
  trace_.prefill_bytes = bytes;
  trace_.kv_bytes_dense = kv_bytes_dense;
}

void TraceRecorder::BeginStep(int32_t position) {
  COPPICE_CHECK(!in_step_ && static_cast<int>(trace_.prefill.size()) == trace_.layers);
  COPPICE_CHECK(position >= trace_.PromptPositions());
  COPPICE_CHECK(trace_.steps.empty() || position > trace_.steps.back().position);
  TraceStep& step = trace_.steps.emplace_back();
  step.position = position;
  step.attended.resize(static_cast<size_t>(trace_.layers));
  in_step_ = true;
}

void TraceRecorder::Attended(int layer, int64_t keys) {
  COPPICE_CHECK(in_step_ && layer >= 0 && layer < trace_.layers);
  trace_.steps.back().attended[static_cast<size_t>(layer)] = keys;
}

void TraceRecorder::Event(int layer, TraceEventKind kind, std::span<const int32_t> positions) {
  COPPICE_CHECK(in_step_ && layer >= 0 && layer < trace_.layers);
  if (positions.empty()) return;
  std::vector<TraceEvent>& events = trace_.steps.back().events;
  auto same =
      std::ranges::find_if(events, [&](const TraceEvent& e) { return e.layer == layer && e.kind == kind; });
  if (same == events.end()) same = events.insert(events.end(), TraceEvent{layer, kind, {}});
  same->positions.insert(same->positions.end(), positions.begin(), positions.end());
}

void TraceRecorder::EndStep(const TraceBytes& bytes) {
  COPPICE_CHECK(in_step_);
  TraceStep& step = trace_.steps.back();
  step.bytes = bytes;
  for (TraceEvent& event : step.events) SortUnique(event.positions);
  in_step_ = false;
}

}  // namespace coppice
