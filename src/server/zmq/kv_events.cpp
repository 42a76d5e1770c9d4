#include "server/kv_events.h"

#include <fmt/core.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/field_error.h"
#include "server/kv_blocks.h"
#include "server/zmq/kv_outbox.h"
#include "server/zmq/zmq_library.h"

namespace coppice {

namespace {

// Everything is sent again at most this often, whatever subscribers do.
constexpr std::chrono::milliseconds kBetweenSnapshots{1000};
constexpr size_t kMostTopicBytes = 256;

const KvEventsOptions& Checked(const KvEventsOptions& options) {
  LoadZmq();
  CheckEndpoint("kv_events", options.endpoint, options.open);
  if (!options.replay.empty()) CheckEndpoint("kv_events_replay", options.replay, options.open);
  if (options.topic.size() > kMostTopicBytes)
    throw FieldError("kv_events_topic", ": has more than {} bytes", kMostTopicBytes);
  return options;
}

}  // namespace

struct KvEvents::Impl {
  // What the cache has said of an entry, and how much of it the sender has taken.
  struct Known {
    std::shared_ptr<const HeldDocument> document;
    bool in_memory = false;
    bool released = false;
    bool is_new = true;
    bool has_moved = false;
  };
  struct Changes {
    std::vector<std::pair<uint64_t, Known>> held;
    std::vector<std::pair<uint64_t, bool>> moved;
    std::vector<uint64_t> released;
  };
  using Clock = std::chrono::steady_clock;

  explicit Impl(const KvEventsOptions& options) : on_error(options.on_error), outbox(Checked(options)) {
    wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake < 0) throw Error("[kv_events] {}: no eventfd: {}", options.endpoint, std::strerror(errno));
  }
  ~Impl() { close(wake); }

  void Wake() noexcept {
    const uint64_t one = 1;
    if (write(wake, &one, sizeof(one)) < 0) return;  // full: the thread has not seen the last one yet
  }

  Changes TakeChanges();
  bool IsServed(const HeldDocument& document) const;
  void Run();
  void Step();
  void StartOver();
  void Report(const std::exception& error) const noexcept;

  const std::function<void(const std::string&)> on_error;
  KvOutbox outbox;
  int wake = -1;
  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::map<uint64_t, Known> known;  // guarded by the mutex; its changes need no memory but for a new entry
  // The thread's own.
  Serves serves;
  BlockLedger ledger;
  bool wants_snapshot = false;
  Clock::time_point next_snapshot;
  std::thread thread;  // last: it uses all of the above
};

KvEvents::Impl::Changes KvEvents::Impl::TakeChanges() {
  Changes changes;
  const std::lock_guard lock(mutex);
  for (auto at = known.begin(); at != known.end();) {
    auto& [id, entry] = *at;
    if (entry.is_new && !entry.released) changes.held.emplace_back(id, entry);
    if (!entry.is_new && !entry.released && entry.has_moved) changes.moved.emplace_back(id, entry.in_memory);
    if (!entry.is_new && entry.released) changes.released.push_back(id);
    entry.is_new = false;
    entry.has_moved = false;
    at = entry.released ? known.erase(at) : std::next(at);
  }
  return changes;
}

bool KvEvents::Impl::IsServed(const HeldDocument& document) const {
  try {
    return serves(document);
  } catch (const Error&) {  // a method that cannot be asked takes nothing over
    return false;
  }
}

void KvEvents::Impl::Step() {
  wants_snapshot |= outbox.ReadSubscriptions();
  outbox.AnswerReplays();
  const Changes changes = TakeChanges();
  for (const auto& [id, entry] : changes.held) {
    if (IsServed(*entry.document)) ledger.Hold(id, entry.document, entry.in_memory);
  }
  for (const auto& [id, in_memory] : changes.moved) ledger.Move(id, in_memory);
  for (const uint64_t id : changes.released) ledger.Release(id);
  const Clock::time_point now = Clock::now();
  if (wants_snapshot && now >= next_snapshot) {
    // A router that knew an earlier process at this address compares the numbers of messages: after a lower
    // one it starts anew, and an equal one it ignores. So an empty message goes ahead.
    outbox.PublishNothing();
    outbox.Publish(ledger.Everything());
    wants_snapshot = false;
    next_snapshot = now + kBetweenSnapshots;
  } else {
    outbox.Publish(ledger.Take());
  }
}

void KvEvents::Impl::Report(const std::exception& error) const noexcept {
  if (!on_error) return;
  try {
    const std::string_view what = error.what();
    on_error(what.starts_with("[kv_events]") ? std::string(what) : fmt::format("[kv_events] {}", what));
  } catch (const std::exception&) {  // an error of the callback, or no memory for the message
  }
}

// After an error, which may have lost a change: as if all were new.
void KvEvents::Impl::StartOver() {
  ledger = {};
  wants_snapshot = true;
  next_snapshot = Clock::now() + kBetweenSnapshots;
  const std::lock_guard lock(mutex);
  for (auto& [id, entry] : known) entry.is_new = true;
}

void KvEvents::Impl::Run() {
  while (!stopping) {
    try {
      Step();
      const auto until = std::chrono::ceil<std::chrono::milliseconds>(next_snapshot - Clock::now());
      outbox.Wait(wake, wants_snapshot ? std::max(until, std::chrono::milliseconds(0))
                                       : std::chrono::milliseconds(-1));
    } catch (const std::exception& error) {  // no memory, or an error of the sockets
      Report(error);
      StartOver();
      std::this_thread::sleep_for(kBetweenSnapshots);
    }
  }
}

KvEvents::KvEvents(KvEventsOptions options) : impl_(std::make_unique<Impl>(options)) {}

KvEvents::~KvEvents() { Stop(); }

void KvEvents::Start(Serves serves) {
  impl_->serves = std::move(serves);
  impl_->thread = std::thread([this] { impl_->Run(); });
}

void KvEvents::Stop() {
  impl_->stopping = true;
  impl_->Wake();
  if (impl_->thread.joinable()) impl_->thread.join();
}

std::string KvEvents::endpoint() const { return impl_->outbox.endpoint(); }

void KvEvents::Hold(uint64_t id, HeldDocument document) noexcept {
  try {
    const bool in_memory = document.in_memory;
    auto shared = std::make_shared<const HeldDocument>(std::move(document));
    const std::lock_guard lock(impl_->mutex);
    impl_->known[id] = {.document = std::move(shared), .in_memory = in_memory};
  } catch (const std::bad_alloc&) {  // it is not announced
    return;
  }
  impl_->Wake();
}

void KvEvents::Move(uint64_t id, bool in_memory) noexcept {
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->known.find(id);
    if (found == impl_->known.end()) return;
    found->second.in_memory = in_memory;
    found->second.has_moved = true;
  }
  impl_->Wake();
}

void KvEvents::Release(uint64_t id) noexcept {
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->known.find(id);
    if (found == impl_->known.end()) return;
    found->second.released = true;
  }
  impl_->Wake();
}

}  // namespace coppice
