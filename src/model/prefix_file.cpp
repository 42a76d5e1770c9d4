#include "model/prefix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/new_file.h"

namespace coppice {

namespace {

static_assert(std::endian::native == std::endian::little, "the file's numbers are read as they lie");

constexpr char kMagic[8] = {'c', 'o', 'p', 'p', 'p', 'r', 'e', 'f'};
constexpr uint32_t kVersion = 4;  // 2: one key width for all layers; 3: no states of layers
constexpr uint64_t kMostCheckpoints = 1 << 16;
constexpr uint32_t kAfterAttention = 1;
constexpr uint32_t kComplete = 2;
constexpr size_t kPiece =
    8 << 20;  // read or written at once: some milliseconds from memory, 0.1 s from a slow disk

// Has no padding: the file contains its bytes.
struct Head {
  char magic[8];
  uint32_t version;
  uint32_t flags;
  Fingerprint fingerprint;
  uint32_t point_layer;
  uint32_t cache_type;  // a DType of tensor/dtype.h
  uint64_t hidden;      // 0 if no hidden states are stored
  uint64_t tokens;
  uint64_t sections;
  uint64_t file_bytes;
  uint64_t checkpoints;
  PrefixOwner owner;
};
static_assert(sizeof(Head) == 96 && sizeof(Fingerprint) == 16);

template <typename T>
std::span<const std::byte> BytesOfVector(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::span<const std::byte> BytesOfTensor(const Tensor& tensor) {
  return {tensor.view().RowBytes(0), static_cast<size_t>(tensor.bytes())};
}

// What the head's checksum covers.
std::vector<std::byte> BytesOfHead(const Head& head, const std::vector<uint64_t>& numbers,
                                   const std::vector<uint64_t>& checksums) {
  std::vector<std::byte> bytes;
  for (const auto part :
       {std::as_bytes(std::span(&head, 1)), BytesOfVector(numbers), BytesOfVector(checksums)})
    bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

// Visits the sections of a state in their order; a layer's keys and values are two sections.
template <typename Visit>
void VisitSections(const PrefixState& state, Visit&& visit) {
  visit(BytesOfVector(state.tokens));
  for (const PrefixState::Layer& layer : state.layers) {
    visit(BytesOfTensor(layer.keys));
    visit(BytesOfTensor(layer.values));
  }
  if (state.hidden.rows() > 0) visit(BytesOfTensor(state.hidden));
  for (const auto& checkpoint : state.checkpoints) {
    for (const RecurrentSnapshot& layer : checkpoint->layers) {
      if (layer.bytes() == 0) continue;
      visit(BytesOfTensor(layer.last));
      visit(BytesOfTensor(layer.state));
    }
  }
}

class PrefixReader {
 public:
  PrefixReader(const std::string& path, const PrefixFormat& format, const RunControl& control = {})
      : path_(path), format_(format), control_(control) {
    // O_NONBLOCK: else opening a pipe would wait for a writer before this function could refuse it.
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) throw Error("[prefix] {}: cannot open: {}", path, std::strerror(errno));
    try {
      ReadHead();
    } catch (...) {
      close(fd_);
      throw;
    }
  }
  ~PrefixReader() { close(fd_); }
  PrefixReader(const PrefixReader&) = delete;
  PrefixReader& operator=(const PrefixReader&) = delete;

  const PrefixOwner& owner() const { return head_.owner; }
  LayerPoint point() const { return point_; }
  bool complete() const { return (head_.flags & kComplete) != 0; }
  int64_t file_bytes() const { return static_cast<int64_t>(head_.file_bytes); }
  std::optional<std::vector<int64_t>> checkpoints() const {
    if (LayersWithStates() == 0) return std::nullopt;
    return std::vector<int64_t>(checkpoints_.begin(), checkpoints_.end());
  }
  int64_t SectionBytes() const;  // of all sections, which is also the size of the state in memory

  // These read the sections, in their order.
  std::vector<int32_t> Tokens() {
    std::vector<int32_t> tokens(static_cast<size_t>(head_.tokens));
    Section(std::as_writable_bytes(std::span(tokens)), "tokens");
    for (const int32_t id : tokens) {
      if (id < 0 || id >= format_.vocab)
        throw Error("[prefix] {}: token {} is not in the vocabulary of {}", path_, id, format_.vocab);
    }
    return tokens;
  }
  Tensor Matrix(DType type, int64_t cols, const char* what) {
    return Matrix(type, static_cast<int64_t>(head_.tokens), cols, what);
  }
  Tensor Matrix(DType type, int64_t rows, int64_t cols, const char* what) {
    Tensor tensor(type, rows, cols);
    Section({tensor.mutable_view().RowBytes(0), static_cast<size_t>(tensor.bytes())}, what);
    return tensor;
  }

 private:
  void ReadHead();
  void CheckHead();
  void CheckPoint();
  void CheckWidths(const std::vector<uint64_t>& widths);
  void CheckCheckpoints() const;
  int LayersWithStates() const;
  void CheckLength(int64_t stored_bytes);
  void Read(std::span<std::byte> to);
  void Section(std::span<std::byte> to, const char* what);

  std::string path_;
  const PrefixFormat& format_;
  const RunControl control_;
  int fd_ = -1;
  Head head_{};
  LayerPoint point_;
  std::vector<uint64_t> checkpoints_;
  std::vector<uint64_t> checksums_;
  size_t section_ = 0;
};

void PrefixReader::Read(std::span<std::byte> to) {
  while (!to.empty()) {
    control_.Pause();
    const ssize_t got = read(fd_, to.data(), std::min(to.size(), kPiece));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error("[prefix] {}: cannot read: {}", path_, std::strerror(errno));
    if (got == 0) throw Error("[prefix] {}: ends early: it was cut while it was read", path_);
    to = to.subspan(static_cast<size_t>(got));
  }
}

void PrefixReader::Section(std::span<std::byte> to, const char* what) {
  COPPICE_CHECK(section_ < checksums_.size());
  Read(to);
  if (ChecksumOf(to) != checksums_[section_++]) {
    throw Error("[prefix] {}: damaged: the checksum of its {} does not match", path_, what);
  }
}

int PrefixReader::LayersWithStates() const {
  int count = 0;
  for (int l = 0; l < LayersWithKeys(point_); ++l) count += format_.state(l).taps > 0 ? 1 : 0;
  return count;
}

// No product here overflows, because CheckHead limits the fields: tokens <= 2^24, layers <= 2^10, widths <=
// 2^24, checkpoints <= 2^16; and a state comes from the engine's own sizes.
int64_t PrefixReader::SectionBytes() const {
  const auto tokens = static_cast<int64_t>(head_.tokens);
  auto row = static_cast<int64_t>(head_.hidden * sizeof(float) + sizeof(int32_t));
  for (int l = 0; l < LayersWithKeys(point_); ++l)
    row += 2 * BytesOf(format_.cache_type, format_.key_widths[static_cast<size_t>(l)]);
  int64_t states = 0;
  for (int l = 0; l < LayersWithKeys(point_); ++l)
    states += format_.state(l).state_values() * int64_t{sizeof(float)};
  return tokens * row + static_cast<int64_t>(head_.checkpoints) * states;
}

void PrefixReader::ReadHead() {
  struct stat info {};
  if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) throw Error("[prefix] {}: not a regular file", path_);
  if (info.st_size < static_cast<off_t>(sizeof(Head))) {
    throw Error("[prefix] {}: {} bytes are too few for a head of {}", path_, info.st_size, sizeof(Head));
  }
  Read(std::as_writable_bytes(std::span(&head_, 1)));
  CheckHead();
  CheckPoint();
  std::vector<uint64_t> widths(static_cast<size_t>(LayersWithKeys(point_)));
  Read(std::as_writable_bytes(std::span(widths)));
  CheckWidths(widths);
  checkpoints_.resize(static_cast<size_t>(head_.checkpoints));
  Read(std::as_writable_bytes(std::span(checkpoints_)));
  CheckCheckpoints();
  CheckLength(info.st_size);
  checksums_.resize(static_cast<size_t>(head_.sections));
  Read(std::as_writable_bytes(std::span(checksums_)));
  uint64_t of_head = 0;
  Read(std::as_writable_bytes(std::span(&of_head, 1)));
  widths.insert(widths.end(), checkpoints_.begin(), checkpoints_.end());
  const std::vector<std::byte> bytes = BytesOfHead(head_, widths, checksums_);
  if (ChecksumOf(bytes) != of_head)
    throw Error("[prefix] {}: damaged: the checksum of its head does not match", path_);
}

void PrefixReader::CheckHead() {
  if (std::memcmp(head_.magic, kMagic, sizeof(kMagic)) != 0) {
    throw Error("[prefix] {}: not a file of a prefix: it does not begin as one", path_);
  }
  if (head_.version != kVersion) {
    throw Error("[prefix] {}: of version {} of this format, and this program reads version {} alone: {}",
                path_, head_.version, kVersion,
                head_.version < kVersion ? "an older program wrote it, and its prompt must be read again"
                                         : "a newer program wrote it");
  }
  if (head_.fingerprint != format_.fingerprint) {
    throw Error(
        "[prefix] {}: of another model, or of another backend, ISA, arithmetic or cache type: its states are "
        "not this "
        "engine's",
        path_);
  }
  if (head_.cache_type != static_cast<uint32_t>(format_.cache_type)) {
    throw Error("[prefix] {}: keys of type {}, the engine's are of type {}", path_, head_.cache_type,
                static_cast<uint32_t>(format_.cache_type));
  }
  if (head_.tokens == 0 || head_.tokens > static_cast<uint64_t>(limits::kMaxContext))
    throw Error("[prefix] {}: {} tokens; it may hold 1 to {}", path_, head_.tokens, limits::kMaxContext);
}

void PrefixReader::CheckPoint() {
  const auto layers = static_cast<uint32_t>(format_.layers());
  const bool after = (head_.flags & kAfterAttention) != 0;
  if (head_.flags > (kAfterAttention | kComplete) || head_.point_layer > layers ||
      (head_.point_layer == layers && after) || (head_.point_layer == 0 && !after)) {
    throw Error("[prefix] {}: its states are of layer {} (flags {}), but the model has {} layers", path_,
                head_.point_layer, head_.flags, layers);
  }
  point_ = {static_cast<int>(head_.point_layer), after};
  const bool parked = head_.point_layer < layers;
  if (head_.hidden != (parked ? static_cast<uint64_t>(format_.hidden) : 0)) {
    throw Error("[prefix] {}: hidden states of width {}, the model's are {} wide", path_, head_.hidden,
                format_.hidden);
  }
  const auto states = static_cast<uint64_t>(2 * LayersWithStates());
  if (head_.checkpoints > kMostCheckpoints || (states == 0 && head_.checkpoints > 0)) {
    throw Error("[prefix] {}: {} checkpoints of {} layers with states", path_, head_.checkpoints, states / 2);
  }
  const auto sections =
      static_cast<uint64_t>(1 + 2 * LayersWithKeys(point_) + (parked ? 1 : 0)) + head_.checkpoints * states;
  if (head_.sections != sections)
    throw Error("[prefix] {}: {} sections, its states make {}", path_, head_.sections, sections);
}

void PrefixReader::CheckWidths(const std::vector<uint64_t>& widths) {
  for (size_t l = 0; l < widths.size(); ++l) {
    if (widths[l] == static_cast<uint64_t>(format_.key_widths[l])) continue;
    throw Error("[prefix] {}: keys of width {} in layer {}, the engine's are {} wide", path_, widths[l], l,
                format_.key_widths[l]);
  }
}

void PrefixReader::CheckCheckpoints() const {
  uint64_t before = 0;
  for (const uint64_t rows : checkpoints_) {
    if (rows <= before || rows > head_.tokens) {
      throw Error("[prefix] {}: a checkpoint behind {} of {} tokens, after one behind {}", path_, rows,
                  head_.tokens, before);
    }
    before = rows;
  }
}

void PrefixReader::CheckLength(int64_t stored_bytes) {
  const uint64_t numbers =
      static_cast<uint64_t>(LayersWithKeys(point_)) + head_.checkpoints + head_.sections + 1;
  const auto whole = static_cast<uint64_t>(SectionBytes()) + sizeof(Head) + numbers * sizeof(uint64_t);
  if (head_.file_bytes != whole || static_cast<uint64_t>(stored_bytes) != whole) {
    throw Error("[prefix] {}: {} bytes long, by its head {}, by its contents {}: it was cut or changed",
                path_, stored_bytes, head_.file_bytes, whole);
  }
}

}  // namespace

void WritePrefixFile(const PrefixState& state, const PrefixFormat& format, const std::string& path,
                     const RunControl& control) {
  std::vector<uint64_t> checksums;
  uint64_t bytes = 0;
  VisitSections(state, [&](std::span<const std::byte> section) {
    control.Pause();
    checksums.push_back(ChecksumOf(section));
    bytes += section.size();
  });
  std::vector<uint64_t> numbers(format.key_widths.begin(),
                                format.key_widths.begin() + LayersWithKeys(state.point));
  for (const auto& checkpoint : state.checkpoints) numbers.push_back(static_cast<uint64_t>(checkpoint->rows));
  Head head{.magic = {},
            .version = kVersion,
            .flags = (state.point.after_attention ? kAfterAttention : 0) | (state.complete ? kComplete : 0),
            .fingerprint = format.fingerprint,
            .point_layer = static_cast<uint32_t>(state.point.layer),
            .cache_type = static_cast<uint32_t>(format.cache_type),
            .hidden = static_cast<uint64_t>(state.hidden.cols()),
            .tokens = state.tokens.size(),
            .sections = checksums.size(),
            .file_bytes = sizeof(Head) + (numbers.size() + checksums.size() + 1) * sizeof(uint64_t) + bytes,
            .checkpoints = state.checkpoints.size(),
            .owner = state.owner};
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  const std::vector<std::byte> start = BytesOfHead(head, numbers, checksums);
  const uint64_t of_head = ChecksumOf(start);
  NewFile file(path, "prefix", NewFile::Mode::kOwnerOnly);  // the tokens reveal the prompt's text
  file.Append(start);
  file.Append(std::as_bytes(std::span(&of_head, 1)));
  VisitSections(state, [&](std::span<const std::byte> section) {
    for (size_t at = 0; at < section.size(); at += kPiece) {
      control.Pause();
      file.Append(section.subspan(at, std::min(kPiece, section.size() - at)));
    }
  });
  file.Sync();
  file.Commit();
}

PrefixHead ReadPrefixHead(const std::string& path, const PrefixFormat& format) {
  PrefixReader reader(path, format);
  return {.owner = reader.owner(),
          .tokens = reader.Tokens(),
          .point = reader.point(),
          .complete = reader.complete(),
          .file_bytes = reader.file_bytes(),
          .checkpoints = reader.checkpoints()};
}

PrefixState ReadPrefixFile(const std::string& path, const PrefixFormat& format, int64_t most_bytes,
                           const RunControl& control) {
  PrefixReader reader(path, format, control);
  if (reader.SectionBytes() > most_bytes) {
    throw Error("[prefix] {}: {} bytes do not fit in a document cache of {}", path, reader.SectionBytes(),
                most_bytes);
  }
  PrefixState state;
  state.owner = reader.owner();
  state.tokens = reader.Tokens();
  state.point = reader.point();
  state.complete = reader.complete();
  for (int l = 0; l < LayersWithKeys(state.point); ++l) {
    const int64_t width = format.key_widths[static_cast<size_t>(l)];
    Tensor keys = reader.Matrix(format.cache_type, width, "keys");
    Tensor values = reader.Matrix(format.cache_type, width, "values");
    state.layers.push_back({std::move(keys), std::move(values)});
  }
  if (state.point.layer < format.layers())
    state.hidden = reader.Matrix(DType::kF32, format.hidden, "hidden states");
  const std::optional<std::vector<int64_t>> checkpoints = reader.checkpoints();
  state.has_states = checkpoints.has_value();
  for (const int64_t rows : checkpoints.value_or(std::vector<int64_t>())) {
    PrefixState::Checkpoint checkpoint{rows, std::vector<RecurrentSnapshot>(state.layers.size())};
    for (int l = 0; l < LayersWithKeys(state.point); ++l) {
      const RecurrentShape shape = format.state(l);
      if (shape.taps == 0) continue;
      RecurrentSnapshot& layer = checkpoint.layers[static_cast<size_t>(l)];
      layer.last = reader.Matrix(DType::kF32, shape.taps - 1, shape.channels, "convolutions");
      layer.state =
          reader.Matrix(DType::kF32, int64_t{shape.value_heads} * shape.key_dim, shape.value_dim, "states");
    }
    state.checkpoints.push_back(std::make_shared<const PrefixState::Checkpoint>(std::move(checkpoint)));
  }
  return state;
}

}  // namespace coppice
