#include "server/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/field_error.h"
#include "base/seconds.h"
#include "engine/documents/common_prefix.h"

namespace coppice {

namespace {

const HttpFault kStopping{503, "unavailable_error", "the server is stopping"};

// A job keeps its turn for a whole token, unless the token takes long, as when a step revives thousands of
// tokens.
constexpr std::chrono::milliseconds kLongToken{100};

bool IsSameDocument(const Request& a, const Request& b) {
  const auto longer = static_cast<int64_t>(std::max(a.tokens.size(), b.tokens.size()));
  return a.documents_owner == b.documents_owner && IsMost(InCommon(a.tokens, b.tokens), longer);
}

uint64_t ClientOf(const Job& job) { return job.request.documents_owner.key; }

}  // namespace

TurnScheduler::TurnScheduler(Run run, DecodeTogether decode, Metrics& metrics,
                             const SchedulerOptions& options)
    : run_(std::move(run)), decode_(std::move(decode)), metrics_(metrics), options_(options) {
  for (int64_t i = 0; i < std::max<int64_t>(options.slots, 1) + 1; ++i) slots_.emplace_back();
  slots_.back().completes = true;
  contenders_.reserve(slots_.size());
  from_.reserve(slots_.size());
  together_.reserve(slots_.size());
  try {
    for (Slot& slot : slots_) slot.thread = std::thread([this, &slot] { Work(slot); });
  } catch (const std::system_error& error) {
    Stop();
    throw FieldError("parallel", " {}: the system starts no more threads: {}", options.slots, error.what());
  }
}

void TurnScheduler::Stop() {
  std::deque<Queued> left;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(queue_);
    incomplete_.clear();
    for (Slot& slot : slots_) {
      if (slot.job) {
        slot.job->server_stops = true;
        slot.job->cancelled = true;
      }
      slot.wake.notify_all();
    }
  }
  for (const Queued& queued : left) queued.job->events->OnError(kStopping);
  for (Slot& slot : slots_) {
    if (slot.thread.joinable()) slot.thread.join();
  }
}

void TurnScheduler::Submit(const std::vector<std::shared_ptr<Job>>& jobs) {
  const std::lock_guard lock(mutex_);
  if (stopping_) throw HttpError(kStopping);
  const auto free =
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.job && !s.completes; });
  // An idle server takes any request, however many answers it asks for.
  const bool idle = queue_.empty() && free == static_cast<ptrdiff_t>(slots_.size()) - 1;
  if (!idle && static_cast<int64_t>(queue_.size() + jobs.size()) > options_.max_waiting + free) {
    throw HttpError({503, "unavailable_error",
                     fmt::format("the queue is full ({} wait); try again later", queue_.size())});
  }
  contenders_.reserve(slots_.size() + queue_.size() + jobs.size());
  queued_.reserve(queue_.size() + jobs.size());
  for (const auto& job : jobs) {
    CancelOvertaken(job->request);
    queue_.push_back({job});
    for (const Slot& slot : slots_) NoteReader(slot, queue_.back());
  }
  GiveTurn();
}

void TurnScheduler::Release(const std::vector<std::shared_ptr<Job>>& jobs) {
  const std::lock_guard lock(mutex_);
  for (const auto& job : jobs) job->is_later = false;
  GiveTurn();
}

void TurnScheduler::Complete(std::shared_ptr<Job> job) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || std::ssize(incomplete_) >= options_.max_incomplete) return;
  const auto is_same = [&](const std::shared_ptr<Job>& other) {
    return other && !other->cancelled && (other->beginning == nullptr) == (job->beginning == nullptr) &&
           IsSameDocument(other->request, job->request);
  };
  if (is_same(slots_.back().job) || std::any_of(incomplete_.begin(), incomplete_.end(), is_same)) return;
  incomplete_.push_back(std::move(job));
  GiveTurn();
}

// A turn has come before the server has read its beginning: the turn reads it.
void TurnScheduler::CancelOvertaken(const Request& turn) {
  const auto is_overtaken = [&](const std::shared_ptr<Job>& job) {
    const Request& before = job->request;
    return job->beginning != nullptr && before.documents_owner == turn.documents_owner &&
           IsMost(InCommon(before.tokens, turn.tokens), std::ssize(before.tokens));
  };
  std::erase_if(incomplete_, is_overtaken);
  Slot& slot = slots_.back();
  if (!slot.job || !is_overtaken(slot.job)) return;
  slot.job->cancelled = true;
  slot.wake.notify_all();
}

