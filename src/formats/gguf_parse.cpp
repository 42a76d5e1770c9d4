// The layout, all little-endian: magic "GGUF", u32 version, u64 number of tensors, u64 number of keys. Per
// key: string, u32 type, value. Per tensor: string, u32 number of dimensions, u64 each (innermost first), u32
// type, u64 offset. Padding to general.alignment; then the data, to which the offsets refer. A string is a
// u64 length and bytes; an array is a u32 type, a u64 count and the elements. Source: gguf.md of ggml.
#include "formats/gguf_parse.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "base/limits.h"
#include "base/utf8.h"
#include "formats/extent.h"
#include "formats/gguf_cursor.h"
#include "formats/gguf_value_type.h"
#include "formats/printable.h"

namespace coppice {
namespace {

constexpr std::array<uint64_t, 13> kLeastBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

// The smallest entries: a key of one byte with a value of one; a tensor with a name of one byte and one
// dimension.
constexpr uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Limit on the elements of all arrays of a file. Small integers are widened in memory, so the file's size
// alone would be a poor bound. The largest vocabularies need a few million elements.
constexpr uint64_t kMostArrayElements = 4 * static_cast<uint64_t>(limits::kMaxVocab);

struct GgmlType {
  uint32_t number;
  std::string_view name;
  std::optional<DType> type;  // nullopt: not supported
};
constexpr auto kGgmlTypes = std::to_array<GgmlType>({
    {0, "F32", DType::kF32},
    {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},
    {4, "Q4_2, removed from the format", {}},
    {5, "Q4_3, removed from the format", {}},
    {6, "Q5_0", DType::kQ5_0},
    {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", DType::kQ2_K},
    {11, "Q3_K", DType::kQ3_K},
    {12, "Q4_K", DType::kQ4_K},
    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", DType::kIQ2_XXS},
    {17, "IQ2_XS", DType::kIQ2_XS},
    {18, "IQ3_XXS", DType::kIQ3_XXS},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", DType::kIQ4_NL},
    {21, "IQ3_S", DType::kIQ3_S},
    {22, "IQ2_S", DType::kIQ2_S},
    {23, "IQ4_XS", DType::kIQ4_XS},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", DType::kBF16},
    {31, "Q4_0_4_4, removed from the format", {}},
    {32, "Q4_0_4_8, removed from the format", {}},
    {33, "Q4_0_8_8, removed from the format", {}},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {36, "IQ4_NL_4_4, removed from the format", {}},
    {37, "IQ4_NL_4_8, removed from the format", {}},
    {38, "IQ4_NL_8_8, removed from the format", {}},
    {39, "MXFP4", DType::kMXFP4},
    {40, "NVFP4", {}},
    {41, "Q1_0", {}},
    {42, "Q2_0", {}},
});

// For a refusal: the types that are supported.
std::string SupportedTypes() {
  std::string names;
  for (const GgmlType& type : kGgmlTypes) {
    if (type.type) names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  }
  return names;
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& path)
      : bytes_(bytes), path_(path), in_(bytes, path) {}

  ParsedGguf Parse() {
    const auto [tensors, keys] = ReadHeader();
    for (uint64_t i = 0; i < keys; ++i) ReadKey();
    // Checks again, now without the bytes of the keys, before reserving memory.
    in_.NeedItems(tensors, kLeastTensorBytes, "tensors");
    offsets_.reserve(tensors);
    result_.tensors.reserve(tensors);
    for (uint64_t i = 0; i < tensors; ++i) ReadTensor();
    PlaceTensors();
    return std::move(result_);
  }

 private:
  struct Counts {
    uint64_t tensors, keys;
  };

  Counts ReadHeader() {
    const uint32_t magic = in_.Read<uint32_t>("the magic");
    const bool swapped = magic == 0x47475546;  // "FUGG"
    if (magic != 0x46554747 && !swapped)
      throw Error("[gguf] {}: not a GGUF file (magic {:#010x})", path_, magic);
    const uint32_t version = in_.Read<uint32_t>("the version");
    // A big-endian file can have the magic in this byte order too; its version 1, 2 or 3 is then in the top
    // byte.
    if (swapped || (version != 0 && (version & 0xFFFFFF) == 0)) {
      throw Error("[gguf] {}: unsupported version: the file is big-endian (version reads as {:#010x})", path_,
                  version);
    }
    if (version != 2 && version != 3) {
      throw Error("[gguf] {}: unsupported version {} (versions 2 and 3 are supported)", path_, version);
    }
    result_.version = version;
    const uint64_t tensors = in_.Read<uint64_t>("the number of tensors");
    const uint64_t keys = in_.Read<uint64_t>("the number of keys");
    if (tensors > limits::kMaxGgufTensors)
      in_.Fail("{} tensors, the limit is {}", tensors, limits::kMaxGgufTensors);
    if (keys > limits::kMaxGgufKeys) in_.Fail("{} keys, the limit is {}", keys, limits::kMaxGgufKeys);
    in_.NeedItems(keys, kLeastKeyBytes, "keys");
    in_.NeedItems(tensors, kLeastTensorBytes, "tensors");
    return {tensors, keys};
  }

  void ReadKey() {
    const std::string_view key = in_.String("a key");
    if (key.empty()) in_.Fail("empty key");
    if (key.size() > limits::kMaxGgufKeyBytes) {
      in_.Fail("a key of {} bytes, the limit is {}", key.size(), limits::kMaxGgufKeyBytes);
    }
    if (!IsUtf8(key)) in_.Fail("key '{}' is not UTF-8", Printable(key));
    key_ = key;
    const uint32_t type = in_.Read<uint32_t>("the type of a value");
    GgufValue value = ReadValue(type, 0);
    if (key == "general.alignment") SetAlignment(type, value);
    if (!result_.metadata.emplace(key, std::move(value)).second)
      in_.Fail("duplicate key '{}'", Printable(key));
  }

  void SetAlignment(uint32_t type, const GgufValue& value) {
    if (type != kU32) in_.Fail("general.alignment has type {}, expected {} (uint32)", type, uint32_t{kU32});
    const auto alignment = static_cast<uint64_t>(std::get<int64_t>(value));
    if (alignment < 8 || alignment > limits::kMaxGgufAlignment || !std::has_single_bit(alignment)) {
      in_.Fail("general.alignment is {}, expected a power of two from 8 to {}", alignment,
               limits::kMaxGgufAlignment);
    }
    alignment_ = alignment;
  }

  GgufValue ReadValue(uint32_t type, int depth) {
    constexpr std::string_view kWhat = "a value";
    switch (type) {
      case kU8:
        return int64_t{in_.Read<uint8_t>(kWhat)};
      case kI8:
        return int64_t{in_.Read<int8_t>(kWhat)};
      case kU16:
        return int64_t{in_.Read<uint16_t>(kWhat)};
      case kI16:
        return int64_t{in_.Read<int16_t>(kWhat)};
      case kU32:
        return int64_t{in_.Read<uint32_t>(kWhat)};
      case kI32:
        return int64_t{in_.Read<int32_t>(kWhat)};
      case kI64:
        return in_.Read<int64_t>(kWhat);
      case kU64:
        return in_.Read<uint64_t>(kWhat);
      case kF32:
        return double{in_.Read<float>(kWhat)};
      case kF64:
        return in_.Read<double>(kWhat);
      case kBool:
        return ReadBool();
      case kString:
        return std::string(in_.String("a string"));
      case kArray:
        return ReadArray(depth + 1);
      default:
        in_.Fail("key '{}' has the invalid value type {}", Printable(key_), type);
    }
  }

  bool ReadBool() {
    const uint8_t value = in_.Read<uint8_t>("a bool");
    if (value > 1) in_.Fail("key '{}': a bool is {}", Printable(key_), value);
    return value != 0;
  }

  std::shared_ptr<const GgufArray> ReadArray(int depth) {
    if (depth > limits::kMaxGgufArrayDepth) {
      in_.Fail("key '{}': arrays nested more than {} deep", Printable(key_), limits::kMaxGgufArrayDepth);
    }
    const uint32_t type = in_.Read<uint32_t>("the element type of an array");
    const uint64_t count = in_.Read<uint64_t>("the length of an array");
    if (type >= kLeastBytes.size()) {
      in_.Fail("key '{}': invalid element type {} of an array", Printable(key_), type);
    }
    in_.NeedItems(count, kLeastBytes[type], "array elements");
    if (count > kMostArrayElements - array_elements_) {
      in_.Fail("key '{}': more than {} array elements in one file", Printable(key_), kMostArrayElements);
    }
    array_elements_ += count;
    auto array = std::make_shared<GgufArray>();
    array->type = type;
    switch (type) {
      case kF32:
      case kF64:
        Fill<double>(*array, count, depth);
        break;
      case kU64:
        Fill<uint64_t>(*array, count, depth);
        break;
      case kBool:
        Fill<bool>(*array, count, depth);
        break;
      case kString:
        Fill<std::string>(*array, count, depth);
        break;
      case kArray: {
        std::vector<GgufValue> items;
        items.reserve(count);
        for (uint64_t i = 0; i < count; ++i) items.emplace_back(ReadArray(depth + 1));
        array->items = std::move(items);
        break;
      }
      default:
        Fill<int64_t>(*array, count, depth);
        break;
    }
    return array;
  }

  // PRECONDITION: `count` elements fit in the rest of the file.
  template <typename T>
  void Fill(GgufArray& array, uint64_t count, int depth) {
    std::vector<T> items;
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) items.push_back(std::get<T>(ReadValue(array.type, depth)));
    array.items = std::move(items);
  }

