#include "server/model_shelf.h"

#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "server/errors.h"

namespace coppice {

namespace {

constexpr std::chrono::milliseconds kLook{200};  // how often clients that left are looked for
constexpr std::chrono::seconds kStopWait{1};

HttpFault Unavailable(std::string message) { return {503, "unavailable_error", std::move(message)}; }

void Refuse(const HttpRequest& request, Exchange& exchange, const std::string& why) {
  exchange.Reply(ErrorReply(Unavailable(why), ErrorFormFor(request)));
}

bool HasLeft(const HttpRequest& request) { return request.cancelled != nullptr && *request.cancelled; }

}  // namespace

class ModelShelf::Lease final : public Exchange {
 public:
  Lease(ModelShelf& shelf, Entry& entry, ExchangePtr exchange)
      : shelf_(shelf), entry_(entry), exchange_(std::move(exchange)) {}
  ~Lease() override { shelf_.GiveBack(entry_); }
  void Reply(HttpReply reply) override { exchange_->Reply(std::move(reply)); }
  void StartPings(std::chrono::milliseconds ping) override { exchange_->StartPings(ping); }
  void Send(std::string events) override { exchange_->Send(std::move(events)); }
  void End() override { exchange_->End(); }
  bool Hold(int64_t bytes) override { return exchange_->Hold(bytes); }
  void OnGone(std::function<void()> callback) override { exchange_->OnGone(std::move(callback)); }
  void Note(LogNote note) override { exchange_->Note(std::move(note)); }

 private:
  ModelShelf& shelf_;
  Entry& entry_;
  const ExchangePtr exchange_;
};

ModelShelf::ModelShelf(std::vector<ShelvedModel> models, const ShelfLimits& limits)
    : limits_(limits), entries_(models.size()) {
  for (size_t i = 0; i < models.size(); ++i) entries_[i].model = std::move(models[i]);
  loader_ = std::thread([this] { Run(); });
}

ModelShelf::~ModelShelf() {
  Stop();
  loader_.join();
  // Services may hold leases until they are destroyed, and a lease needs its entry.
  for (Entry& entry : entries_) entry.service.reset();
}

ModelOnShelf ModelShelf::Look(size_t model) const {
  const std::lock_guard lock(mutex_);
  const Entry& entry = entries_[model];
  const ShelfState state = entry.service != nullptr ? ShelfState::kLoaded
                           : entry.is_loading       ? ShelfState::kLoading
                                                    : ShelfState::kUnloaded;
  return {state, entry.error};
}

size_t ModelShelf::last_used() const {
  const std::lock_guard lock(mutex_);
  const auto last = std::ranges::max_element(entries_, {}, &Entry::used);
  return static_cast<size_t>(last - entries_.begin());
}

// mutex_ is held.
ModelShelf::ExchangePtr ModelShelf::Lend(Entry& entry, const ExchangePtr& exchange) {
  auto lease = std::make_shared<Lease>(*this, entry, exchange);
  ++entry.users;
  entry.used = Clock::now();
  return lease;
}

void ModelShelf::GiveBack(Entry& entry) {
  const std::lock_guard lock(mutex_);
  --entry.users;
  entry.idle_since = Clock::now();
  changed_.notify_all();
}

bool ModelShelf::AskIfLoaded(size_t model, HttpRequest request, const ExchangePtr& exchange) {
  Lock lock(mutex_);
  Entry& entry = entries_[model];
  if (stops_ || entry.service == nullptr || entry.leaves) return false;
  const ExchangePtr lease = Lend(entry, exchange);
  ModelService& service = *entry.service;  // stays while the lease does
  lock.unlock();
  service.Handle(std::move(request), lease);
  return true;
}

void ModelShelf::Ask(size_t model, HttpRequest request, const ExchangePtr& exchange) {
  Lock lock(mutex_);
  Entry& entry = entries_[model];
  if (!stops_ && entry.service != nullptr && !entry.yields && entry.waiting.empty()) {
    const ExchangePtr lease = Lend(entry, exchange);
    ModelService& service = *entry.service;
    lock.unlock();
    return service.Handle(std::move(request), lease);
  }
  const auto bytes = std::ssize(request.body);
  const bool has_room = waiting_ < limits_.max_waiting && waiting_bytes_ + bytes <= limits_.max_waiting_bytes;
  if (stops_ || !has_room) {
    lock.unlock();
    return coppice::Refuse(request, *exchange,
                           has_room ? "the server is stopping" : "too many requests wait for models");
  }
  ++waiting_;
  waiting_bytes_ += bytes;
  entry.waiting.push_back({std::move(request), exchange});
  changed_.notify_all();
}

void ModelShelf::Load(size_t model) {
  const std::lock_guard lock(mutex_);
  entries_[model].wanted = entries_[model].service == nullptr;
  entries_[model].leaves = false;
  changed_.notify_all();
}

void ModelShelf::Unload(size_t model) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[model];
  entry.wanted = false;
  entry.leaves = entry.yields = entry.service != nullptr;
  changed_.notify_all();
}