void TurnScheduler::Cancel(const std::vector<std::shared_ptr<Job>>& jobs) {
  for (const auto& job : jobs) job->cancelled = true;
  const std::lock_guard lock(mutex_);
  std::erase_if(queue_, [this](const Queued& queued) {
    if (!queued.job->cancelled) return false;
    metrics_.CountCancelled(ClientOf(*queued.job));
    return true;
  });
  for (Slot& slot : slots_) {
    if (slot.job && slot.job->cancelled) slot.wake.notify_all();
  }
  NoteOthers();
}

std::vector<SlotState> TurnScheduler::Slots() const {
  std::vector<SlotState> states;
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  for (const Slot& slot : slots_) {
    if (slot.completes && !slot.job) continue;
    SlotState state;
    state.id = static_cast<int64_t>(states.size());
    state.completes = slot.completes;
    if (slot.job) {
      state.task = slot.task;
      state.client = ClientOf(*slot.job);
      state.prompt_tokens = static_cast<int64_t>(slot.job->request.tokens.size());
      state.cached_tokens = slot.job->cached;
      state.processed_tokens = slot.job->processed;
      state.decoded_tokens = slot.job->decoded;
      state.prune = slot.job->request.prune;
      state.seconds = Seconds(now - slot.begun);
    }
    states.push_back(std::move(state));
  }
  return states;
}

int64_t TurnScheduler::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(queue_.size());
}

int64_t TurnScheduler::incomplete() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(incomplete_) + (slots_.back().job ? 1 : 0);
}

SlotPrompt TurnScheduler::Prompt(int64_t slot) const {
  const std::lock_guard lock(mutex_);
  const int64_t slots = std::ssize(slots_) - 1;
  if (slot < 0 || slot >= slots)
    throw HttpError({404, "not_found_error", fmt::format("slot {}: there are {}", slot, slots)});
  const Slot& found = slots_[static_cast<size_t>(slot)];
  if (!found.job) return found.last_prompt;
  return {found.job->request.tokens, found.job->request.documents_owner};
}

void TurnScheduler::Work(Slot& slot) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      slot.wake.wait(lock, [&] { return slot.has_turn || stopping_; });
      if (!slot.has_turn) return;
    }
    Compute(slot);
    Free(slot);
  }
}

void TurnScheduler::Compute(Slot& slot) {
  Job& job = *slot.job;
  JobResult result;
  const JobTurns turns{
      [this, &slot] { Pause(slot); }, [this, &slot](DecodeStep& step) { Decode(slot, step); },
      [this] { return others_.load(std::memory_order_relaxed); }, [this, &slot] { Rest(slot); }};
  const bool ended = run_(job, turns, result);
  const uint64_t client = ClientOf(job);
  if (slot.completes) {
    if (ended) metrics_.CountCompleted(client);
  } else if (ended && !job.texts.empty()) {
    metrics_.CountTexts(client, std::ssize(job.request.tokens));
  } else if (ended) {
    metrics_.CountAnswer(client, result, std::ssize(job.request.tokens));
  } else if (result.cancelled) {
    metrics_.CountCancelled(client);
  }
}

void TurnScheduler::Free(Slot& slot) {
  std::shared_ptr<Job> job;  // destroyed without the turn, because freeing its memory may take long
  {
    const std::lock_guard lock(mutex_);
    if (slot.has_turn) CountTurn(slot);  // a job cancelled while it waited has no turn
    slot.last_prompt = {std::move(slot.job->request.tokens), slot.job->request.documents_owner};
    job = std::move(slot.job);
    slot.job = nullptr;
    slot.task = -1;
    slot.sampling = false;
    slot.failed = nullptr;
    GiveTurn();
  }
}

void TurnScheduler::Pause(Slot& slot) {
  if (!others_.load(std::memory_order_relaxed)) return;
  const Job& job = *slot.job;
  const Clock::time_point now = Clock::now();
  const auto had = now - slot.turn_since;
  if (!slot.completes && had < options_.shortest_turn) return;
  if (job.decoded > 0 && job.decoded == slot.decoded_before && had < kLongToken) return;
  std::unique_lock lock(mutex_);
  CountTurn(slot);
  GiveTurn();
  WaitForTurn(slot, lock);
  slot.own_since += Clock::now() - now;
}

