// One process alone.
#include "base/check.h"
#include "comm/comm.h"

namespace coppice {

namespace {

class Alone final : public Comm {
 public:
  std::string_view kind() const override { return "none"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void BeginShare(MutableTensorView /*rows*/, std::span<const RowRange> /*ranges*/) override {}
  void FinishShares() override {}
  void Exchange(const TensorView& /*send*/, std::span<const int64_t> /*send_rows*/,
                MutableTensorView /*receive*/, std::span<const int64_t> /*receive_rows*/) override {
    FailCheck("one process exchanges nothing", __FILE__, __LINE__);
  }
  void Smallest(std::span<uint64_t> /*values*/) override {}
  void Send(std::span<const std::byte> /*message*/) override {}
  std::vector<std::byte> Receive() override { FailCheck("process 0 receives nothing", __FILE__, __LINE__); }
  void Abort(std::string_view /*error*/) override { FailCheck("nobody to end", __FILE__, __LINE__); }
};

}  // namespace

Comm& World() {
  static Alone alone;
  return alone;
}

}  // namespace coppice
