// A file of states that was truncated, changed, forged, or made by another engine is refused in one line,
// before memory is allocated for the sizes that it claims.
#include "model/prefix_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "test_files.h"

namespace coppice {
namespace {

using testing::HasSubstr;

PrefixFormat Format() {
  return {.fingerprint = {11, 22},
          .cache_type = DType::kBF16,
          .key_widths = {16, 8, 16, 40},
          .hidden = 24,
          .vocab = 50};
}

Tensor Filled(DType type, int64_t rows, int64_t cols, int seed) {
  Tensor tensor(type, rows, cols);
  for (int64_t i = 0; i < tensor.bytes(); ++i)
    tensor.mutable_view().data[i] = static_cast<std::byte>((i * 31 + seed) & 0x3f);
  return tensor;
}

PrefixState MakeState(LayerPoint point, int64_t tokens = 37) {
  const PrefixFormat f = Format();
  PrefixState state;
  for (int64_t i = 0; i < tokens; ++i) state.tokens.push_back(static_cast<int32_t>(i * 7 % f.vocab));
  state.point = point;
  for (int l = 0; l < LayersWithKeys(point); ++l) {
    const int64_t width = f.key_widths[static_cast<size_t>(l)];
    state.layers.push_back(
        {Filled(f.cache_type, tokens, width, 2 * l), Filled(f.cache_type, tokens, width, 2 * l + 1)});
  }
  if (point.layer < f.layers()) state.hidden = Filled(DType::kF32, tokens, f.hidden, 99);
  return state;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class PrefixFile : public testing::Test {
 protected:
  // The bytes of a good file.
  std::string Good(LayerPoint point = {2, true}) {
    WritePrefixFile(MakeState(point), Format(), dir_.Path("good.prefix"));
    return ReadFile(dir_.Path("good.prefix"));
  }
  std::string ErrorFor(const std::string& bytes, const PrefixFormat& format = Format()) {
    const std::string path = dir_.Write("bad.prefix", bytes);
    const std::string error = ErrorOf([&] { ReadPrefixFile(path, format); });
    if (error != "no error") {
      EXPECT_THAT(error, HasSubstr(path));
    }
    return error;
  }
  // Where the checksum of the head lies: behind its fields, a width for each layer below the point, the rows
  // of each checkpoint, and a checksum for each section. At most at the end of the bytes, which are at least
  // 104.
  static size_t HeadEnd(const std::string& bytes) {
    uint32_t flags = 0;
    uint32_t layer = 0;
    uint64_t sections = 0;
    uint64_t checkpoints = 0;
    std::memcpy(&flags, bytes.data() + 12, sizeof(flags));
    std::memcpy(&layer, bytes.data() + 32, sizeof(layer));
    std::memcpy(&sections, bytes.data() + 56, sizeof(sections));
    std::memcpy(&checkpoints, bytes.data() + 72, sizeof(checkpoints));
    uint64_t left = (bytes.size() - 104) / 8;
    size_t end = 96;
    for (const uint64_t numbers : {uint64_t{layer} + (flags & 1), checkpoints, sections}) {
      end += 8 * std::min(numbers, left);
      left -= std::min(numbers, left);
    }
    return end;
  }
  static void Sign(std::string& bytes) {
    const size_t end = HeadEnd(bytes);
    const uint64_t sum = ChecksumOf(std::as_bytes(std::span(bytes.data(), end)));
    std::memcpy(bytes.data() + end, &sum, sizeof(sum));
  }
  // A changed head with a correct checksum, as a forger would write it.
  template <typename T>
  std::string Forged(size_t offset, T value) {
    return Forged(Good(), offset, value);
  }
  template <typename T>
  static std::string Forged(std::string bytes, size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(T));
    Sign(bytes);
    return bytes;
  }

  TempFolder dir_;
};

TEST_F(PrefixFile, ComesBackAsItWas) {
  for (const LayerPoint point : {LayerPoint{1, false}, LayerPoint{2, true}, LayerPoint{4, false}}) {
    PrefixState state = MakeState(point);
    state.complete = point.layer != 1;
    state.owner = {7, 8};
    const std::string path = dir_.Path("x.prefix");
    WritePrefixFile(state, Format(), path);
    const PrefixState back = ReadPrefixFile(path, Format());
    EXPECT_EQ(back.owner, state.owner);
    EXPECT_EQ(back.tokens, state.tokens);
    EXPECT_EQ(back.point, point);
    EXPECT_EQ(back.complete, state.complete);
    ASSERT_EQ(back.layers.size(), state.layers.size());
    const auto same = [](const Tensor& a, const Tensor& b) {
      return a.bytes() == b.bytes() && a.dtype() == b.dtype() && a.rows() == b.rows() &&
             (a.bytes() == 0 ||
              std::memcmp(a.view().data, b.view().data, static_cast<size_t>(a.bytes())) == 0);
    };
    for (size_t l = 0; l < back.layers.size(); ++l) {
      EXPECT_TRUE(same(back.layers[l].keys, state.layers[l].keys));
      EXPECT_TRUE(same(back.layers[l].values, state.layers[l].values));
    }
    EXPECT_TRUE(same(back.hidden, state.hidden));
    const PrefixHead head = ReadPrefixHead(path, Format());
    EXPECT_EQ(head.owner, state.owner);
    EXPECT_EQ(head.tokens, state.tokens);
    EXPECT_EQ(head.point, point);
    EXPECT_EQ(head.complete, state.complete);
    EXPECT_EQ(head.file_bytes, static_cast<int64_t>(ReadFile(path).size()));
  }
  EXPECT_EQ(dir_.CountFiles(), 1u);  // nothing half written beside it
}

TEST_F(PrefixFile, Row24CutAtAnyLength) {
  const std::string good = Good();
  for (size_t bytes = 0; bytes < good.size(); bytes += bytes < 200 ? 1 : 97) {
    EXPECT_NE(ErrorFor(good.substr(0, bytes)), "no error") << bytes;
  }
  EXPECT_THAT(ErrorFor(good.substr(0, 60)), HasSubstr("too few"));
  EXPECT_THAT(ErrorFor(good.substr(0, good.size() - 1)), HasSubstr("cut or changed"));
  EXPECT_THAT(ErrorFor(good + "x"), HasSubstr("cut or changed"));
  EXPECT_EQ(ErrorFor(good), "no error");
}

TEST_F(PrefixFile, Row24AnyFlippedBitIsSeen) {
  const std::string good = Good();
  for (size_t at = 0; at < good.size(); at += at < 300 ? 1 : 41) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    EXPECT_NE(ErrorFor(bytes), "no error") << at;
  }
  std::string keys = good;
  keys[good.size() - 37 * 24 * 4 - 1] ^= 1;
  EXPECT_THAT(ErrorFor(keys), HasSubstr("checksum of its values"));
  std::string hidden = good;
  hidden[good.size() - 1] ^= 1;
  EXPECT_THAT(ErrorFor(hidden), HasSubstr("checksum of its hidden states"));
}

TEST_F(PrefixFile, Row24OfAnotherModel) {
  PrefixFormat other = Format();
  other.fingerprint.high = 23;
  EXPECT_THAT(ErrorFor(Good(), other), HasSubstr("another model"));
  // A forged fingerprint does not make other sizes acceptable.
  for (const auto& change : std::vector<void (*)(PrefixFormat&)>{
           [](PrefixFormat& f) { f.cache_type = DType::kF32; }, [](PrefixFormat& f) { f.key_widths[2] = 32; },
           [](PrefixFormat& f) { f.hidden = 25; }, [](PrefixFormat& f) { f.key_widths.resize(1); },
           [](PrefixFormat& f) { f.key_widths.resize(2); }, [](PrefixFormat& f) { f.vocab = 40; }}) {
    PrefixFormat wrong = Format();
    change(wrong);
    EXPECT_NE(ErrorFor(Good(), wrong), "no error");
  }
}

// The offsets are those of the fields of Head in prefix_file.cpp.
TEST_F(PrefixFile, Row24ForgedHeads) {
  EXPECT_EQ(ErrorFor(Forged<uint64_t>(48, 37)), "no error");  // the forger's tool works
  EXPECT_THAT(ErrorFor(Forged<char>(0, 'C')), HasSubstr("does not begin as one"));
  EXPECT_THAT(ErrorFor(Forged<uint32_t>(8, 2)),
              HasSubstr("of version 2 of this format, and this program reads "
                        "version 4 alone: an older program wrote it"));
  EXPECT_THAT(ErrorFor(Forged<uint32_t>(8, 5)), HasSubstr("version 5"));
  EXPECT_THAT(ErrorFor(Forged<uint32_t>(8, 5)), HasSubstr("a newer program wrote it"));
  EXPECT_THAT(ErrorFor(Forged<uint32_t>(12, 4)), HasSubstr("flags 4"));
  EXPECT_THAT(ErrorFor(Forged<uint32_t>(32, 3)), HasSubstr("sections"));
  EXPECT_THAT(ErrorFor(Forged<uint32_t>(32, 4)), HasSubstr("layer 4"));
  EXPECT_THAT(ErrorFor(Forged<uint32_t>(32, 0xffffffff)), HasSubstr("has 4 layers"));
  EXPECT_THAT(ErrorFor(Forged<uint32_t>(36, 7)), HasSubstr("keys of type 7"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(104, uint64_t{1} << 60)),
              HasSubstr("keys of width 1152921504606846976 in layer 1, the engine's are 8 wide"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(96, 8)), HasSubstr("keys of width 8 in layer 0"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(40, 0)), HasSubstr("hidden states of width 0"));
  // cell_count (CVE-2026-43629): none, too many, and enough to overflow the product.
  for (const uint64_t tokens : {uint64_t{0}, uint64_t{1} << 25, uint64_t{1} << 62, ~uint64_t{0}})
    EXPECT_THAT(ErrorFor(Forged<uint64_t>(48, tokens)), HasSubstr("tokens; it may hold")) << tokens;
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(48, uint64_t{1} << 24)), HasSubstr("cut or changed"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(56, uint64_t{1} << 61)), HasSubstr("sections"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(64, 104)), HasSubstr("cut or changed"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(72, 1)), HasSubstr("1 checkpoints of 0 layers with states"));
}