// Computes the step, or waits until another slot has computed it; returns with the turn.
void TurnScheduler::Decode(Slot& slot, DecodeStep& step) {
  std::unique_lock lock(mutex_);
  const bool rested = Rests(slot, lock);
  slot.step = &step;
  if (rested || !KeepsTurn(slot)) {
    if (!rested) CountTurn(slot);
    GiveTurn();
    WaitForTurn(slot, lock);
  }
  if (slot.step != nullptr) {
    lock.unlock();
    ComputeSteps(slot);
    slot.own_since = Clock::now();
    return;
  }
  slot.own_since = Clock::now();
  slot.sampling = false;
  if (slot.failed) std::rethrow_exception(std::exchange(slot.failed, nullptr));
}

// The job may be within what it does for itself.
void TurnScheduler::Rest(Slot& slot) {
  if (slot.completes) return Pause(slot);
  std::unique_lock lock(mutex_);
  if (!Rests(slot, lock)) return;
  GiveTurn();
  WaitForTurn(slot, lock);
  slot.own_since = Clock::now();
}

// Jobs that are slow have one share together, so that more of them do not slow others down further.
double TurnScheduler::ShareOf(const Slot& slot) const {
  const auto slow = std::count_if(slots_.begin(), slots_.end(), [&](const Slot& other) {
    return &other == &slot || (other.job && other.own.slow());
  });
  return options_.own_share / static_cast<double>(slow);
}

// Books the own time since the last call. If it is beyond the job's share and another job waits, gives the
// turn away, lets the others compute until the share is kept, and returns true.
bool TurnScheduler::Rests(Slot& slot, std::unique_lock<std::mutex>& lock) {
  const Clock::time_point now = Clock::now();
  const Clock::time_point since = std::exchange(slot.own_since, now);
  const Clock::time_point booked = std::exchange(slot.booked, now);
  if (booked == Clock::time_point()) return false;  // the first call
  const double share = ShareOf(slot);
  slot.own.Book(Seconds(now - since), Seconds(now - booked), share);
  if (!others_) slot.own.Forgive();
  const std::chrono::duration<double> rest(slot.own.Rest(share));
  if (rest.count() <= 0) return false;
  CountTurn(slot);
  slot.rests = true;
  GiveTurn();
  const Job& job = *slot.job;
  slot.wake.wait_until(lock, now + std::chrono::duration_cast<Clock::duration>(rest),
                       [&] { return !slot.rests || job.cancelled; });
  slot.rests = false;
  slot.booked = Clock::now();
  slot.own.Rested();
  if (job.cancelled) throw Cancelled();
  return true;
}

// Computes the slot's step and those of all other slots that wait with one.
void TurnScheduler::ComputeSteps(Slot& slot) {
  {
    const std::lock_guard lock(mutex_);
    together_.assign(1, slot.step);
    for (Slot& other : slots_) {
      if (other.step == nullptr || &other == &slot || other.job->cancelled) continue;
      if (std::ssize(together_) >= options_.most_together) break;
      together_.push_back(other.step);
      other.taken = true;
    }
  }
  std::exception_ptr failed;
  try {
    decode_(together_);
  } catch (const std::exception&) {
    failed = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  slot.step = nullptr;
  for (Slot& other : slots_) {
    if (!other.taken) continue;
    other.taken = false;
    other.step = nullptr;
    other.failed = failed;
    other.sampling = true;
    if (other.job->cancelled) other.wake.notify_all();
  }
  if (failed) std::rethrow_exception(failed);
}

// Whether the slot computes its own step at once: nobody else wants to compute, or there are only prompts,
// and its turn is still short.
bool TurnScheduler::KeepsTurn(const Slot& slot) const {
  if (!others_) return true;
  const bool decodes = std::any_of(slots_.begin(), slots_.end(), [&](const Slot& other) {
    return &other != &slot && (other.step != nullptr || other.sampling);
  });
  return !decodes && Clock::now() - slot.turn_since < options_.shortest_turn;
}

void TurnScheduler::WaitForTurn(Slot& slot, std::unique_lock<std::mutex>& lock) {
  const Job& job = *slot.job;
  slot.wake.wait(lock, [&] { return slot.has_turn || (job.cancelled && !slot.taken); });
  if (slot.has_turn) return;
  slot.step = nullptr;
  throw Cancelled();
}

}  // namespace coppice
