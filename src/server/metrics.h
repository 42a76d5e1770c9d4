// Counters for Prometheus (text format 0.0.4). Counting only waits for other counting.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/documents/reuse_reason.h"
#include "engine/engine.h"

namespace coppice {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void Add(double value);
  std::string Text(std::string_view name, std::string_view help) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // one more than bounds_: the last counts values above all bounds
  double sum_ = 0;
};

// Values at the time of the request.
struct Gauges {
  int64_t processing = 0;
  int64_t waiting = 0;
  int64_t incomplete = 0;
  int64_t sequence_tokens = 0;  // read or generated, of the sequences that have started
  int64_t sequence_room = 0;    // the most there may be
  int64_t connections = 0;
  int64_t documents = 0;
  int64_t documents_memory = 0;
  int64_t documents_disk = 0;
  int64_t documents_errors = 0;
  int64_t packed_weights = 0;
  int64_t cache_blocks = 0;  // of kBlockTokens tokens that the document cache can hold in memory
  std::string model = {};    // its name in answers
};

// Each client's counts are kept beside those of all, so that a key may be shown what is its own. A client is
// PrefixOwner::key: 0 where there are not several keys.
class Metrics {
 public:
  explicit Metrics(const std::vector<uint64_t>& clients = {});
  void CountAnswer(uint64_t client, const Answer& answer, int64_t prompt_tokens, int64_t sampled,
                   double queued_seconds);
  // Of a prompt: why it reused as much as it did, and how many of its tokens were computed.
  void CountReuse(uint64_t client, ReuseReason reason, int64_t computed);
  void CountTexts(uint64_t client, int64_t tokens);  // of an embeddings request
  void CountCancelled(uint64_t client);              // a sequence
  void CountCompleted(uint64_t client);
  void CountRequest(int status);
  std::string Text(const Gauges& gauges) const;
  // What concerns one client; of `gauges` its sequences.
  std::string TextOf(uint64_t client, const Gauges& gauges) const;

 private:
  struct Reuse {
    int64_t prompts = 0;
    int64_t computed = 0;
  };
  struct Counts {
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    double prompt_seconds = 0;
    int64_t predicted_tokens = 0;
    double predicted_seconds = 0;
    int64_t embedded_tokens = 0;
    int64_t cancelled = 0;
    int64_t completed = 0;
    std::array<Reuse, kReuseReasons.size()> reuse = {};  // by reason
    Histogram first_token{{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}};
    Histogram queued{{0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300}};
    Histogram kept{{0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}};

    std::string Text() const;
    std::string ReuseText() const;
  };

  template <typename F>
  void Count(uint64_t client, F&& add);

  mutable std::mutex mutex_;
  Counts all_;
  std::map<uint64_t, Counts> clients_;  // who they are never changes, so counting needs no memory for them
  std::map<int, int64_t> requests_;     // by status
};

}  // namespace coppice
