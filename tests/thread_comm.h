// Several "processes" as threads of one test program, which exchange rows through memory.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/comm.h"
#include "tensor/device_memory.h"

namespace coppice {

class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : at_(static_cast<size_t>(size)) {}

  // Runs `work` as each of the processes, once, and returns when all have ended. When one has ended, by an
  // exception or not, the calls of the others that wait for it throw logic_error. Throws the first exception.
  void Run(const std::function<void(Comm&)>& work) {
    std::vector<std::thread> threads;
    for (size_t p = 0; p < at_.size(); ++p) {
      threads.emplace_back([&, p] {
        Member member(*this, static_cast<int>(p));
        std::exception_ptr thrown;
        try {
          work(member);
        } catch (...) {
          thrown = std::current_exception();
        }
        const std::lock_guard lock(mutex_);
        End(thrown);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (first_) std::rethrow_exception(first_);
  }

 private:
  // What a process shows to the others during one call.
  struct Shown {
    std::vector<MutableTensorView> shares;      // those begun
    std::vector<std::vector<RowRange>> ranges;  // of each share
    TensorView rows;                            // of an exchange
    std::vector<int64_t> counts;                // of an exchange
    std::vector<uint64_t> values;
  };

  class Member final : public Comm {
   public:
    Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
    std::string_view kind() const override { return "threads"; }
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(group_.at_.size()); }

    // Rows arrive in FinishShares, as late as MPI may bring them. Until then the others' rows are NaN: code
    // that reads them too early gets a wrong result.
    void BeginShare(MutableTensorView rows, std::span<const RowRange> ranges) override {
      for (int p = 0; p < size(); ++p) {
        const RowRange& range = ranges[static_cast<size_t>(p)];
        if (p == rank_ || range.count == 0) continue;
        std::memset(rows.RowBytes(range.begin), 0xff, static_cast<size_t>(range.count * rows.stride));
      }
      mine().shares.push_back(rows);
      mine().ranges.emplace_back(ranges.begin(), ranges.end());
      counts_.bytes_sent += ranges[static_cast<size_t>(rank_)].count * rows.stride * (size() - 1);
    }
    void FinishShares() override {
      if (mine().shares.empty()) return;
      group_.Meet("shares");
      for (int p = 0; p < size(); ++p) {
        if (p != rank_) Take(p);
      }
      group_.Meet("shares");
      mine().shares.clear();
      mine().ranges.clear();
    }
    void Exchange(const TensorView& send, std::span<const int64_t> send_rows, MutableTensorView receive,
                  std::span<const int64_t> receive_rows) override {
      mine().rows = send;
      mine().counts.assign(send_rows.begin(), send_rows.end());
      group_.Meet("exchange");
      int64_t to = 0;
      for (int p = 0; p < size(); ++p) {
        const Shown& from = group_.at_[static_cast<size_t>(p)];
        int64_t begin = 0;
        for (int q = 0; q < rank_; ++q) begin += from.counts[static_cast<size_t>(q)];
        const int64_t count = from.counts[static_cast<size_t>(rank_)];
        if (count != receive_rows[static_cast<size_t>(p)])
          throw std::logic_error("rows sent are not those expected");
        CopyRows(from.rows.Rows(begin, count), receive.Rows(to, count));
        to += count;
      }
      group_.Meet("exchange");
    }
    void Smallest(std::span<uint64_t> values) override {
      mine().values.assign(values.begin(), values.end());
      group_.Meet("smallest");
      for (const Shown& shown : group_.at_) {
        for (size_t i = 0; i < values.size(); ++i) values[i] = std::min(values[i], shown.values[i]);
      }
      group_.Meet("smallest");
    }
    void Send(std::span<const std::byte> message) override {
      try {
        group_.Send(message);
      } catch (const std::logic_error&) {  // an engine's destructor sends, too; Run throws the cause
      }
    }
    std::vector<std::byte> Receive() override { return group_.Receive(); }
    void Abort(std::string_view error) override { throw std::logic_error("abort: " + std::string(error)); }

   private:
    // The rows that process p shares.
    void Take(int p) {
      const Shown& from = group_.at_[static_cast<size_t>(p)];
      if (from.shares.size() != mine().shares.size() || from.ranges != mine().ranges)
        throw std::logic_error("the processes share different rows");
      for (size_t i = 0; i < from.shares.size(); ++i) {
        const RowRange& range = from.ranges[i][static_cast<size_t>(p)];
        CopyRows(from.shares[i].Rows(range.begin, range.count),
                 mine().shares[i].Rows(range.begin, range.count));
      }
    }
    Shown& mine() { return group_.at_[static_cast<size_t>(rank_)]; }
    ThreadGroup& group_;
    int rank_;
  };

  // Nobody meets any more. With mutex_ locked. `error` may be null.
  void End(const std::exception_ptr& error) {
    if (!first_) first_ = error;
    gone_ = true;
    changed_.notify_all();
  }

  // Waits until every process is in this call.
  void Meet(const char* call) {
    std::unique_lock lock(mutex_);
    if (gone_) throw std::logic_error(kGone);
    if (here_ > 0 && call_ != call) {
      const std::logic_error error("one process is in " + call_ + ", another in " + call);
      End(std::make_exception_ptr(error));
      throw error;
    }
    call_ = call;
    const int64_t meeting = meetings_;
    if (++here_ == std::ssize(at_)) {
      here_ = 0;
      ++meetings_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return meetings_ != meeting || gone_; });
    if (meetings_ == meeting) throw std::logic_error(kGone);
  }

  void Send(std::span<const std::byte> message) {
    message_.assign(message.begin(), message.end());
    Meet("command");
    Meet("command");
  }
  std::vector<std::byte> Receive() {
    Meet("command");
    std::vector<std::byte> message = message_;
    Meet("command");
    return message;
  }

  static constexpr const char* kGone = "waits for a process that has ended";

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string call_;          // in which processes wait
  int64_t here_ = 0;          // processes that wait
  int64_t meetings_ = 0;      // at which all were
  bool gone_ = false;         // a process has ended, or two were in different calls
  std::exception_ptr first_;  // what Run throws
  std::vector<Shown> at_;     // [processes]
  std::vector<std::byte> message_;
};

}  // namespace coppice
