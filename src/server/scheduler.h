// Decides which job computes when. The routes use only the interface.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "server/job.h"
#include "server/metrics.h"
#include "server/own_share.h"
#include "server/turn_order.h"

namespace coppice {

struct SlotState {
  int64_t id = 0;
  bool completes = false;  // the extra slot, which completes documents while no request computes
  int64_t task = -1;       // which job, counted from 0; -1: none
  uint64_t client = 0;     // PrefixOwner::key of the job
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t processed_tokens = 0;
  int64_t decoded_tokens = 0;
  std::string prune;
  double seconds = 0;
};

struct SlotPrompt {
  std::vector<int32_t> tokens;
  PrefixOwner owner;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // Takes all the jobs or, if the queue has no room, none: throws HttpError.
  virtual void Submit(const std::vector<std::shared_ptr<Job>>& jobs) = 0;
  // Lets jobs that were submitted with Job::is_later begin. Has no effect for jobs that left the queue.
  virtual void Release(const std::vector<std::shared_ptr<Job>>& jobs) = 0;
  // Takes a job that nobody waits for. It computes only while no other job could, and gives way within a
  // tile. Does nothing if a job of the same document is there or if too many are.
  virtual void Complete(std::shared_ptr<Job> job) = 0;
  // Cancels jobs that wait or compute; they end within a tile. Does not block.
  virtual void Cancel(const std::vector<std::shared_ptr<Job>>& jobs) = 0;
  // These two do not wait for a computation.
  virtual std::vector<SlotState> Slots() const = 0;
  virtual int64_t waiting() const = 0;
  // Documents to be completed, with the one that is being completed.
  virtual int64_t incomplete() const = 0;
  // The prompt that the slot computes, or computed last; empty before its first. Throws HttpError for an
  // unknown slot.
  virtual SlotPrompt Prompt(int64_t slot) const = 0;
  // Cancels all jobs, reports it to their events, and refuses new ones.
  virtual void Stop() = 0;
};

struct SchedulerOptions {
  int64_t slots = 4;          // sequences in progress at once; each holds its keys, values and a workspace
  int64_t max_waiting = 512;  // jobs in the queue
  // A queued job waits while a prefill computes the beginning that both share, if that is at least this many
  // tokens: then it finds them in the document cache. 0: there is none.
  int64_t least_shared = 0;
  int64_t max_incomplete = 16;  // documents that wait to be completed; later ones are not
  int64_t most_together = 64;   // decode steps that are computed together
  // Of the time, the share that a job may have for itself while others compute (own_share.h). Jobs that would
  // take more have it together.
  double own_share = 1.0 / 8;
  // Passing the turn takes some 20 us; a tile or a token of a tiny model takes little more.
  std::chrono::microseconds shortest_turn{4000};
};

// Runs several jobs, each on its own thread, of which one at a time computes (engine.h): the one that has the
// turn. turn_order.h chooses it. Queued jobs compete for the turn as soon as a slot is free, so a short
// prompt can overtake a long one that has begun, and a prompt begins only when it gets the turn. One more
// slot completes documents while nothing else can compute.
//
// The job whose turn it is to decode computes the steps of all jobs that wait with one. These then get the
// turn one after the other, to sample and to come back with the next step. All others wait meanwhile. So
// a job whose own time between two steps is long, as that of an ambiguous grammar is, gets a share of the
// time for it: then it rests, without a turn, while others compute. It does so between two parts of a mask,
// too.
class TurnScheduler final : public Scheduler {
 public:
  // Computes one job. Calls turns.pause between tiles and between tokens, turns.rest between parts of what it
  // does for itself, and turns.decode with steps that may be computed together; ends soon if one of them
  // throws.
  using Run = std::function<bool(Job& job, const JobTurns& turns, JobResult& result)>;
  using DecodeTogether = std::function<void(std::span<DecodeStep* const> steps)>;

  // `metrics` outlives it.
  TurnScheduler(Run run, DecodeTogether decode, Metrics& metrics, const SchedulerOptions& options);
  ~TurnScheduler() override { Stop(); }

