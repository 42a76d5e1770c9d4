// A file of the document cache or of a saved slot. Checksums are corrected first: a fuzzer cannot guess them,
// but whoever can write to the folder can compute them.
#include <cstring>

#include "base/checksum.h"
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "model/prefix_file.h"

namespace coppice {
namespace {

// Layer 1 has a state in place of keys.
PrefixFormat Format() {
  PrefixFormat format = {
      .fingerprint = {11, 22}, .cache_type = DType::kBF16, .key_widths = {4, 0, 4}, .hidden = 2, .vocab = 50};
  format.states.resize(3);
  format.states[1] = {
      .taps = 3, .channels = 2, .key_heads = 1, .value_heads = 1, .key_dim = 2, .value_dim = 3};
  return format;
}

Tensor Zeros(DType type, int64_t rows, int64_t cols) {
  Tensor tensor(type, rows, cols);
  std::memset(tensor.mutable_view().data, 0, static_cast<size_t>(tensor.bytes()));
  return tensor;
}

const FuzzFolder& Folder() {
  static const FuzzFolder folder;
  return folder;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const LayerPoint point : {LayerPoint{1, false}, LayerPoint{1, true}, LayerPoint{3, false}}) {
    const PrefixFormat f = Format();
    PrefixState state;
    state.tokens = {1, 2, 3, 49, 0};
    state.point = point;
    for (int l = 0; l < LayersWithKeys(point); ++l)
      state.layers.push_back({Zeros(f.cache_type, 5, f.key_widths[static_cast<size_t>(l)]),
                              Zeros(f.cache_type, 5, f.key_widths[static_cast<size_t>(l)])});
    if (point.layer < f.layers()) state.hidden = Zeros(DType::kF32, 5, f.hidden);
    for (const int64_t rows : {2, 5}) {
      if (LayersWithKeys(point) < 2) break;
      PrefixState::Checkpoint checkpoint{rows, std::vector<RecurrentSnapshot>(state.layers.size())};
      checkpoint.layers[1] = {Zeros(DType::kF32, 2, 2), Zeros(DType::kF32, 2, 3)};
      state.checkpoints.push_back(std::make_shared<const PrefixState::Checkpoint>(std::move(checkpoint)));
    }
    const std::string path = Folder().path() + "/seed.prefix";
    WritePrefixFile(state, f, path);
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

// The head is 96 bytes, with flags at byte 12, the point's layer at 32, and the numbers of tokens, sections
// and checkpoints at 48, 56 and 72 (prefix_file.cpp). Behind it come a width for each layer below the point,
// the rows of each checkpoint, a checksum for each section and one of all this, then the tokens' section.
void CorrectChecksums(std::string& file) {
  constexpr size_t kHead = 96;
  uint64_t tokens = 0, sections = 0, checkpoints = 0;
  uint32_t flags = 0, layer = 0;
  if (file.size() < kHead) return;
  std::memcpy(&flags, file.data() + 12, 4);
  std::memcpy(&layer, file.data() + 32, 4);
  std::memcpy(&tokens, file.data() + 48, 8);
  std::memcpy(&sections, file.data() + 56, 8);
  std::memcpy(&checkpoints, file.data() + 72, 8);
  if (sections == 0 || sections > 64 || tokens > 64 || layer > 64 || checkpoints > 64) return;
  const size_t checksums = kHead + 8 * (layer + (flags & 1) + checkpoints);
  const size_t start = checksums + sections * 8 + 8;
  if (file.size() < start + tokens * 4) return;
  const uint64_t of_tokens = ChecksumOf(std::as_bytes(std::span(file.data() + start, tokens * 4)));
  std::memcpy(file.data() + checksums, &of_tokens, 8);
  const uint64_t of_head = ChecksumOf(std::as_bytes(std::span(file.data(), start - 8)));
  std::memcpy(file.data() + start - 8, &of_head, 8);
}

bool Run(std::string_view input) {
  std::string file(input);
  CorrectChecksums(file);
  const std::string path = Folder().Write("x.prefix", file);
  const bool head = Accepts([&] { ReadPrefixHead(path, Format()); });
  return Accepts([&] { ReadPrefixFile(path, Format(), 1 << 20); }) && head;
}

}  // namespace

FuzzTarget PrefixTarget() { return {"prefix", Seeds, {"copppref"}, Run}; }

}  // namespace coppice
