// Large fp32 products through oneDNN's matmul: each primitive runs on one thread, and many run at a time.
//
// Batch invariance: every primitive has kTileRows rows, whatever the call has; the last tile is padded with
// zeros. A row then passes through the same instructions in the same order in every call. Only its place in a
// tile differs, and the place does not change the order of summation (kernels/cpu/products_test.cpp checks
// oneDNN for that). oneDNN's own division among threads would break this: it depends on the number of rows
// and may cut K.
//
// Weights are cut into blocks of columns, each reordered into the layout that oneDNN requests. This is the
// only file that includes oneDNN and OpenMP.
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/products.h"

namespace coppice::cpu {
namespace {

constexpr int64_t kTileRows = 128;
constexpr int64_t kBlockColumns = 512;

// Limits oneDNN, which runs on OpenMP's threads, to one thread within a thread of our pool. The setting
// belongs to the calling thread. It must also hold while a primitive is created, because that divides its
// work.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

constexpr auto kFloat = dnnl::memory::data_type::f32;

// y [kTileRows, columns] = x [kTileRows, inputs] w, without gaps between rows: oneDNN 2.6 has no fast kernel
// for a strided y and falls back to a reference loop, a thousand times slower.
struct Primitive {
  dnnl::matmul matmul;
  dnnl::memory::desc x, w, y, scratch;
};

class OnednnProducts final : public Products {
 public:
  explicit OnednnProducts(const ProductContext& context)
      : context_(context), engine_(dnnl::engine::kind::cpu, 0) {
    for (int t = 0; t < context.pool.size(); ++t) streams_.emplace_back(engine_);
    scratch_.resize(static_cast<size_t>(context.pool.size()));
    results_.resize(static_cast<size_t>(context.pool.size()));
    stage_.resize(static_cast<size_t>(context.pool.size()));
  }

  void Pack(const WeightRows& w, PackedMatrix& packed) override;
  void Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd end,
               MutableTensorView y) override;

 private:
  const Primitive& Get(int64_t inputs, int64_t columns);
  // Copies x into rows_: without gaps, zero-padded to whole tiles.
  void PrepareRows(const TensorView& x, int64_t padded_rows);
  static int64_t BlockBytes(const Primitive& p) {
    return (static_cast<int64_t>(p.w.get_size()) + 63) / 64 * 64;
  }
  void StageRows(const WeightRows& w, int64_t begin, int64_t columns, int thread);

  ProductContext context_;
  dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;                            // one per thread
  std::map<std::pair<int64_t, int64_t>, Primitive> primitives_;  // (inputs, columns)
  Tensor rows_;                                                  // x, padded
  std::vector<Tensor> results_;                                  // per thread: one tile of y
  std::vector<Tensor> scratch_;                                  // per thread: scratch for oneDNN
  std::vector<Tensor> stage_;  // per thread: one block of weights, row by row
};

const Primitive& OnednnProducts::Get(int64_t inputs, int64_t columns) {
  using Desc = dnnl::memory::desc;
  using Dims = dnnl::memory::dims;
  const auto found = primitives_.find({inputs, columns});
  if (found != primitives_.end()) return found->second;
  const OneThread one;
  const Desc x({kTileRows, inputs}, kFloat, Dims{inputs, 1});
  const Desc w({inputs, columns}, kFloat, dnnl::memory::format_tag::any);
  const Desc y({kTileRows, columns}, kFloat, Dims{columns, 1});
  dnnl::primitive_attr attributes;
  // oneDNN's own scratchpad is bound to the thread that created the primitive.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(x, w, y), attributes, engine_);
  const Primitive made = {dnnl::matmul(pd), x, pd.weights_desc(), y, pd.scratchpad_desc()};
  return primitives_.emplace(std::pair{inputs, columns}, made).first->second;
}

// Dequantises rows [begin, begin + columns) of w into the thread's stage.
void OnednnProducts::StageRows(const WeightRows& w, int64_t begin, int64_t columns, int thread) {
  Tensor& stage = stage_[static_cast<size_t>(thread)];
  stage.Resize(DType::kF32, columns, w.cols());
  const MutableTensorView rows = stage.mutable_view();
  for (int64_t i = 0; i < columns; ++i) {
    w.Dequantize(context_.kernels, begin + i, 0, w.cols(), rows.Row<float>(i).data());
  }
}

void OnednnProducts::Pack(const WeightRows& w, PackedMatrix& packed) {
  const int64_t blocks = (w.rows() + kBlockColumns - 1) / kBlockColumns;
  if (blocks == 0 || w.cols() == 0) return;
  const int64_t last = w.rows() - (blocks - 1) * kBlockColumns;
  const Primitive& full_primitive = Get(w.cols(), std::min(w.rows(), kBlockColumns));
  const Primitive& last_primitive = Get(w.cols(), last);
  const int64_t full_bytes = BlockBytes(full_primitive);
  const int64_t bytes = (blocks - 1) * full_bytes + BlockBytes(last_primitive);
  packed.storage.Resize(DType::kF32, 1, bytes / 4);
  std::byte* storage = packed.storage.mutable_view().data;
  context_.pool.For(blocks, 1, [&](int64_t block, int64_t, int thread) {
    const OneThread one;
    const int64_t columns = block + 1 < blocks ? kBlockColumns : last;
    StageRows(w, block * kBlockColumns, columns, thread);
    const dnnl::memory::desc& to = (block + 1 < blocks ? full_primitive : last_primitive).w;
    const dnnl::memory::desc from({w.cols(), columns}, kFloat, dnnl::memory::dims{1, w.cols()});
    dnnl::memory source(from, engine_, stage_[static_cast<size_t>(thread)].mutable_view().data);
    dnnl::memory target(to, engine_, storage + block * full_bytes);
    dnnl::reorder(source, target).execute(streams_[static_cast<size_t>(thread)], source, target);
  });
}

void OnednnProducts::PrepareRows(const TensorView& x, int64_t padded_rows) {
  rows_.Resize(DType::kF32, padded_rows, x.cols);
  const MutableTensorView rows = rows_.mutable_view();
  const size_t bytes = static_cast<size_t>(x.cols) * 4;
  context_.pool.For(padded_rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      if (i < x.rows) {
        std::memcpy(rows.RowBytes(i), x.RowBytes(i), bytes);
      } else {
        std::memset(rows.RowBytes(i), 0, bytes);
      }
    }
  });
}

