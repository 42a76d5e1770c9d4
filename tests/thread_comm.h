// Several "processes" as threads of one test program, which exchange rows through memory.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/comm.h"

namespace coppice {

class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : barrier_(size), at_(static_cast<size_t>(size)) {}

  // Runs `work` as each of the processes and returns when all have ended. A process that throws ends the test
  // program's wait for it; the first exception is thrown here.
  void Run(const std::function<void(Comm&)>& work) {
    std::vector<std::exception_ptr> thrown(at_.size());
    std::vector<std::thread> threads;
    for (size_t p = 0; p < at_.size(); ++p) {
      threads.emplace_back([&, p] {
        Member member(*this, static_cast<int>(p));
        try {
          work(member);
        } catch (...) {
          thrown[p] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& one : thrown) {
      if (one) std::rethrow_exception(one);
    }
  }

 private:
  // What a process shows to the others during one call.
  struct Shown {
    std::byte* data = nullptr;
    std::vector<int64_t> counts;
    std::vector<uint64_t> values;
  };

  class Member final : public Comm {
   public:
    Member(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
    std::string_view kind() const override { return "threads"; }
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(group_.at_.size()); }

    void BeginShare(MutableTensorView rows, std::span<const RowRange> ranges) override {
      mine().data = rows.data;
      group_.barrier_.arrive_and_wait();
      for (int p = 0; p < size(); ++p) {
        const RowRange& range = ranges[static_cast<size_t>(p)];
        if (p == rank_ || range.count == 0) continue;
        std::memcpy(rows.RowBytes(range.begin),
                    group_.at_[static_cast<size_t>(p)].data + range.begin * rows.stride,
                    static_cast<size_t>(range.count * rows.stride));
      }
      counts_.bytes_sent += ranges[static_cast<size_t>(rank_)].count * rows.stride * (size() - 1);
      group_.barrier_.arrive_and_wait();
    }
    void FinishShares() override {}
    void Exchange(const TensorView& send, std::span<const int64_t> send_rows, MutableTensorView receive,
                  std::span<const int64_t> receive_rows) override {
      mine().data = const_cast<std::byte*>(send.data);
      mine().counts.assign(send_rows.begin(), send_rows.end());
      group_.barrier_.arrive_and_wait();
      int64_t to = 0;
      for (int p = 0; p < size(); ++p) {
        const Shown& from = group_.at_[static_cast<size_t>(p)];
        int64_t begin = 0;
        for (int q = 0; q < rank_; ++q) begin += from.counts[static_cast<size_t>(q)];
        const int64_t count = from.counts[static_cast<size_t>(rank_)];
        if (count != receive_rows[static_cast<size_t>(p)])
          throw std::logic_error("rows sent are not those expected");
        if (count > 0) {
          std::memcpy(receive.RowBytes(to), from.data + begin * send.stride,
                      static_cast<size_t>(count * send.stride));
        }
        to += count;
      }
      group_.barrier_.arrive_and_wait();
    }
    void Smallest(std::span<uint64_t> values) override {
      mine().values.assign(values.begin(), values.end());
      group_.barrier_.arrive_and_wait();
      for (const Shown& shown : group_.at_) {
        for (size_t i = 0; i < values.size(); ++i) values[i] = std::min(values[i], shown.values[i]);
      }
      group_.barrier_.arrive_and_wait();
    }
    void Send(std::span<const std::byte> message) override { group_.Broadcast(&message, nullptr); }
    std::vector<std::byte> Receive() override {
      std::vector<std::byte> message;
      group_.Broadcast(nullptr, &message);
      return message;
    }
    void Abort(std::string_view error) override { throw std::logic_error("abort: " + std::string(error)); }

   private:
    Shown& mine() { return group_.at_[static_cast<size_t>(rank_)]; }
    ThreadGroup& group_;
    int rank_;
  };

  void Broadcast(const std::span<const std::byte>* from, std::vector<std::byte>* to) {
    if (from != nullptr) message_.assign(from->begin(), from->end());
    barrier_.arrive_and_wait();
    if (to != nullptr) *to = message_;
    barrier_.arrive_and_wait();
  }

  std::barrier<> barrier_;
  std::vector<Shown> at_;  // [processes]
  std::vector<std::byte> message_;
};

}  // namespace coppice