// Layer 1 has a state in place of keys.
PrefixFormat FormatWithStates() {
  PrefixFormat f = Format();
  f.key_widths[1] = 0;
  f.states.resize(4);
  f.states[1] = {.taps = 3, .channels = 5, .key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 4};
  return f;
}

PrefixState StateWithCheckpoints(const std::vector<int64_t>& rows) {
  PrefixState state = MakeState({2, true});
  state.layers[1] = {};
  state.has_states = true;
  for (const int64_t at : rows) {
    PrefixState::Checkpoint checkpoint{at, std::vector<RecurrentSnapshot>(3)};
    checkpoint.layers[1] = {Filled(DType::kF32, 2, 5, static_cast<int>(at)), Filled(DType::kF32, 6, 4, 7)};
    state.checkpoints.push_back(std::make_shared<const PrefixState::Checkpoint>(std::move(checkpoint)));
  }
  return state;
}

TEST_F(PrefixFile, StatesAtCheckpoints) {
  const PrefixFormat format = FormatWithStates();
  const std::string path = dir_.Path("states.prefix");
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{}, {5, 36, 37}}) {
    const PrefixState state = StateWithCheckpoints(rows);
    WritePrefixFile(state, format, path);
    EXPECT_EQ(ReadPrefixHead(path, format).checkpoints, rows);
    const PrefixState read = ReadPrefixFile(path, format);
    EXPECT_EQ(read.bytes(), state.bytes());
    EXPECT_TRUE(read.has_states);
    ASSERT_EQ(read.checkpoints.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(read.checkpoints[i]->rows, rows[i]);
      const RecurrentSnapshot& was = state.checkpoints[i]->layers[1];
      const RecurrentSnapshot& is = read.checkpoints[i]->layers[1];
      EXPECT_EQ(std::memcmp(is.last.view().data, was.last.view().data, 2 * 5 * 4), 0);
      EXPECT_EQ(std::memcmp(is.state.view().data, was.state.view().data, 6 * 4 * 4), 0);
    }
  }
  const std::string good = ReadFile(path);
  EXPECT_EQ(ErrorFor(Forged<uint64_t>(good, 120, 5), format), "no error");
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(good, 120, 0), format),
              HasSubstr("behind 0 of 37 tokens, after one"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(good, 120, 36), format),
              HasSubstr("behind 36 of 37 tokens, after one"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(good, 136, 38), format),
              HasSubstr("behind 38 of 37 tokens, after one"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(good, 72, 2), format), HasSubstr("sections"));
  EXPECT_THAT(ErrorFor(Forged<uint64_t>(good, 72, uint64_t{1} << 62), format), HasSubstr("checkpoints"));
  std::string damaged = good;
  damaged[damaged.size() - 3] = static_cast<char>(damaged[damaged.size() - 3] ^ 1);
  EXPECT_THAT(ErrorFor(damaged, format), HasSubstr("the checksum of its states"));
}

