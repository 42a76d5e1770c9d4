// The models that one address offers: each is loaded when a request asks for it, and put away by age when
// others need its memory.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http.h"

namespace coppice {

// What answers the requests for one model. Destroying it frees the model's memory, and may wait for files.
class ModelService : public HttpService {
 public:
  // Cancels all requests. Returns false if one goes on nevertheless.
  virtual bool Stop() = 0;
  // After Stop(): writes what its document cache has no file of yet. Returns false if that takes longer.
  virtual bool WriteDocuments(std::chrono::milliseconds limit) = 0;
};

struct ShelvedModel {
  std::string name;
  // The memory that the model will take, in bytes, known before it is loaded. May throw Error.
  std::function<int64_t()> bytes;
  std::function<std::unique_ptr<ModelService>()> load;  // may throw Error
};

struct ShelfLimits {
  int64_t models = 2;                 // loaded at once
  int64_t bytes = 0;                  // of all that are loaded; 0: no limit
  std::chrono::milliseconds idle{0};  // a model that nobody used for so long is put away; 0: none is
  int64_t max_waiting = 256;          // requests that wait for models
  int64_t max_waiting_bytes = int64_t{256} << 20;
};

enum class ShelfState { kUnloaded, kLoading, kLoaded };

struct ModelOnShelf {
  ShelfState state = ShelfState::kUnloaded;
  std::string error;  // why the last try to load it failed; empty: it did not
};

// Thread-safe. A model is only put away while no request uses it: one that others wait for gets no further
// requests until they have been served, so that two models take turns.
class ModelShelf {
 public:
  using ExchangePtr = std::shared_ptr<Exchange>;

  ModelShelf(std::vector<ShelvedModel> models, const ShelfLimits& limits);
  ~ModelShelf();  // Stop(), then frees all models
  ModelShelf(const ModelShelf&) = delete;
  ModelShelf& operator=(const ModelShelf&) = delete;

  size_t size() const { return entries_.size(); }
  const std::string& name(size_t model) const { return entries_[model].model.name; }
  ModelOnShelf Look(size_t model) const;
  size_t last_used() const;

  // Hands the request to its model: at once if it is loaded, otherwise from another thread once it is. A
  // request whose model cannot be loaded gets 503 and the cause.
  void Ask(size_t model, HttpRequest request, const ExchangePtr& exchange);
  // The same, but without loading: returns false if the model is not loaded.
  bool AskIfLoaded(size_t model, HttpRequest request, const ExchangePtr& exchange);
  // Loads it in the caller's thread's stead, and returns at once.
  void Load(size_t model);
  // Puts it away once its requests have ended. Returns at once.
  void Unload(size_t model);
  // Waits until a model is loaded. Throws Error if it cannot be.
  void LoadNow(size_t model);

  // Refuses what waits, and cancels what runs. Returns false if something goes on nevertheless, such as a
  // model that is being loaded.
  bool Stop();
  bool WriteDocuments(std::chrono::milliseconds limit);

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    HttpRequest request;
    ExchangePtr exchange;
  };
  struct Entry {
    ShelvedModel model;
    std::unique_ptr<ModelService> service;  // null unless it is loaded
    bool is_loading = false;
    std::string error;                  // as ModelOnShelf has it
    int64_t bytes = 0;                  // while it is loaded
    int64_t users = 0;                  // requests that it answers
    Clock::time_point used = {};        // when it got its last request
    Clock::time_point idle_since = {};  // while `users` is 0
    std::deque<Waiting> waiting;
    bool wanted = false;  // Load()
    bool yields = false;  // takes no further requests: others wait for its memory, or Unload()
    bool leaves = false;  // Unload()
  };
  using Lock = std::unique_lock<std::mutex>;

  class Lease;  // an exchange that counts as a user of its model
  ExchangePtr Lend(Entry& entry, const ExchangePtr& exchange);
  void GiveBack(Entry& entry);
  void DropDisconnected(Entry& entry);
  Entry* NextToLoad();
  Entry* NextToPutAway();
  Entry* LeastRecentlyUsed();
  bool Fits(int64_t bytes) const;
  void Run();
  void LoadNext(Entry& entry, Lock& lock);
  bool MakeRoom(Entry& entry, int64_t bytes, Lock& lock);
  void PutAway(Entry& entry, Lock& lock);
  void Serve(Entry& entry, Lock& lock);
  void Refuse(Entry& entry, const std::string& why, Lock& lock);

  const ShelfLimits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;  // as many as were given, in their order
  int64_t waiting_ = 0;
  int64_t waiting_bytes_ = 0;
  bool stops_ = false;
  bool ended_ = false;  // Run() has returned
  std::thread loader_;
};

}  // namespace coppice
