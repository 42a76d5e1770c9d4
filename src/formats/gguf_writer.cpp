#include "formats/gguf_writer.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/new_file.h"
#include "formats/extent.h"
#include "formats/gguf_value_type.h"

namespace coppice {
namespace {

constexpr uint64_t kAlignment = 32;  // the format's default, so general.alignment need not be written

template <typename T>
void Put(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutString(std::string& out, const std::string& text) {
  Put<uint64_t>(out, text.size());
  out += text;
}

void PutKey(std::string& out, const std::string& key, uint32_t type) {
  COPPICE_CHECK(!key.empty() && key.size() <= limits::kMaxGgufKeyBytes);
  PutString(out, key);
  Put(out, type);
}

void PutArrayHead(std::string& out, const std::string& key, uint32_t type, size_t count) {
  PutKey(out, key, kArray);
  Put(out, type);
  Put<uint64_t>(out, count);
}

uint64_t Padded(uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

uint32_t GgmlNumber(DType type) {
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kIQ4_NL:
      return 20;
    case DType::kIQ4_XS:
      return 23;
    case DType::kIQ2_XXS:
      return 16;
    case DType::kIQ2_XS:
      return 17;
    case DType::kIQ2_S:
      return 22;
    case DType::kIQ3_XXS:
      return 18;
    case DType::kIQ3_S:
      return 21;
    case DType::kMXFP4:
      return 39;
  }
  COPPICE_CHECK(false && "a DType without a number");
  return 0;
}

uint64_t BytesOfTensor(DType type, const std::vector<int64_t>& shape) {
  const auto extent = ExtentOf(type, shape);
  COPPICE_CHECK(extent.has_value() && extent->bytes > 0);
  return static_cast<uint64_t>(extent->bytes);
}

}  // namespace

void GgufWriter::Add(const std::string& key, const std::string& value) {
  PutKey(metadata_, key, kString);
  PutString(metadata_, value);
  ++keys_;
}

void GgufWriter::Add(const std::string& key, uint32_t value) {
  PutKey(metadata_, key, kU32);
  Put(metadata_, value);
  ++keys_;
}

void GgufWriter::Add(const std::string& key, float value) {
  PutKey(metadata_, key, kF32);
  Put(metadata_, value);
  ++keys_;
}

void GgufWriter::Add(const std::string& key, bool value) {
  PutKey(metadata_, key, kBool);
  Put(metadata_, static_cast<uint8_t>(value));
  ++keys_;
}

void GgufWriter::Add(const std::string& key, const std::vector<std::string>& value) {
  PutArrayHead(metadata_, key, kString, value.size());
  for (const std::string& text : value) PutString(metadata_, text);
  ++keys_;
}

void GgufWriter::Add(const std::string& key, const std::vector<float>& value) {
  PutArrayHead(metadata_, key, kF32, value.size());
  for (const float number : value) Put(metadata_, number);
  ++keys_;
}

void GgufWriter::Add(const std::string& key, const std::vector<int32_t>& value) {
  PutArrayHead(metadata_, key, kI32, value.size());
  for (const int32_t number : value) Put(metadata_, number);
  ++keys_;
}

void GgufWriter::Add(const std::string& key, const std::vector<bool>& value) {
  PutArrayHead(metadata_, key, kBool, value.size());
  for (const bool flag : value) Put<uint8_t>(metadata_, flag ? 1 : 0);
  ++keys_;
}

void GgufWriter::AddTensor(const std::string& name, DType type, std::vector<int64_t> shape,
                           std::function<void(std::span<std::byte>)> fill) {
  COPPICE_CHECK(!name.empty() && name.size() <= limits::kMaxGgufTensorNameBytes);
  COPPICE_CHECK(!shape.empty() && shape.size() <= 4);
  for (const int64_t dimension : shape) COPPICE_CHECK(dimension > 0);
  BytesOfTensor(type, shape);  // checks that the size does not overflow
  tensors_.push_back({name, type, std::move(shape), std::move(fill)});
}

void GgufWriter::Write(const std::string& path) const {
  std::string head = "GGUF";
  Put<uint32_t>(head, 3);
  Put<uint64_t>(head, tensors_.size());
  Put<uint64_t>(head, keys_);
  head += metadata_;
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    PutString(head, tensor.name);
    Put(head, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) Put<int64_t>(head, tensor.shape[i]);  // innermost first
    Put(head, GgmlNumber(tensor.type));
    Put(head, offset);
    offset += Padded(BytesOfTensor(tensor.type, tensor.shape));
  }
  head.resize(Padded(head.size()), '\0');

  NewFile file(path, "gguf");
  file.Append(std::as_bytes(std::span(head)));
  std::vector<std::byte> data;
  for (const Tensor& tensor : tensors_) {
    const uint64_t size = BytesOfTensor(tensor.type, tensor.shape);
    data.assign(Padded(size), std::byte{0});
    tensor.fill(std::span(data).first(size));
    file.Append(data);
  }
  file.Commit();
}

}  // namespace coppice
