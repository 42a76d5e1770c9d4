#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "formats/extent.h"
#include "formats/json.h"
#include "formats/printable.h"

namespace coppice {
namespace {

using nlohmann::json;

struct StoredType {
  std::string_view name;
  int64_t bits;
  std::optional<DType> type;  // nullopt: known, but not supported for weights
};
constexpr auto kTypes = std::to_array<StoredType>({
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I8", 8, {}},
    {"U8", 8, {}},
    {"BOOL", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
    {"C64", 64, {}},
});

// One header entry, validated on its own.
struct Entry {
  std::string_view name;
  std::optional<DType> type;
  bool is_bytes = false;  // U8
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  ParsedSafetensors Read() {
    const json header = ReadHeader();
    ParsedSafetensors result;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        result.metadata = ReadMetadata(value);
      } else {
        entries.push_back(ReadEntry(name, value));
      }
    }
    if (entries.size() > static_cast<size_t>(limits::kMaxSafetensorsTensors)) {
      throw Error("[safetensors] {}: {} tensors, the limit is {}", path_, entries.size(),
                  limits::kMaxSafetensorsTensors);
    }
    // An empty tensor starts where the next tensor starts. Sorting by end too puts it first.
    std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
    CheckCover(entries);
    for (Entry& entry : entries) Add(std::move(entry), result);
    return result;
  }

 private:
  // Reads the header and reduces bytes_ to the data.
  json ReadHeader() {
    constexpr uint64_t kPrefix = sizeof(uint64_t);
    if (bytes_.size() < kPrefix) {
      throw Error("[safetensors] {}: {} bytes, too short for the length of a header", path_, bytes_.size());
    }
    uint64_t length;
    std::memcpy(&length, bytes_.data(), kPrefix);
    if (length == 0 || length > limits::kMaxSafetensorsHeaderBytes || length > bytes_.size() - kPrefix) {
      throw Error("[safetensors] {}: header length {}, expected 1 to {} in a file of {} bytes", path_, length,
                  limits::kMaxSafetensorsHeaderBytes, bytes_.size());
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + kPrefix), length);
    if (text.front() != '{') throw Error("[safetensors] {}: the header does not begin with '{{'", path_);
    json header = ParseJson(text, path_);
    bytes_ = bytes_.subspan(kPrefix + length);
    return header;
  }

  std::map<std::string, std::string> ReadMetadata(const json& value) const {
    const bool strings =
        value.is_object() && std::ranges::all_of(value, [](const json& item) { return item.is_string(); });
    if (!strings) throw Error("[safetensors] {}: __metadata__ is not an object of strings", path_);
    return value.get<std::map<std::string, std::string>>();
  }

  [[noreturn]] void Fail(std::string_view name, std::string_view cause) const {
    throw Error("[safetensors] {}: tensor '{}': {}", path_, Printable(name), cause);
  }

  static const json* Field(const json& value, const char* key) {
    const auto it = value.find(key);
    return it == value.end() ? nullptr : &*it;
  }

  Entry ReadEntry(const std::string& name, const json& value) const {
    if (name.empty()) throw Error("[safetensors] {}: a tensor without a name", path_);
    if (!value.is_object()) Fail(name, "not an object");
    Entry entry;
    entry.name = name;

    const json* dtype = Field(value, "dtype");
    if (dtype == nullptr || !dtype->is_string()) Fail(name, "no dtype");
    const auto& type_name = dtype->get_ref<const std::string&>();
    const auto type = std::ranges::find(kTypes, type_name, &StoredType::name);
    if (type == kTypes.end()) Fail(name, fmt::format("unknown dtype '{}'", Printable(type_name)));
    entry.type = type->type;
    entry.is_bytes = type_name == "U8";

    const json* offsets = Field(value, "data_offsets");
    if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2 ||
        !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
      Fail(name, "data_offsets is not two integers");
    }
    entry.begin = (*offsets)[0].get<uint64_t>();
    entry.end = (*offsets)[1].get<uint64_t>();
    if (entry.begin > entry.end || entry.end > bytes_.size()) {
      Fail(name,
           fmt::format("data_offsets [{}, {}] in {} bytes of data", entry.begin, entry.end, bytes_.size()));
    }
    entry.shape = ReadShape(name, Field(value, "shape"));
    const auto size = SizeOf(entry.shape, type->bits);
    if (!size) Fail(name, "its size overflows or is no whole number of bytes");
    if (*size != entry.end - entry.begin) {
      Fail(name, fmt::format("its shape needs {} bytes of {}, data_offsets give {}", *size, type->name,
                             entry.end - entry.begin));
    }
    return entry;
  }

  std::vector<int64_t> ReadShape(const std::string& name, const json* shape) const {
    if (shape == nullptr || !shape->is_array()) Fail(name, "no shape");
    if (shape->size() > 8) Fail(name, fmt::format("{} dimensions, expected at most 8", shape->size()));
    std::vector<int64_t> dimensions;
    for (const json& item : *shape) {
      if (!item.is_number_unsigned() || item.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        Fail(name, "a dimension is no integer from 0 to 2^63 - 1");
      }
      dimensions.push_back(item.get<int64_t>());
    }
    return dimensions;
  }

  static std::optional<uint64_t> SizeOf(const std::vector<int64_t>& shape, int64_t bits) {
    std::optional<int64_t> product = bits;
    for (const int64_t dimension : shape) {
      product = CheckedMul(*product, dimension);
      if (!product) return std::nullopt;
    }
    if (*product % 8 != 0) return std::nullopt;
    return static_cast<uint64_t>(*product / 8);
  }

  // PRECONDITION: `entries` ascend by begin.
  void CheckCover(const std::vector<Entry>& entries) const {
    uint64_t covered = 0;
    for (const Entry& entry : entries) {
      if (entry.begin < covered) {
        Fail(entry.name, fmt::format("begins at {} and overlaps data up to {}", entry.begin, covered));
      }
      if (entry.begin > covered) {
        Fail(entry.name, fmt::format("begins at {} and leaves a hole from {}", entry.begin, covered));
      }
      covered = entry.end;
    }
    if (covered != bytes_.size()) {
      throw Error("[safetensors] {}: {} bytes of data, tensors cover {}", path_, bytes_.size(), covered);
    }
  }

  void Add(Entry entry, ParsedSafetensors& result) const {
    if (!entry.type) {
      result.skipped.emplace_back(entry.name);
      if (entry.is_bytes) {
        result.bytes.push_back({std::string(entry.name), std::move(entry.shape),
                                bytes_.subspan(entry.begin, entry.end - entry.begin)});
      }
      return;
    }
    const auto extent = ExtentOf(*entry.type, entry.shape);
    if (!extent) Fail(entry.name, "its size overflows");
    StoredTensor tensor{.name = std::string(entry.name), .shape = std::move(entry.shape), .view = {}};
    const std::byte* data = bytes_.data() + entry.begin;
    if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(Info(*entry.type).block_bytes) == 0) {
      tensor.view = TensorView(data, *entry.type, extent->rows, extent->cols);
    } else {
      Tensor& copy = result.copies.emplace_back(*entry.type, extent->rows, extent->cols);
      if (extent->bytes > 0) std::memcpy(copy.mutable_view().data, data, static_cast<size_t>(extent->bytes));
      tensor.view = copy.view();
    }
    result.tensors.push_back(std::move(tensor));
  }

  std::span<const std::byte> bytes_;
  const std::string& path_;
};

}  // namespace

ParsedSafetensors ParseSafetensors(std::span<const std::byte> bytes, const std::string& path) {
  return Reader(bytes, path).Read();
}

}  // namespace coppice
