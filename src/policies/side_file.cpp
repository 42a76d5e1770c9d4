#include "policies/side_file.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/error.h"
#include "base/limits.h"
#include "formats/printable.h"
#include "formats/quants.h"

namespace coppice {

SideFileReader::SideFileReader(std::string_view part, const std::string& path, const SideFile& file)
    : part_(part), path_(path), parsed_(file.parsed) {
  for (const StoredTensor& tensor : parsed_.tensors) tensors_.emplace(tensor.name, &tensor);
}

const std::string& SideFileReader::Field(const char* name) const {
  const auto it = parsed_.metadata.find(name);
  if (it == parsed_.metadata.end()) throw Error("[{}] {}: metadata has no '{}'", part_, path_, name);
  return it->second;
}

int64_t SideFileReader::Whole(const char* name, std::string_view text, int64_t low, int64_t high) const {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    throw Error("[{}] {}: metadata {}: '{}' is not a whole number from {} to {}", part_, path_, name,
                Printable(text), low, high);
  }
  return value;
}

double SideFileReader::Number(const char* name, double low, double high) const {
  const std::string& text = Field(name);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // A NaN fails both comparisons.
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high)) {
    throw Error("[{}] {}: metadata {}: '{}' is not a number from {} to {}", part_, path_, name,
                Printable(text), low, high);
  }
  return value;
}

size_t SideFileReader::Choice(const char* name, const std::vector<std::string_view>& names) const {
  const auto found = std::ranges::find(names, std::string_view(Field(name)));
  if (found == names.end()) {
    throw Error("[{}] {}: metadata {}: '{}' is none of {}", part_, path_, name, Printable(Field(name)),
                fmt::join(names, ", "));
  }
  return static_cast<size_t>(found - names.begin());
}

Tensor SideFileReader::Vector(const std::string& name, int64_t size) {
  const TensorView stored = Find(name, {size});
  Tensor vector(DType::kF32, 1, size);
  DequantizeRow(stored.dtype, stored.data, vector.mutable_view().Row<float>(0));
  return vector;
}

TensorView SideFileReader::Find(const std::string& name, const std::vector<int64_t>& expected) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    const bool skipped = std::ranges::find(parsed_.skipped, name) != parsed_.skipped.end();
    throw Error("[{}] {}: tensor '{}' {}", part_, path_, name,
                skipped ? "is not F32, F16 or BF16" : "is missing");
  }
  const StoredTensor& stored = *found->second;
  const bool fits = stored.shape.size() == expected.size() &&
                    std::ranges::equal(stored.shape, expected, [](int64_t has, int64_t wanted) {
                      return wanted < 0 ? has >= 1 && has <= limits::kMaxHidden : has == wanted;
                    });
  if (!fits) {
    std::string wanted;
    for (const int64_t n : expected)
      wanted += (wanted.empty() ? "" : ", ") + (n < 0 ? "h" : fmt::format("{}", n));
    throw Error("[{}] {}: tensor '{}' is [{}], expected [{}]", part_, path_, name,
                fmt::join(stored.shape, ", "), wanted);
  }
  CheckFinite(name, stored.view);
  tensors_.erase(found);
  return stored.view;
}

void SideFileReader::CheckFinite(const std::string& name, const TensorView& stored) {
  row_.resize(static_cast<size_t>(stored.cols));
  for (int64_t r = 0; r < stored.rows; ++r) {
    DequantizeRow(stored.dtype, stored.RowBytes(r), row_);
    // Over the exponent's bits, which vectorises: a file of a large model holds 42 M weights.
    constexpr uint32_t kExponent = 0x7F800000u;
    uint32_t strange = 0;
    for (const float value : row_) strange |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent;
    if (strange != 0)
      throw Error("[{}] {}: tensor '{}' holds a value that is not finite", part_, path_, name);
  }
}

void SideFileReader::RefuseOthers(std::string_view owners) const {
  if (tensors_.empty() && parsed_.skipped.empty()) return;
  const std::string_view other = tensors_.empty() ? parsed_.skipped.front() : tensors_.begin()->first;
  throw Error("[{}] {}: tensor '{}' belongs to none of {}", part_, path_, Printable(other), owners);
}

}  // namespace coppice
