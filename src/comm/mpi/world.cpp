// Processes that mpirun started, over MPI. Written for Open MPI 4.1, and against MPI 3.1 only.
//
// All transfers are nonblocking, and Wait is the only place that waits: it measures, and it gives the CPU
// away, because MPI's own blocking calls spin. Transfers go on only inside calls of MPI, so BeginShare also
// moves those that began before it.
#include <mpi.h>

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <list>
#include <map>
#include <numeric>

#include <fmt/core.h>

#include "base/check.h"
#include "base/error.h"
#include "comm/comm.h"

namespace coppice {

namespace {

using Clock = std::chrono::steady_clock;

// How long a wait spins, giving way to other threads, before it sleeps between looks; and how long it sleeps.
struct Patience {
  std::chrono::microseconds spins;
  useconds_t sleeps;
};
constexpr Patience kTransfer{std::chrono::milliseconds(2), 50};
constexpr Patience kCommand{std::chrono::milliseconds(1), 1000};

class MpiComm final : public Comm {
 public:
  MpiComm() {
    int provided = 0;
    // In a server, requests have threads of their own, of which one computes at a time.
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    if (provided < MPI_THREAD_SERIALIZED) throw Error("this MPI serves no program with threads");
    if (size_ == 1) return;
    // If mpirun itself is killed, nobody else would end this process.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  ~MpiComm() override {
    for (auto& [bytes, type] : row_types_) MPI_Type_free(&type);
    MPI_Finalize();
  }
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  std::string_view kind() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void BeginShare(MutableTensorView rows, std::span<const RowRange> ranges) override {
    COPPICE_CHECK(std::ssize(ranges) == size_ && rows.stride == BytesOf(rows.dtype, rows.cols));
    Layout layout;  // in rows
    for (const RowRange& range : ranges) layout.Add(range.count, range.begin);
    // MPI reads the layout until the transfer has ended.
    const Layout& kept = layouts_.emplace_back(std::move(layout));
    begun_.emplace_back();
    MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, rows.data, kept.counts.data(), kept.begins.data(),
                    RowType(rows.stride), MPI_COMM_WORLD, &begun_.back());
    counts_.bytes_sent += ranges[static_cast<size_t>(rank_)].count * rows.stride * (size_ - 1);
    int done = 0;
    MPI_Testall(static_cast<int>(begun_.size()), begun_.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) Forget();
  }
  void FinishShares() override {
    if (begun_.empty()) return;
    Wait(begun_, kTransfer);
    Forget();
  }

  void Exchange(const TensorView& send, std::span<const int64_t> send_rows, MutableTensorView receive,
                std::span<const int64_t> receive_rows) override {
    const int64_t row_bytes = BytesOf(send.dtype, send.cols);
    Layout out;
    Layout in;
    for (int p = 0; p < size_; ++p) {
      out.Add(send_rows[static_cast<size_t>(p)],
              std::accumulate(send_rows.begin(), send_rows.begin() + p, int64_t{0}));
      in.Add(receive_rows[static_cast<size_t>(p)],
             std::accumulate(receive_rows.begin(), receive_rows.begin() + p, int64_t{0}));
      if (p != rank_) counts_.bytes_sent += send_rows[static_cast<size_t>(p)] * row_bytes;
    }
    std::vector<MPI_Request> request(1);
    MPI_Ialltoallv(send.data, out.counts.data(), out.begins.data(), RowType(row_bytes), receive.data,
                   in.counts.data(), in.begins.data(), RowType(row_bytes), MPI_COMM_WORLD, request.data());
    Wait(request, kTransfer);
  }

  void Smallest(std::span<uint64_t> values) override {
    std::vector<MPI_Request> request(1);
    MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_UINT64_T, MPI_MIN,
                   MPI_COMM_WORLD, request.data());
    counts_.bytes_sent += static_cast<int64_t>(values.size_bytes());
    Wait(request, kTransfer);
  }

  void Send(std::span<const std::byte> message) override {
    std::vector<std::byte> copy(message.begin(), message.end());
    Broadcast(copy);
  }
  std::vector<std::byte> Receive() override {
    std::vector<std::byte> message;
    Broadcast(message);
    return message;
  }

  void Abort(std::string_view error) override {
    const std::string line = fmt::format("coppice: process {} of {}: {}\n", rank_, size_, error);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
  }

 private:
  // Counts and beginnings by process, as MPI takes them.
  struct Layout {
    std::vector<int> counts;
    std::vector<int> begins;
    void Add(int64_t count, int64_t begin) {
      counts.push_back(static_cast<int>(count));
      begins.push_back(static_cast<int>(begin));
    }
  };

  // A row as MPI's unit, so that counts of rows fit its 32 bits where counts of bytes would not.
  MPI_Datatype RowType(int64_t bytes) {
    const auto [found, fresh] = row_types_.try_emplace(bytes);
    if (fresh) {
      MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &found->second);
      MPI_Type_commit(&found->second);
    }
    return found->second;
  }

  void Wait(std::vector<MPI_Request>& requests, const Patience& patience) {
    const Clock::time_point start = Clock::now();
    while (true) {
      int done = 0;
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      if (done != 0) break;
      if (Clock::now() - start < patience.spins) {
        sched_yield();
      } else {
        usleep(patience.sleeps);
      }
    }
    counts_.seconds_waited += std::chrono::duration<double>(Clock::now() - start).count();
  }

  void Forget() {
    begun_.clear();
    layouts_.clear();
  }

  // Process 0's message to all. The wait for a command is no wait in the sense of counts().
  void Broadcast(std::vector<std::byte>& message) {
    const double waited = counts_.seconds_waited;
    uint64_t size = message.size();
    std::vector<MPI_Request> request(1);
    MPI_Ibcast(&size, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD, request.data());
    Wait(request, kCommand);
    message.resize(size);
    constexpr uint64_t kMost = 1 << 30;
    for (uint64_t begin = 0; begin < size; begin += kMost) {
      MPI_Ibcast(message.data() + begin, static_cast<int>(std::min(kMost, size - begin)), MPI_BYTE, 0,
                 MPI_COMM_WORLD, request.data());
      Wait(request, kTransfer);
    }
    counts_.seconds_waited = waited;
  }

  int rank_ = 0;
  int size_ = 1;
  std::map<int64_t, MPI_Datatype> row_types_;
  std::vector<MPI_Request> begun_;
  std::list<Layout> layouts_;
};

}  // namespace

Comm& World() {
  static MpiComm world;
  return world;
}

}  // namespace coppice
