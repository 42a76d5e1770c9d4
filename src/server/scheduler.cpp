#include "server/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/field_error.h"
#include "engine/documents/common_prefix.h"

namespace coppice {

namespace {

const HttpFault kStopping{503, "unavailable_error", "the server is stopping"};

// A job keeps its turn for a whole token, unless the token takes long, as when a step revives thousands of
// tokens.
constexpr std::chrono::milliseconds kLongToken{100};

double Seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

// The tokens at the beginning of both prompts that the one can reuse of the other's prefill. A pruned prefill
// keeps states that a dense one or another of the same method can use.
int64_t SharedTokens(const Request& reader, const Request& later) {
  if (!reader.use_documents || !later.use_documents || reader.documents_owner != later.documents_owner)
    return 0;
  if (later.prune != "none" && later.prune != reader.prune) return 0;
  if (reader.prompt_log_probs || later.prompt_log_probs) return 0;  // they do not use the document cache
  return InCommon(reader.tokens, later.tokens);
}

bool IsSameDocument(const Request& a, const Request& b) {
  const auto longer = static_cast<int64_t>(std::max(a.tokens.size(), b.tokens.size()));
  return a.documents_owner == b.documents_owner && IsMost(InCommon(a.tokens, b.tokens), longer);
}

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
  Queue(jobs);
}

void TurnScheduler::SubmitMore(const std::vector<std::shared_ptr<Job>>& jobs) {
  const std::lock_guard lock(mutex_);
  if (stopping_) throw HttpError(kStopping);
  Queue(jobs);
}

void TurnScheduler::Queue(const std::vector<std::shared_ptr<Job>>& jobs) {
  contenders_.reserve(slots_.size() + queue_.size() + jobs.size());
  queued_.reserve(queue_.size() + jobs.size());
  for (const auto& job : jobs) {
    queue_.push_back({job});
    for (const Slot& slot : slots_) NoteReader(slot, queue_.back());
  }
  GiveTurn();
}

void TurnScheduler::Complete(std::shared_ptr<Job> job) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || std::ssize(incomplete_) >= options_.max_incomplete) return;
  const auto is_same = [&](const std::shared_ptr<Job>& other) {
    return other && IsSameDocument(other->request, job->request);
  };
  if (is_same(slots_.back().job) || std::any_of(incomplete_.begin(), incomplete_.end(), is_same)) return;
  incomplete_.push_back(std::move(job));
  GiveTurn();
}

void TurnScheduler::Cancel(const std::vector<std::shared_ptr<Job>>& jobs) {
  for (const auto& job : jobs) job->cancelled = true;
  const std::lock_guard lock(mutex_);
  metrics_.CountCancelled(static_cast<int64_t>(
      std::erase_if(queue_, [](const Queued& queued) { return queued.job->cancelled.load(); })));
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
  const JobTurns turns{[this, &slot] { Pause(slot); },
                       [this, &slot](DecodeStep& step) { Decode(slot, step); },
                       [this] { return others_.load(std::memory_order_relaxed); }};
  const bool ended = run_(job, turns, result);
  if (slot.completes) {
    if (ended) metrics_.CountCompleted();
  } else if (ended && !job.texts.empty()) {
    metrics_.CountTexts(std::ssize(job.request.tokens));
  } else if (ended) {
    metrics_.CountAnswer(result.answer, static_cast<int64_t>(job.request.tokens.size()), result.sampled,
                         Seconds(slot.begun - job.arrived));
  } else if (result.cancelled) {
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
}

// Computes the step, or waits until another slot has computed it; returns with the turn.
void TurnScheduler::Decode(Slot& slot, DecodeStep& step) {
  std::unique_lock lock(mutex_);
  slot.step = &step;
  if (!KeepsTurn(slot)) {
    CountTurn(slot);
    GiveTurn();
    WaitForTurn(slot, lock);
  }
  if (slot.step != nullptr) {
    lock.unlock();
    return ComputeSteps(slot);
  }
  slot.sampling = false;
  if (slot.failed) std::rethrow_exception(std::exchange(slot.failed, nullptr));
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
    if (slot.completes || !slot.job || slot.job->cancelled) continue;
    contenders_.push_back(Describe(*slot.job, now, slot.computed));
    contenders_.back().last_turn = slot.last_turn;
    from_.push_back(&slot);
  }
  Slot* free = FreeSlot();
  for (Queued& queued : queue_) {
    if (free == nullptr || WaitsForReader(queued)) continue;
    contenders_.push_back(Describe(*queued.job, now, 0));
    queued_.push_back(&queued);
  }
  if (contenders_.empty()) {
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
    return s.job && !s.completes && !s.has_turn && !s.job->cancelled;
  });
  others_ = waits || (!queue_.empty() && FreeSlot() != nullptr);
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
