#include "formats/hf_mxfp4.h"

#include <fmt/ranges.h>

#include <map>
#include <string_view>

#include "base/error.h"
#include "formats/printable.h"
#include "formats/quant_blocks.h"

namespace coppice {

namespace {

constexpr int64_t kCodes = 32;      // of a block
constexpr int64_t kCodeBytes = 16;  // the same, two in a byte
constexpr std::string_view kBlocks = "_blocks";

// GGUF has code i in the low half of byte i, and code i + 16 in its high half.
BlockMXFP4 BlockOf(const std::byte* codes, std::byte exponent) {
  const auto code = [&](int64_t i) {
    const auto pair = static_cast<unsigned>(codes[i / 2]);
    return i % 2 == 0 ? pair & 15 : pair >> 4;
  };
  BlockMXFP4 block;
  block.e = static_cast<uint8_t>(exponent);
  for (int64_t i = 0; i < kCodeBytes; ++i)
    block.q[i] = static_cast<uint8_t>(code(i) | code(i + kCodeBytes) << 4);
  return block;
}

StoredTensor Join(std::string name, const ByteTensor& blocks, const ByteTensor& scales,
                  std::vector<Tensor>& copies) {
  StoredTensor joined{.name = std::move(name), .shape = scales.shape, .view = {}};
  const int64_t cols = joined.shape.back() *= kCodes;
  const int64_t of_row = cols / kCodes;
  const auto count = static_cast<int64_t>(scales.bytes.size());
  Tensor& copy = copies.emplace_back(DType::kMXFP4, of_row == 0 ? 0 : count / of_row, cols);
  auto* to = reinterpret_cast<BlockMXFP4*>(copy.mutable_view().data);
  for (int64_t i = 0; i < count; ++i)
    to[i] = BlockOf(blocks.bytes.data() + i * kCodeBytes, scales.bytes[static_cast<size_t>(i)]);
  joined.view = copy.view();
  return joined;
}

}  // namespace

std::vector<StoredTensor> JoinMxfp4(const std::vector<ByteTensor>& bytes, const std::string& path,
                                    std::vector<Tensor>& copies) {
  std::map<std::string_view, const ByteTensor*> by_name;
  for (const ByteTensor& t : bytes) by_name.emplace(t.name, &t);
  std::vector<StoredTensor> joined;
  for (const ByteTensor& blocks : bytes) {
    if (!blocks.name.ends_with(kBlocks)) continue;
    const std::string name = blocks.name.substr(0, blocks.name.size() - kBlocks.size());
    const std::string scales_name = name + "_scales";
    const auto found = by_name.find(scales_name);
    if (found == by_name.end()) continue;
    const ByteTensor& scales = *found->second;
    std::vector<int64_t> wanted = scales.shape;
    wanted.push_back(kCodeBytes);
    if (scales.shape.size() < 2 || blocks.shape != wanted) {
      throw Error("[safetensors] {}: tensors '{}' [{}] and '{}' [{}] do not fit each other", path,
                  Printable(blocks.name), fmt::join(blocks.shape, ", "), Printable(scales_name),
                  fmt::join(scales.shape, ", "));
    }
    joined.push_back(Join(name, blocks, scales, copies));
  }
  return joined;
}

}  // namespace coppice
