// Compares one request's prompt with the client's earlier ones, and adds it to their record.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/engine.h"
#include "server/job.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

// The text of some tokens around place `at`: 8 before it and 16 from it on, as whole characters, and cut
// to 256 bytes.
std::string TextAround(const Tokenizer& tokenizer, std::span<const int32_t> tokens, int64_t at);

// Lives from before a job's run until after it. Does nothing for a job without an id.
class ReuseWatch {
 public:
  // `history` may be null: nothing is compared or recorded.
  ReuseWatch(Engine& engine, PromptHistory* history, const Job& job);
  ~ReuseWatch();  // of a run that did not end: the record says so
  ReuseWatch(const ReuseWatch&) = delete;
  ReuseWatch& operator=(const ReuseWatch&) = delete;

  // The prompt took over `cached` tokens, and its other tokens will be computed now. A request that runs
  // twice calls it twice.
  void Read(int64_t cached) noexcept;
  void Ended(const Answer& answer) noexcept;
  const std::optional<ReuseReport>& report() const { return report_; }

 private:
  void Compare(int64_t cached);
  NotKept WhyNotKept(int64_t kept, const Answer& answer) const;

  Engine& engine_;
  PromptHistory* const history_;
  const Job& job_;
  std::optional<ReuseReport> report_;
  uint64_t number_ = 0;  // in the record; 0: not there
};

}  // namespace coppice
