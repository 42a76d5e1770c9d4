// What the operations of the backend share: a device, its kernels, its memory as tensors see it, and scratch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/gpu/cublaslt.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/kernel_table.h"
#include "kernels/gpu/weight_layout.h"
#include "tensor/device_memory.h"

namespace coppice::gpu {

class Gpu;

inline CUdeviceptr AddressOf(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }

// Device memory that holds tensors as they are in the host's, or weights in the kernels' layouts. Only
// products and Embed can read the latter, so that heap refuses copies.
class Heap final : public DeviceMemory {
 public:
  enum class Holds { kTensors, kWeights };
  Heap(Gpu& gpu, Holds holds) : gpu_(gpu), holds_(holds) {}
  std::byte* Allocate(int64_t bytes) override;
  void Free(std::byte* data) noexcept override;
  void Copy(const TensorView& from, const MutableTensorView& to) override;
  void Gather(const TensorView& from, std::span<const int32_t> rows, const MutableTensorView& to) override;
  void Zero(const MutableTensorView& to) override;
  std::unique_ptr<RecordStore> OpenRecordStore(int64_t record_bytes) override;

 private:
  Gpu& gpu_;
  Holds holds_;
};

// Memory for values that live within one operation. Operations run one after the other on one stream, so the
// next one may write where the last one still reads: it begins after it.
class Arena {
 public:
  explicit Arena(Device& device) : device_(device) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  CUdeviceptr Take(int64_t bytes);  // aligned to 256
  struct Mark {
    size_t block = 0;
    int64_t used = 0;
  };
  Mark mark() const { return at_; }
  // Gives back everything that was taken since. If several blocks were needed, the next operations get one
  // that is as large as all of them.
  void Release(const Mark& mark);

 private:
  struct Block {
    CUdeviceptr address = 0;
    int64_t bytes = 0;
  };
  Device& device_;
  std::vector<Block> blocks_;
  Mark at_;
};

class Gpu {
 public:
  // The process's first device. Backends share it, because the tensors of one may be used by another.
  static std::shared_ptr<Gpu> Open();
  ~Gpu();

  Device& device() { return device_; }
  KernelTable& kernels() { return kernels_; }
  Arena& arena() { return arena_; }
  CublasLt* cublaslt() { return cublaslt_.get(); }  // null if it is not installed
  Heap& heap() { return heap_; }

  // Puts a weight into the weight heap; the view that operations take.
  struct Placed {
    Tensor storage;
    TensorView view;
  };
  Placed Place(const TensorView& w);
  bool IsPlaced(const TensorView& w) const { return w.memory == &weight_heap_; }
  // The layout of a placed weight. The view must be of the whole weight.
  const WeightLayout& LayoutOfPlaced(const TensorView& w) const;
  void Forget(const std::byte* data) noexcept;  // the weight heap frees it

  // Copies a list to device memory that stays as it is until the next call of this function with another
  // list. A list that begins with the last one, or is its beginning, costs only what is new: the positions of
  // keys are the same for all layers, and grow by one in a step.
  CUdeviceptr CachedList(std::span<const int32_t> list);

 private:
  Gpu();

  struct PlacedShape {
    DType dtype;
    int64_t rows;
    int64_t cols;
    WeightLayout layout;
  };
  Device device_{0};
  KernelTable kernels_{device_};
  std::unique_ptr<CublasLt> cublaslt_ = CublasLt::Load(device_);
  Arena arena_{device_};
  Heap heap_{*this, Heap::Holds::kTensors};
  Heap weight_heap_{*this, Heap::Holds::kWeights};
  mutable std::mutex placed_mutex_;
  std::map<const std::byte*, PlacedShape> placed_;
  std::vector<int32_t> cached_;
  int64_t cached_lost_ = 0;  // GraphRecorder::lost() when it was copied
  CUdeviceptr cached_address_ = 0;
  int64_t cached_capacity_ = 0;
};

}  // namespace coppice::gpu
