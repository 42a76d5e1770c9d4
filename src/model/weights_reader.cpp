#include "model/weights_reader.h"

#include <fmt/ranges.h>

#include <cstring>
#include <utility>

#include "base/error.h"
#include "formats/quants.h"

namespace coppice {

namespace {

std::string ShapeText(int64_t rows, int64_t cols) {
  return rows == 1 ? fmt::format("[{}]", cols) : fmt::format("[{}, {}]", rows, cols);
}

}  // namespace

void WeightsReader::Fail(const std::string& name, const std::string& why) const {
  throw Error("[model] {}: tensor '{}' {}", store_.path(), name, why);
}

void WeightsReader::Count(const TensorView& view) {
  weights_.parameters += view.rows * view.cols;
  weights_.bytes += view.rows * BytesOf(view.dtype, view.cols);
}

TensorView WeightsReader::Own(Tensor tensor) {
  weights_.owned_.push_back(std::move(tensor));
  return weights_.owned_.back().view();
}

TensorView WeightsReader::Matrix(const std::string& name, int64_t rows, int64_t cols) {
  const StoredTensor* t = store_.Find(name);
  if (t == nullptr) Fail(name, "is missing");
  if (t->view.rows != rows || t->view.cols != cols) {
    Fail(name,
         fmt::format("is {}, config says {}", ShapeText(t->view.rows, t->view.cols), ShapeText(rows, cols)));
  }
  Count(t->view);
  return t->view;
}

TensorView WeightsReader::Floats(const std::string& name, int64_t rows, int64_t cols) {
  const TensorView stored = Matrix(name, rows, cols);
  if (stored.dtype == DType::kF32) return stored;
  Tensor converted(DType::kF32, rows, cols);
  for (int64_t r = 0; r < rows; ++r)
    DequantizeRow(stored.dtype, stored.RowBytes(r), converted.mutable_view().Row<float>(r));
  return Own(std::move(converted));
}

TensorView WeightsReader::AllFloats(const std::string& name, int64_t size) {
  const StoredTensor* t = store_.Find(name);
  if (t == nullptr) Fail(name, "is missing");
  if (t->view.cols < 1 || t->view.rows * t->view.cols != size)
    Fail(name, fmt::format("is {}, config says {} values", ShapeText(t->view.rows, t->view.cols), size));
  return Floats(name, t->view.rows, t->view.cols);
}

TensorView WeightsReader::Vector(const std::string& name, int64_t size, bool required) {
  return !required && !Has(name) ? TensorView() : Floats(name, 1, size);
}

Linear WeightsReader::Map(const std::string& name, int64_t outputs, int64_t inputs, bool bias) {
  return {Matrix(name + ".weight", outputs, inputs), Vector(name + ".bias", outputs, bias)};
}

TensorView WeightsReader::Stacked(const std::string& name, int64_t parts, int64_t rows, int64_t cols,
                                  Order plain) {
  const StoredTensor* t = store_.Find(name);
  if (t == nullptr) Fail(name, "is missing");
  const std::vector<int64_t> by_rows = {parts, rows, cols};
  const std::vector<int64_t> by_columns = {parts, cols, rows};
  const bool is_plain = Info(t->view.dtype).block_elements == 1;
  const bool turned =
      is_plain && (plain == Order::kColumns ||
                   (plain == Order::kEither && t->shape != by_rows && t->shape == by_columns));
  const std::vector<int64_t>& wanted = turned ? by_columns : by_rows;
  if (t->shape != wanted)
    Fail(name, fmt::format("is [{}], config says [{}]", fmt::join(t->shape, ", "), fmt::join(wanted, ", ")));
  Count(t->view);
  return turned ? Turned(t->view, parts, rows, cols) : t->view;
}

TensorView WeightsReader::Turned(const TensorView& stored, int64_t parts, int64_t rows, int64_t cols) {
  Tensor copy(stored.dtype, parts * rows, cols);
  const auto bytes = static_cast<size_t>(BytesOf(stored.dtype, 1));
  for (int64_t p = 0; p < parts; ++p) {
    for (int64_t c = 0; c < cols; ++c) {
      const std::byte* from = stored.RowBytes(p * cols + c);
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(copy.mutable_view().RowBytes(p * rows + r) + static_cast<size_t>(c) * bytes,
                    from + static_cast<size_t>(r) * bytes, bytes);
    }
  }
  return Own(std::move(copy));
}

}  // namespace coppice
