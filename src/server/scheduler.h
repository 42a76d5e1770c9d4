// Who computes what when. The routes know this interface only.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/job.h"
#include "server/metrics.h"

namespace coppice {

struct SlotState {
  int64_t id = 0;
  int64_t task = -1;  // which job, counted from 0; -1: none
  int64_t prompt_tokens = 0;
  int64_t processed_tokens = 0;
  int64_t decoded_tokens = 0;
  std::string prune;
  double seconds = 0;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // All of them or, where the queue has no room, none: throws HttpError.
  virtual void Submit(const std::vector<std::shared_ptr<Job>>& jobs) = 0;
  // Ends jobs that wait or compute, within a tile. Never waits.
  virtual void Cancel(const std::vector<std::shared_ptr<Job>>& jobs) = 0;
  // These two never wait for what is computed.
  virtual std::vector<SlotState> Slots() const = 0;
  virtual int64_t waiting() const = 0;
  // Ends everything, tells every job's events, and takes nothing more.
  virtual void Stop() = 0;
};

// One job after the other, in the order in which they came.
class SerialScheduler final : public Scheduler {
 public:
  // Both outlive it.
  SerialScheduler(Engine& engine, Metrics& metrics, int64_t max_waiting);
  ~SerialScheduler() override { Stop(); }

  void Submit(const std::vector<std::shared_ptr<Job>>& jobs) override;
  void Cancel(const std::vector<std::shared_ptr<Job>>& jobs) override;
  std::vector<SlotState> Slots() const override;
  int64_t waiting() const override;
  void Stop() override;

 private:
  void Work();
  void Compute(Job& job);

  Engine& engine_;
  Metrics& metrics_;
  const int64_t max_waiting_;
  mutable std::mutex mutex_;  // of what follows; never held while anything is computed
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::shared_ptr<Job> current_;
  std::chrono::steady_clock::time_point current_since_;
  int64_t started_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace coppice