  void ReadTensor() {
    StoredTensor tensor;
    const std::string_view name = in_.String("a tensor's name");
    if (name.empty()) in_.Fail("a tensor without a name");
    if (name.size() > limits::kMaxGgufTensorNameBytes) {
      in_.Fail("a tensor's name has {} bytes, the limit is {}", name.size(), limits::kMaxGgufTensorNameBytes);
    }
    if (!IsUtf8(name)) in_.Fail("tensor '{}': the name is not UTF-8", Printable(name));
    if (!names_.insert(name).second) in_.Fail("duplicate tensor '{}'", Printable(name));
    tensor.name = name;
    tensor.shape = ReadShape(name);
    const DType type = ReadType(name);
    if (tensor.shape.back() % Info(type).block_elements != 0) {
      in_.Fail("tensor '{}': rows of {} values are not a multiple of the {} of a {} block", Printable(name),
               tensor.shape.back(), Info(type).block_elements, Info(type).name);
    }
    const auto extent = ExtentOf(type, tensor.shape);
    if (!extent) in_.Fail("tensor '{}': its size overflows", Printable(name));
    const uint64_t offset = in_.Read<uint64_t>("a tensor's offset");
    if (offset % alignment_ != 0) FailUnaligned(name, offset);
    tensor.view = TensorView(nullptr, type, extent->rows, extent->cols);
    offsets_.push_back(offset);
    result_.tensors.push_back(std::move(tensor));
  }

