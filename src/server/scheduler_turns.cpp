// Who has the turn: all of it with the scheduler's mutex held.
#include <algorithm>
#include <utility>

#include "base/seconds.h"
#include "engine/documents/common_prefix.h"
#include "server/scheduler.h"

namespace coppice {

namespace {

// The tokens at the beginning of both prompts that the one can reuse of the other's prefill. A pruned prefill
// keeps states that a dense one or another of the same method can use.
int64_t SharedTokens(const Request& reader, const Request& later) {
  if (!reader.use_documents || !later.use_documents || reader.documents_owner != later.documents_owner)
    return 0;
  if (later.prune != "none" && later.prune != reader.prune) return 0;
  if (reader.prompt_log_probs || later.prompt_log_probs) return 0;  // they do not use the document cache
  return InCommon(reader.tokens, later.tokens);
}

}  // namespace

void TurnScheduler::CountTurn(Slot& slot) {
  const double seconds = Seconds(Clock::now() - slot.turn_since);
  slot.computed += seconds;
  slot.has_turn = false;
  taken_ = false;
  if (slot.completes) return;  // its time is nobody's
  const int64_t processed = slot.job->processed - slot.processed_before;
  order_.Count(slot.decoded_before > 0, seconds, static_cast<double>(processed));
}

// Gives the turn to the best of the jobs that wait in a slot and, if a slot is free, of the jobs in the
// queue. Where nobody wants it, a document is completed.
void TurnScheduler::GiveTurn() {
  if (taken_) return NoteOthers();
  if (Slot* slot = NextToSample()) {
    StartTurn(*slot);
    return NoteOthers();
  }
  const Clock::time_point now = Clock::now();
  contenders_.clear();
  from_.clear();
  queued_.clear();
  for (Slot& slot : slots_) {
    if (slot.completes || !slot.job || slot.job->cancelled || slot.rests) continue;
    contenders_.push_back(Describe(*slot.job, now, slot.computed));
    contenders_.back().last_turn = slot.last_turn;
    from_.push_back(&slot);
  }
  Slot* free = FreeSlot();
  for (Queued& queued : queue_) {
    if (free == nullptr || queued.job->is_later || WaitsForReader(queued)) continue;
    contenders_.push_back(Describe(*queued.job, now, 0));
    queued_.push_back(&queued);
  }
  if (contenders_.empty()) {
    for (Slot& slot : slots_) {
      if (std::exchange(slot.rests, false)) slot.wake.notify_all();  // nobody else computes
    }
    CompleteNext();
  } else if (const size_t next = order_.Next(contenders_); next < from_.size()) {
    StartTurn(*from_[next]);
  } else {
    Queued* chosen = queued_[next - from_.size()];
    const std::shared_ptr<Job> job = std::move(chosen->job);
    queue_.erase(std::find_if(queue_.begin(), queue_.end(), [&](const Queued& q) { return &q == chosen; }));
    Begin(*FreeSlot(job->slot), job);
  }
  NoteOthers();
}

void TurnScheduler::CompleteNext() {
  Slot& slot = slots_.back();
  if (slot.job && !slot.job->cancelled) {
    StartTurn(slot);
  } else if (!slot.job && !incomplete_.empty()) {
    const std::shared_ptr<Job> job = std::move(incomplete_.front());
    incomplete_.pop_front();
    Begin(slot, job);
  }
}

// Notes for `queued` that the slot computes the beginning of its prompt.
void TurnScheduler::NoteReader(const Slot& slot, Queued& queued) const {
  if (options_.least_shared == 0 || slot.completes || !slot.in_prefill()) return;
  const int64_t shared = SharedTokens(slot.job->request, queued.job->request);
  if (shared < options_.least_shared || (shared <= queued.shared && WaitsForReader(queued))) return;
  queued.reader = slot.task;
  queued.shared = shared;
}

// One job computes at a time, so to wait costs nothing but the order. A prompt does not wait for one that
// needs much longer than the shared part would take it alone.
bool TurnScheduler::WaitsForReader(const Queued& queued) const {
  if (queued.reader < 0) return false;
  const auto reader = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.task == queued.reader && slot.in_prefill();
  });
  if (reader == slots_.end()) return false;
  const int64_t left = std::ssize(reader->job->request.tokens) - reader->job->processed;
  return left <= queued.shared + queued.shared / 4;
}

void TurnScheduler::Begin(Slot& slot, std::shared_ptr<Job> job) {
  slot.job = std::move(job);
  slot.task = started_++;
  slot.begun = Clock::now();
  slot.computed = 0;
  slot.own.Begin();
  slot.booked = {};
  for (Queued& queued : queue_) NoteReader(slot, queued);
  StartTurn(slot);
}

void TurnScheduler::StartTurn(Slot& slot) {
  taken_ = true;
  slot.has_turn = true;
  slot.last_turn = ++turns_;
  slot.turn_since = Clock::now();
  slot.processed_before = slot.job->processed;
  slot.decoded_before = slot.job->decoded;
  slot.wake.notify_all();
}

void TurnScheduler::NoteOthers() {
  const bool waits = std::any_of(slots_.begin(), slots_.end(), [](const Slot& s) {
    return s.job && !s.completes && !s.has_turn && !s.rests && !s.job->cancelled;
  });
  const bool may_begin =
      std::any_of(queue_.begin(), queue_.end(), [](const Queued& queued) { return !queued.job->is_later; });
  others_ = waits || (may_begin && FreeSlot() != nullptr);
}

TurnScheduler::Slot* TurnScheduler::FreeSlot(int64_t preferred) {
  const auto is_free = [](const Slot& s) { return !s.job && !s.completes; };
  if (preferred >= 0 && preferred < std::ssize(slots_)) {
    Slot& slot = slots_[static_cast<size_t>(preferred)];
    if (is_free(slot)) return &slot;
  }
  const auto free = std::find_if(slots_.begin(), slots_.end(), is_free);
  return free == slots_.end() ? nullptr : &*free;
}

TurnScheduler::Slot* TurnScheduler::NextToSample() {
  const auto next = std::find_if(slots_.begin(), slots_.end(),
                                 [](const Slot& s) { return s.sampling && !s.job->cancelled; });
  return next == slots_.end() ? nullptr : &*next;
}

Contender TurnScheduler::Describe(const Job& job, Clock::time_point now, double computed) {
  const auto total = static_cast<int64_t>(job.request.tokens.size());
  return {.generates = job.decoded > 0,
          .tokens_left = static_cast<double>(total - job.processed),
          .waited = Seconds(now - job.arrived) - computed};
}

}  // namespace coppice