  void Submit(const std::vector<std::shared_ptr<Job>>& jobs) override;
  void Release(const std::vector<std::shared_ptr<Job>>& jobs) override;
  void Complete(std::shared_ptr<Job> job) override;
  void Cancel(const std::vector<std::shared_ptr<Job>>& jobs) override;
  std::vector<SlotState> Slots() const override;
  int64_t waiting() const override;
  int64_t incomplete() const override;
  SlotPrompt Prompt(int64_t slot) const override;
  void Stop() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Slot {
    bool completes = false;    // the extra slot
    std::shared_ptr<Job> job;  // null: free
    int64_t task = -1;
    SlotPrompt last_prompt;  // of the slot's previous job
    Clock::time_point begun;
    bool has_turn = false;
    double computed = 0;  // seconds
    int64_t last_turn = 0;
    std::condition_variable wake;  // the slot got the turn, or its job was cancelled
    std::thread thread;
    DecodeStep* step = nullptr;  // waits to be computed
    bool taken = false;          // another slot computes it
    bool sampling = false;       // another slot computed it: this one gets the turn next
    std::exception_ptr failed;   // why that failed
    // Own time between two steps, of a job that decodes.
    OwnShare own;
    Clock::time_point own_since = {};  // not booked yet; pauses since then do not count
    Clock::time_point booked = {};     // the last time
    bool rests = false;
    // About the current turn; the slot's own thread reads them without the mutex.
    Clock::time_point turn_since;
    int64_t processed_before = 0;
    int64_t decoded_before = 0;

    bool in_prefill() const { return job && job->decoded == 0; }
  };
  struct Queued {
    std::shared_ptr<Job> job;
    int64_t reader = -1;  // the task whose prompt shares the most tokens with this one's
    int64_t shared = 0;   // how many tokens
  };

  void Work(Slot& slot);
  void Compute(Slot& slot);
  void Pause(Slot& slot);
  void Rest(Slot& slot);
  void Decode(Slot& slot, DecodeStep& step);
  void ComputeSteps(Slot& slot);
  bool Rests(Slot& slot, std::unique_lock<std::mutex>& lock);
  void Free(Slot& slot);
  // With the mutex held.
  void CountTurn(Slot& slot);
  double ShareOf(const Slot& slot) const;
  bool KeepsTurn(const Slot& slot) const;
  void WaitForTurn(Slot& slot, std::unique_lock<std::mutex>& lock);  // throws Cancelled
  void GiveTurn();                                                   // does nothing while a slot has the turn
  void Begin(Slot& slot, std::shared_ptr<Job> job);
  void StartTurn(Slot& slot);
  void NoteOthers();
  void NoteReader(const Slot& slot, Queued& queued) const;
  bool WaitsForReader(const Queued& queued) const;
  void CompleteNext();
  void CancelOvertaken(const Request& turn);
  Slot* FreeSlot(int64_t preferred = -1);  // null if all have jobs
  Slot* NextToSample();
  static Contender Describe(const Job& job, Clock::time_point now, double computed);

  const Run run_;
  const DecodeTogether decode_;
  Metrics& metrics_;
  const SchedulerOptions options_;
  mutable std::mutex mutex_;  // guards the members below; never held during a computation
  std::deque<Queued> queue_;
  std::deque<std::shared_ptr<Job>> incomplete_;
  std::deque<Slot> slots_;  // the extra one is the last
  TurnOrder order_;
  // Used by GiveTurn, which must not allocate: it is called when memory has run out.
  std::vector<Contender> contenders_;
  std::vector<Slot*> from_;
  std::vector<Queued*> queued_;
  std::vector<DecodeStep*> together_;  // of the slot that has the turn
  bool taken_ = false;                 // a slot has the turn
  int64_t turns_ = 0;
  int64_t started_ = 0;
  bool stopping_ = false;
  std::atomic<bool> others_{false};  // another job waits for the turn
};

}  // namespace coppice
