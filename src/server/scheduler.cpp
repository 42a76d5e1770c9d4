#include "server/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

namespace coppice {

namespace {
const HttpFault kStopping{503, "unavailable_error", "the server is stopping"};
}

SerialScheduler::SerialScheduler(Engine& engine, Metrics& metrics, int64_t max_waiting)
    : engine_(engine), metrics_(metrics), max_waiting_(max_waiting), thread_([this] { Work(); }) {}

void SerialScheduler::Stop() {
  std::deque<std::shared_ptr<Job>> left;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(queue_);
    if (current_) current_->cancelled = true;
  }
  changed_.notify_all();
  for (const auto& job : left) job->events->OnError(kStopping);
  if (thread_.joinable()) thread_.join();
}

void SerialScheduler::Submit(const std::vector<std::shared_ptr<Job>>& jobs) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw HttpError(kStopping);
    // An idle server takes any request, however many answers it asks for.
    const bool idle = queue_.empty() && !current_;
    if (!idle && static_cast<int64_t>(queue_.size() + jobs.size()) > max_waiting_) {
      throw HttpError({503, "unavailable_error",
                       fmt::format("the queue is full ({} wait); try again later", queue_.size())});
    }
    queue_.insert(queue_.end(), jobs.begin(), jobs.end());
  }
  changed_.notify_all();
}

void SerialScheduler::Cancel(const std::vector<std::shared_ptr<Job>>& jobs) {
  for (const auto& job : jobs) job->cancelled = true;
  const std::lock_guard lock(mutex_);
  metrics_.CountCancelled(static_cast<int64_t>(
      std::erase_if(queue_, [](const std::shared_ptr<Job>& job) { return job->cancelled.load(); })));
}

std::vector<SlotState> SerialScheduler::Slots() const {
  const std::lock_guard lock(mutex_);
  SlotState slot;
  if (current_) {
    slot.task = started_ - 1;
    slot.prompt_tokens = static_cast<int64_t>(current_->request.tokens.size());
    slot.processed_tokens = current_->processed;
    slot.decoded_tokens = current_->decoded;
    slot.prune = current_->request.prune;
    slot.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - current_since_).count();
  }
  return {slot};
}

int64_t SerialScheduler::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(queue_.size());
}

void SerialScheduler::Work() {
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      current_.reset();
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      current_ = job;
      current_since_ = std::chrono::steady_clock::now();
      ++started_;
    }
    Compute(*job);
  }
}

void SerialScheduler::Compute(Job& job) {
  const auto begin = std::chrono::steady_clock::now();
  JobResult result;
  if (RunJob(engine_, job, result)) {
    const double queued = std::chrono::duration<double>(begin - job.arrived).count();
    metrics_.CountAnswer(result.answer, static_cast<int64_t>(job.request.tokens.size()), result.sampled,
                         queued);
  } else if (job.cancelled) {
    metrics_.CountCancelled(1);
  }
}

}  // namespace coppice