// A sparse file that claims 16 million tokens is refused because of its length, not because memory runs out.
TEST_F(PrefixFile, Row24SparseAndLargerThanTheCache) {
  constexpr uint64_t kTokens = 1 << 24;
  std::string head = Good();
  const uint64_t old_tokens = MakeState({2, true}).tokens.size();
  uint64_t bytes = 0;
  std::memcpy(&bytes, head.data() + 64, sizeof(bytes));
  const uint64_t head_bytes = HeadEnd(head) + 8;
  bytes = head_bytes + (bytes - head_bytes) / old_tokens * kTokens;
  std::memcpy(head.data() + 48, &kTokens, sizeof(kTokens));
  std::memcpy(head.data() + 64, &bytes, sizeof(bytes));
  Sign(head);
  const std::string path = dir_.Write("sparse.prefix", head.substr(0, head_bytes));
  std::filesystem::resize_file(path, bytes);
  EXPECT_THAT(ErrorOf([&] { ReadPrefixFile(path, Format(), int64_t{1} << 30); }), HasSubstr("do not fit"));
}

TEST_F(PrefixFile, Row24NotAFile) {
  EXPECT_THAT(ErrorOf([&] { ReadPrefixFile(dir_.Path("none.prefix"), Format()); }), HasSubstr("cannot open"));
  EXPECT_THAT(ErrorOf([&] { ReadPrefixFile(dir_.path(), Format()); }), HasSubstr("not a regular file"));
  EXPECT_THAT(ErrorOf([&] {
                WritePrefixFile(MakeState({1, true}), Format(), dir_.Path("no/x.prefix"));
              }),
              HasSubstr("cannot create"));
}

