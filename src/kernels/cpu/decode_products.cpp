#include "kernels/cpu/decode_products.h"

#include <algorithm>

namespace coppice::cpu {

namespace {

// Handing out pieces of fewer values than this costs more than computing them.
constexpr int64_t kFewestValues = 16384;

const float* In(const TensorView& t, int64_t row) { return reinterpret_cast<const float*>(t.RowBytes(row)); }
float* Out(const MutableTensorView& t, int64_t row) { return reinterpret_cast<float*>(t.RowBytes(row)); }

int64_t RowGrain(int64_t cols) { return std::max<int64_t>(1, kFewestValues / std::max<int64_t>(1, cols)); }

// Weights that are read one behind the other, in strips of neighbouring rows of one of them.
struct DecodeStrips {
  explicit DecodeStrips(std::span<const DecodeTask> tasks) {
    for (const DecodeTask& task : tasks) {
      if (task.x.rows > 1) strip = kDotStrip;
    }
    for (const DecodeTask& task : tasks) {
      ends.push_back(total() + (task.x.rows == 0 ? 0 : (task.w.rows + strip - 1) / strip));
      rows += task.w.rows;
      bytes += task.w.rows * task.w.stride;
      inputs = std::max(inputs, task.w.cols);
    }
  }
  int64_t total() const { return ends.empty() ? 0 : ends.back(); }

  // In strips: large enough to stream, and small enough that a descheduled thread delays little work.
  int64_t Grain(int threads) const {
    constexpr int64_t kPieces = 8;  // per thread
    constexpr int64_t kMostBytes = 1 << 18;
    const int64_t fewest = RowGrain(inputs);
    const int64_t most = std::max(fewest, kMostBytes * rows / std::max<int64_t>(1, bytes));
    return std::max<int64_t>(1, std::clamp(rows / (kPieces * threads), fewest, most) / strip);
  }

  // Calls body(task, first row, end) for each task that strips [begin, end) touch.
  template <typename Body>
  void Each(std::span<const DecodeTask> tasks, RowRange of, Body body) const {
    auto task = static_cast<size_t>(std::ranges::upper_bound(ends, of.begin) - ends.begin());
    for (int64_t at = of.begin; at < of.end; ++task) {
      const int64_t first = task == 0 ? 0 : ends[task - 1];
      const int64_t end = std::min(of.end, ends[task]);
      if (end == at) continue;
      body(task, (at - first) * strip, std::min((end - first) * strip, tasks[task].w.rows));
      at = end;
    }
  }

  int64_t strip = 1;  // rows
  int64_t rows = 0;
  int64_t bytes = 0;
  int64_t inputs = 0;
  std::vector<int64_t> ends;  // [tasks]: of the task's strips
};

}  // namespace

DecodeProductOps::Form DecodeProductOps::FormOf(DType weights) const {
  const auto type = static_cast<size_t>(weights);
  if (int_dots_ != nullptr && int_dots_->dot[type] != nullptr)
    return {.codes = true, .layout = int_dots_->layout[type]};
  return {.arrange = kernels_.stream[type] == nullptr ? nullptr : kernels_.arrange[type]};
}

size_t DecodeProductOps::InputOf(const DecodeTask& task) {
  const Form form = FormOf(task.w.dtype);
  const auto same = [&](const Input& input) {
    return input.x.data == task.x.data && input.x.rows == task.x.rows && input.x.cols == task.x.cols &&
           input.x.stride == task.x.stride && input.form == form;
  };
  const auto found = std::ranges::find_if(inputs_, same);
  if (found == inputs_.end()) {
    inputs_.push_back({task.x, form, 0});
    return inputs_.size() - 1;
  }
  return static_cast<size_t>(found - inputs_.begin());
}

void DecodeProductOps::PrepareInputs() {
  int64_t codes = 0;
  int64_t floats = 0;
  int64_t cols = 0;
  std::vector<std::pair<size_t, int64_t>> rows;  // of each input
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    if (!input.form.codes && input.form.arrange == nullptr) continue;
    int64_t& used = input.form.codes ? codes : floats;
    input.begin = used;
    used += input.x.rows * (input.form.codes ? DotGroups(input.x.cols) : input.x.cols);
    cols = std::max(cols, input.x.cols);
    for (int64_t row = 0; row < input.x.rows; ++row) rows.emplace_back(i, row);
  }
  if (std::ssize(codes_) < codes) codes_.resize(static_cast<size_t>(codes));
  if (arranged_.cols() < floats) arranged_.Resize(DType::kF32, 1, floats);
  pool_.For(std::ssize(rows), RowGrain(cols), [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin) {
      const auto [input, row] = rows[static_cast<size_t>(begin)];
      PrepareRow(inputs_[input], row);
    }
  });
}

void DecodeProductOps::PrepareRow(const Input& input, int64_t row) {
  const TensorView& x = input.x;
  if (input.form.codes) {
    int_dots_->quantize(In(x, row), x.cols, input.form.layout, codes_.data() + input.begin + row, x.rows);
  } else {
    input.form.arrange(In(x, row), x.cols, Out(arranged_.mutable_view(), 0) + input.begin + row * x.cols);
  }
}

void DecodeProductOps::RunRows(const DecodeTask& task, const Input& input, int64_t begin, int64_t end) const {
  const auto& [x, w, bias, y] = task;
  const auto type = static_cast<size_t>(w.dtype);
  const float* bias_row = bias.empty() ? nullptr : In(bias, 0) + begin;
  if (input.form.codes) {
    int_dots_->dot[type]({w.RowBytes(begin), w.stride, end - begin, ahead_, codes_.data() + input.begin,
                          x.rows, w.cols, bias_row, Out(y, 0) + begin, y.stride / 4});
    return;
  }
  if (kernels_.stream[type] != nullptr) {
    for (int64_t i = 0; i < x.rows; ++i) {
      const float* row =
          input.form.arrange == nullptr ? In(x, i) : In(arranged_.view(), 0) + input.begin + i * x.cols;
      kernels_.stream[type](
          {w.RowBytes(begin), w.stride, end - begin, row, w.cols, bias_row, Out(y, i) + begin});
    }
    return;
  }
  for (int64_t o = begin; o < end; ++o) {
    kernels_.dot[type](w.RowBytes(o), In(x, 0), x.stride / 4, x.rows, w.cols,
                       bias_row == nullptr ? 0.0f : bias_row[o - begin], Out(y, 0) + o, y.stride / 4);
  }
}

void DecodeProductOps::Run(std::span<const DecodeTask> tasks) {
  inputs_.clear();
  input_of_.clear();
  for (const DecodeTask& task : tasks) input_of_.push_back(InputOf(task));
  PrepareInputs();
  const DecodeStrips strips(tasks);
  if (strips.total() == 0) return;
  pool_.For(shares_.Split(strips.total(), strips.Grain(pool_.size())), 1,
            [&](int64_t begin, int64_t end, int thread) {
              for (; begin < end; ++begin) {
                strips.Each(tasks, shares_.Take(thread), [&](size_t task, int64_t first, int64_t last) {
                  RunRows(tasks[task], inputs_[input_of_[task]], first, last);
                });
              }
            });
}

}  // namespace coppice::cpu