void ModelShelf::LoadNow(size_t model) {
  Load(model);
  Lock lock(mutex_);
  Entry& entry = entries_[model];
  changed_.wait(lock, [&] { return entry.service != nullptr || !entry.wanted || stops_; });
  if (entry.service == nullptr) throw Error("{}", entry.error);
}

bool ModelShelf::Stop() {
  Lock lock(mutex_);
  stops_ = true;
  changed_.notify_all();
  // Once Run() has returned, services neither come nor go.
  bool ended = changed_.wait_for(lock, kStopWait, [this] { return ended_; });
  if (!ended) return false;
  lock.unlock();
  for (Entry& entry : entries_)
    if (entry.service != nullptr) ended = entry.service->Stop() && ended;
  return ended;
}

bool ModelShelf::WriteDocuments(std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  bool written = true;
  for (Entry& entry : entries_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (entry.service != nullptr)
      written = entry.service->WriteDocuments(std::max(left, std::chrono::milliseconds(0))) && written;
  }
  return written;
}

// The loader's thread. In what follows mutex_ is held, except where a function gives `lock` up while models
// are loaded, freed, or asked.

void ModelShelf::DropDisconnected(Entry& entry) {
  const auto left =
      std::ranges::stable_partition(entry.waiting, [](const Waiting& w) { return !HasLeft(w.request); });
  for (const Waiting& waiting : left) {
    --waiting_;
    waiting_bytes_ -= std::ssize(waiting.request.body);
  }
  entry.waiting.erase(left.begin(), left.end());
}

// The model whose request waits for the longest.
ModelShelf::Entry* ModelShelf::NextToLoad() {
  Entry* next = nullptr;
  for (Entry& entry : entries_) {
    DropDisconnected(entry);
    if (entry.service != nullptr || entry.leaves) continue;
    if (entry.wanted) return &entry;
    if (entry.waiting.empty()) continue;
    const auto arrived = [](const Entry& e) { return e.waiting.front().request.arrived; };
    if (next == nullptr || arrived(entry) < arrived(*next)) next = &entry;
  }
  return next;
}

ModelShelf::Entry* ModelShelf::NextToPutAway() {
  const Clock::time_point now = Clock::now();
  for (Entry& entry : entries_) {
    if (entry.service == nullptr || entry.users > 0) continue;
    if (entry.leaves || (limits_.idle.count() > 0 && now - entry.idle_since >= limits_.idle)) return &entry;
  }
  return nullptr;
}

ModelShelf::Entry* ModelShelf::LeastRecentlyUsed() {
  Entry* least = nullptr;
  for (Entry& entry : entries_) {
    if (entry.service == nullptr) continue;
    const auto age = [](const Entry& e) { return std::pair(e.users > 0, e.used); };
    if (least == nullptr || age(entry) < age(*least)) least = &entry;
  }
  return least;
}