void OnednnProducts::Product(const TensorView& x, const PackedMatrix& w, const TensorView& bias, ProductEnd,
                             MutableTensorView y) {
  if (x.rows == 0 || y.cols == 0) return;
  const int64_t tiles = (x.rows + kTileRows - 1) / kTileRows;
  const int64_t blocks = (y.cols + kBlockColumns - 1) / kBlockColumns;
  const int64_t last = y.cols - (blocks - 1) * kBlockColumns;
  PrepareRows(x, tiles * kTileRows);
  const Primitive& full_primitive = Get(w.inputs, std::min(y.cols, kBlockColumns));
  const Primitive& last_primitive = Get(w.inputs, last);
  const int64_t full_bytes = BlockBytes(full_primitive);
  COPPICE_CHECK(w.storage.bytes() == (blocks - 1) * full_bytes + BlockBytes(last_primitive));
  const std::byte* storage = w.storage.view().data;
  const float* bias_row = bias.empty() ? nullptr : bias.Row<float>(0).data();
  const MutableTensorView rows = rows_.mutable_view();

  context_.pool.For(blocks * tiles, 1, [&](int64_t task, int64_t, int thread) {
    const OneThread one;
    const int64_t block = task / tiles;
    const int64_t tile = task % tiles;
    const Primitive& p = block + 1 < blocks ? full_primitive : last_primitive;
    const int64_t columns = block + 1 < blocks ? kBlockColumns : last;
    Tensor& result = results_[static_cast<size_t>(thread)];
    result.Resize(DType::kF32, kTileRows, columns);
    Tensor& scratch = scratch_[static_cast<size_t>(thread)];
    scratch.Resize(DType::kF32, 1, static_cast<int64_t>(p.scratch.get_size() / 4 + 1));
    dnnl::memory source(p.x, engine_, rows.RowBytes(tile * kTileRows));
    dnnl::memory weights(p.w, engine_, const_cast<std::byte*>(storage + block * full_bytes));
    dnnl::memory target(p.y, engine_, result.mutable_view().data);
    dnnl::memory room(p.scratch, engine_, scratch.mutable_view().data);
    p.matmul.execute(streams_[static_cast<size_t>(thread)], {{DNNL_ARG_SRC, source},
                                                             {DNNL_ARG_WEIGHTS, weights},
                                                             {DNNL_ARG_DST, target},
                                                             {DNNL_ARG_SCRATCHPAD, room}});
    const int64_t count = std::min(kTileRows, x.rows - tile * kTileRows);
    for (int64_t i = 0; i < count; ++i) {  // the result is still in cache
      const std::span<const float> from = result.view().Row<float>(i);
      float* to = y.Row<float>(tile * kTileRows + i).data() + block * kBlockColumns;
      std::copy(from.begin(), from.end(), to);
      if (bias_row != nullptr) context_.kernels.add(bias_row + block * kBlockColumns, columns, to);
    }
  });
}

}  // namespace

void LimitOnednn(Isa isa) {
  if (isa == Isa::kAvx512) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
}

std::unique_ptr<Products> MakeOnednnProducts(const ProductContext& context) {
  return std::make_unique<OnednnProducts>(context);
}

}  // namespace coppice::cpu