// A full disk, simulated by a limit on the file's size: the earlier file stays unchanged.
TEST_F(PrefixFile, Row24DiskFullOnSave) {
  const std::string path = dir_.Path("x.prefix");
  WritePrefixFile(MakeState({1, true}), Format(), path);
  const std::string before = ReadFile(path);
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const struct rlimit small { 3000, old.rlim_max };
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = ErrorOf([&] { WritePrefixFile(MakeState({2, true}), Format(), path); });
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("cannot write"));
  EXPECT_EQ(ReadFile(path), before);
  EXPECT_EQ(dir_.CountFiles(), 1u);
}

// Bytes changed, cut off, or repeated, in a fixed pseudo-random order: the file is refused, or read as it was
// if the changes cancel out. The sanitizers check the rest.
TEST_F(PrefixFile, Mutation) {
  const std::string good = Good({1, true});
  std::mt19937 random(20240229);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (auto changes = random() % 4 + 1; changes > 0 && !bytes.empty(); --changes) {
      // Mostly in the head, because the checksum reveals every change of the data.
      const size_t at = random() % (random() % 4 != 0 ? std::min<size_t>(bytes.size(), 160) : bytes.size());
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          std::fill_n(bytes.begin() + at, std::min<size_t>(8, bytes.size() - at), '\xff');
          break;
        case 3:
          bytes.resize(at);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 16));
          break;
      }
    }
    if (bytes == good) continue;
    EXPECT_NE(ErrorFor(bytes), "no error") << round;
    // The same with a consistent head.
    if (bytes.size() < 104) continue;
    Sign(bytes);
    ErrorFor(bytes);
  }
}

}  // namespace
}  // namespace coppice
