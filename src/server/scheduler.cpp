#include "server/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/field_error.h"

namespace coppice {

namespace {

const HttpFault kStopping{503, "unavailable_error", "the server is stopping"};

// A job keeps its turn for a whole token, unless the token takes long, as when a step revives thousands of
// tokens.
constexpr std::chrono::milliseconds kLongToken{100};

double Seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

TurnScheduler::TurnScheduler(Run run, Metrics& metrics, const SchedulerOptions& options)
    : run_(std::move(run)), metrics_(metrics), options_(options) {
  for (int64_t i = 0; i < std::max<int64_t>(options.slots, 1); ++i) slots_.emplace_back();
  contenders_.reserve(slots_.size());
  from_.reserve(slots_.size());
  try {
    for (Slot& slot : slots_) slot.thread = std::thread([this, &slot] { Work(slot); });
  } catch (const std::system_error& error) {
    Stop();
    throw FieldError("parallel", " {}: the system starts no more threads: {}", options.slots, error.what());
  }
}

void TurnScheduler::Stop() {
  std::deque<std::shared_ptr<Job>> left;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(queue_);
    for (Slot& slot : slots_) {
      if (slot.job) {
        slot.job->server_stops = true;
        slot.job->cancelled = true;
      }
      slot.wake.notify_all();
    }
  }
  for (const auto& job : left) job->events->OnError(kStopping);
  for (Slot& slot : slots_) {
    if (slot.thread.joinable()) slot.thread.join();
  }
}

void TurnScheduler::Submit(const std::vector<std::shared_ptr<Job>>& jobs) {
  const std::lock_guard lock(mutex_);
  if (stopping_) throw HttpError(kStopping);
  const auto free = std::count_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.job; });
  // An idle server takes any request, however many answers it asks for.
  const bool idle = queue_.empty() && free == static_cast<ptrdiff_t>(slots_.size());
  if (!idle && static_cast<int64_t>(queue_.size() + jobs.size()) > options_.max_waiting + free) {
    throw HttpError({503, "unavailable_error",
                     fmt::format("the queue is full ({} wait); try again later", queue_.size())});
  }
  contenders_.reserve(slots_.size() + queue_.size() + jobs.size());
  queue_.insert(queue_.end(), jobs.begin(), jobs.end());
  GiveTurn();
}

void TurnScheduler::Cancel(const std::vector<std::shared_ptr<Job>>& jobs) {
  for (const auto& job : jobs) job->cancelled = true;
  const std::lock_guard lock(mutex_);
  metrics_.CountCancelled(static_cast<int64_t>(
      std::erase_if(queue_, [](const std::shared_ptr<Job>& job) { return job->cancelled.load(); })));
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
    SlotState state;
    state.id = static_cast<int64_t>(states.size());
    if (slot.job) {
      state.task = slot.task;
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

SlotPrompt TurnScheduler::Prompt(int64_t slot) const {
  const std::lock_guard lock(mutex_);
  if (slot < 0 || slot >= static_cast<int64_t>(slots_.size())) {
    throw HttpError({404, "not_found_error", fmt::format("slot {}: there are {}", slot, slots_.size())});
  }
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
  if (run_(
          job, [this, &slot] { Pause(slot); }, result)) {
    metrics_.CountAnswer(result.answer, static_cast<int64_t>(job.request.tokens.size()), result.sampled,
                         Seconds(slot.begun - job.arrived));
  } else if (job.cancelled) {
    metrics_.CountCancelled(1);
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
    GiveTurn();
  }
}

void TurnScheduler::Pause(Slot& slot) {
  if (!others_.load(std::memory_order_relaxed)) return;
  const Job& job = *slot.job;
  const Clock::time_point now = Clock::now();
  const auto had = now - slot.turn_since;
  if (had < options_.shortest_turn) return;
  if (job.decoded > 0 && job.decoded == slot.decoded_before && had < kLongToken) return;
  std::unique_lock lock(mutex_);
  CountTurn(slot);
  GiveTurn();
  slot.wake.wait(lock, [&] { return slot.has_turn || job.cancelled; });
  if (!slot.has_turn) throw Cancelled();
}

void TurnScheduler::CountTurn(Slot& slot) {
  const double seconds = Seconds(Clock::now() - slot.turn_since);
  slot.computed += seconds;
  slot.has_turn = false;
  taken_ = false;
  const int64_t processed = slot.job->processed - slot.processed_before;
  order_.Count(slot.decoded_before > 0, seconds, static_cast<double>(processed));
}

// Gives the turn to the best of the jobs that wait in a slot and, if a slot is free, of the jobs in the
// queue.
void TurnScheduler::GiveTurn() {
  if (taken_) return NoteOthers();
  const Clock::time_point now = Clock::now();
  contenders_.clear();
  from_.clear();
  for (Slot& slot : slots_) {
    if (!slot.job || slot.job->cancelled) continue;
    contenders_.push_back(Describe(*slot.job, now, slot.computed));
    contenders_.back().last_turn = slot.last_turn;
    from_.push_back(&slot);
  }
  Slot* free = FreeSlot();
  if (free != nullptr) {
    for (const auto& job : queue_) contenders_.push_back(Describe(*job, now, 0));
  }
  if (!contenders_.empty()) {
    const size_t next = order_.Next(contenders_);
    if (next < from_.size()) {
      StartTurn(*from_[next]);
    } else {
      const auto chosen = queue_.begin() + static_cast<ptrdiff_t>(next - from_.size());
      Begin(*free, std::move(*chosen));
      queue_.erase(chosen);
    }
  }
  NoteOthers();
}

void TurnScheduler::Begin(Slot& slot, std::shared_ptr<Job> job) {
  slot.job = std::move(job);
  slot.task = started_++;
  slot.begun = Clock::now();
  slot.computed = 0;
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
  const bool waits = std::any_of(slots_.begin(), slots_.end(),
                                 [](const Slot& s) { return s.job && !s.has_turn && !s.job->cancelled; });
  others_ = waits || (!queue_.empty() && FreeSlot() != nullptr);
}

TurnScheduler::Slot* TurnScheduler::FreeSlot() {
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return !s.job; });
  return free == slots_.end() ? nullptr : &*free;
}

Contender TurnScheduler::Describe(const Job& job, Clock::time_point now, double computed) {
  const auto total = static_cast<int64_t>(job.request.tokens.size());
  return {.generates = job.decoded > 0,
          .tokens_left = static_cast<double>(total - job.processed),
          .waited = Seconds(now - job.arrived) - computed};
}

}  // namespace coppice