  std::vector<int64_t> ReadShape(std::string_view name) {
    const uint32_t dimensions = in_.Read<uint32_t>("a tensor's number of dimensions");
    if (dimensions < 1 || dimensions > 4) {
      in_.Fail("tensor '{}' has {} dimensions, expected 1 to 4", Printable(name), dimensions);
    }
    std::vector<int64_t> shape(dimensions);
    for (int64_t& dimension : shape) {
      dimension = in_.Read<int64_t>("a tensor's dimension");
      if (dimension <= 0) in_.Fail("tensor '{}' has the dimension {}", Printable(name), dimension);
    }
    std::reverse(shape.begin(), shape.end());  // the file stores the innermost dimension first
    return shape;
  }

  DType ReadType(std::string_view name) {
    const uint32_t number = in_.Read<uint32_t>("a tensor's type");
    const auto found = std::ranges::find(kGgmlTypes, number, &GgmlType::number);
    if (found == kGgmlTypes.end()) in_.Fail("tensor '{}' has the unknown type {}", Printable(name), number);
    if (!found->type) {
      in_.Fail("tensor '{}' has the unsupported type {} ({}); take a file of {}", Printable(name), number,
               found->name, SupportedTypes());
    }
    return *found->type;
  }

  [[noreturn]] void FailUnaligned(std::string_view name, uint64_t offset) const {
    throw Error("[gguf] {}: tensor '{}': offset {} is not a multiple of the alignment {}", path_,
                Printable(name), offset, alignment_);
  }

  // Turns offsets into pointers. A file without tensors may end before the start of the data section.
  void PlaceTensors() {
    if (result_.tensors.empty()) return;
    const uint64_t start = (in_.position() + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t available = start <= bytes_.size() ? bytes_.size() - start : 0;
    for (size_t i = 0; i < offsets_.size(); ++i) {
      StoredTensor& tensor = result_.tensors[i];
      const uint64_t size = SizeOf(tensor);
      if (offsets_[i] > available || size > available - offsets_[i]) {
        throw Error("[gguf] {}: tensor '{}': offset {} and {} bytes go past the end of the data ({} bytes)",
                    path_, Printable(tensor.name), offsets_[i], size, available);
      }
      tensor.view.data = bytes_.data() + start + offsets_[i];
    }
    RefuseOverlaps();
  }

  void RefuseOverlaps() const {
    std::vector<size_t> order(offsets_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [&](size_t i) { return offsets_[i]; });
    for (size_t k = 1; k < order.size(); ++k) {
      const size_t a = order[k - 1], b = order[k];
      if (offsets_[a] + SizeOf(result_.tensors[a]) > offsets_[b]) {
        throw Error("[gguf] {}: tensors '{}' and '{}' overlap at offset {}", path_,
                    Printable(result_.tensors[a].name), Printable(result_.tensors[b].name), offsets_[b]);
      }
    }
  }

  static uint64_t SizeOf(const StoredTensor& tensor) {
    return static_cast<uint64_t>(tensor.view.stride * tensor.view.rows);
  }

  std::span<const std::byte> bytes_;
  const std::string& path_;
  GgufCursor in_;
  ParsedGguf result_;
  std::vector<uint64_t> offsets_;               // of the tensors, from the start of the data section
  std::unordered_set<std::string_view> names_;  // of the tensors; views into the file
  std::string_view key_;                        // the current key, for messages
  uint64_t alignment_ = 32;
  uint64_t array_elements_ = 0;
};

}  // namespace

ParsedGguf ParseGguf(std::span<const std::byte> bytes, const std::string& path) {
  return Parser(bytes, path).Parse();
}

}  // namespace coppice