bool ModelShelf::Fits(int64_t bytes) const {
  int64_t models = 0;
  for (const Entry& entry : entries_) {
    models += entry.service != nullptr ? 1 : 0;
    bytes += entry.bytes;
  }
  return models < limits_.models && (limits_.bytes == 0 || bytes <= limits_.bytes);
}

void ModelShelf::Run() {
  Lock lock(mutex_);
  while (!stops_) {
    if (Entry* old = NextToPutAway()) {
      PutAway(*old, lock);
      continue;
    }
    if (Entry* next = NextToLoad()) {
      LoadNext(*next, lock);
      continue;
    }
    changed_.wait_for(lock, kLook);
  }
  for (Entry& entry : entries_) Refuse(entry, "the server is stopping", lock);
  ended_ = true;
  changed_.notify_all();
}

void ModelShelf::LoadNext(Entry& entry, Lock& lock) {
  entry.is_loading = true;
  std::unique_ptr<ModelService> service;
  std::string error;
  try {
    lock.unlock();
    const int64_t bytes = entry.model.bytes();
    lock.lock();
    if (MakeRoom(entry, bytes, lock)) {
      lock.unlock();
      service = entry.model.load();
      lock.lock();
      entry.bytes = bytes;
    }
  } catch (const std::exception& e) {
    if (!lock.owns_lock()) lock.lock();
    error = e.what();
  }
  entry.is_loading = false;
  entry.error = error;
  entry.service = std::move(service);
  entry.used = entry.idle_since = Clock::now();
  entry.wanted = false;
  changed_.notify_all();
  if (entry.service != nullptr)
    Serve(entry, lock);
  else if (!error.empty())
    Refuse(entry, fmt::format("the model {} cannot be loaded: {}", entry.model.name, error), lock);
}

// Returns false if nobody waits for it any longer. Throws Error if it does not even fit alone.
bool ModelShelf::MakeRoom(Entry& entry, int64_t bytes, Lock& lock) {
  while (!Fits(bytes) && !stops_) {
    Entry* victim = LeastRecentlyUsed();
    if (victim == nullptr) {
      throw Error("it takes {} MiB, and all models may take {} MiB", (bytes + (1 << 20) - 1) >> 20,
                  limits_.bytes >> 20);
    }
    victim->yields = true;
    if (victim->users == 0) {
      PutAway(*victim, lock);
      continue;
    }
    changed_.wait_for(lock, kLook);
    DropDisconnected(entry);
    if (entry.waiting.empty() && !entry.wanted) {
      victim->yields = victim->leaves;
      Serve(*victim, lock);
      return false;
    }
  }
  return !stops_;
}

void ModelShelf::PutAway(Entry& entry, Lock& lock) {
  std::unique_ptr<ModelService> service = std::move(entry.service);
  lock.unlock();
  service.reset();
  malloc_trim(0);  // what its caches held goes back to the system before the next model comes
  lock.lock();
  entry.bytes = 0;
  entry.yields = entry.leaves = false;
  changed_.notify_all();
}

// Hands over what waited.
void ModelShelf::Serve(Entry& entry, Lock& lock) {
  while (!entry.waiting.empty() && !entry.yields && !stops_) {
    Waiting next = std::move(entry.waiting.front());
    entry.waiting.pop_front();
    --waiting_;
    waiting_bytes_ -= std::ssize(next.request.body);
    ExchangePtr lease = Lend(entry, next.exchange);
    lock.unlock();
    entry.service->Handle(std::move(next.request), std::move(lease));  // its end takes the lock
    next.exchange.reset();
    lock.lock();
  }
}

void ModelShelf::Refuse(Entry& entry, const std::string& why, Lock& lock) {
  while (!entry.waiting.empty()) {
    const Waiting next = std::move(entry.waiting.front());
    entry.waiting.pop_front();
    --waiting_;
    waiting_bytes_ -= std::ssize(next.request.body);
    lock.unlock();
    coppice::Refuse(next.request, *next.exchange, why);
    lock.lock();
  }
}

}  // namespace coppice
