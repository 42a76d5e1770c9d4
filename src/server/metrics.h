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

#include "engine/auto_reason.h"
#include "engine/documents/reuse_reason.h"
#include "engine/engine.h"
#include "server/histogram.h"
#include "server/job.h"

namespace coppice {

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
  // `methods`: the names of all pruning methods, which are label values; they outlive the object.
  explicit Metrics(const std::vector<uint64_t>& clients = {}, std::vector<std::string_view> methods = {});
  void CountAnswer(uint64_t client, const JobResult& result, int64_t prompt_tokens);
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
  // What became of an answer's methods: at least one acted; none did; the engine doubted the pruned answer,
  // and answered densely.
  enum class Outcome { kPruned, kDense, kFellBack };
  static constexpr std::array<std::string_view, 3> kOutcomes = {"pruned", "dense", "fell_back"};

  static constexpr double kFirstTokenBounds[] = {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
  static constexpr double kQueueBounds[] = {0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300};
  static constexpr double kWholeBounds[] = {0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800};
  static constexpr double kKeptBounds[] = {0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1};

  struct Counts {
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    double prompt_seconds = 0;
    int64_t predicted_tokens = 0;
    double predicted_seconds = 0;
    int64_t embedded_tokens = 0;
    int64_t cancelled = 0;
    int64_t completed = 0;
    std::array<Reuse, kReuseReasons.size()> reuse = {};               // by reason
    std::vector<std::array<int64_t, kOutcomes.size()>> methods = {};  // as Metrics::methods_
    std::array<int64_t, kAutoReasons.size()> auto_reasons = {};
    Histogram first_token{kFirstTokenBounds};
    Histogram queued{kQueueBounds};
    Histogram token_gaps{kTokenGapBounds};
    Histogram whole{kWholeBounds};
    Histogram kept{kKeptBounds};

    std::string Text(std::span<const std::string_view> names) const;
    std::string ReuseText() const;
    std::string PruneText(std::span<const std::string_view> names) const;
  };

  template <typename F>
  void Count(uint64_t client, F&& add);
  void CountMethods(const Answer& answer, Counts& counts) const;

  std::vector<std::string_view> methods_;  // "none" in front of all others
  mutable std::mutex mutex_;
  Counts all_;
  std::map<uint64_t, Counts> clients_;  // who they are never changes, so counting needs no memory for them
  std::map<int, int64_t> requests_;     // by status
};

}  // namespace coppice
