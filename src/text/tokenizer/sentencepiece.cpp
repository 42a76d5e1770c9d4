// A reader of the protobuf wire format (https://protobuf.dev/programming-guides/encoding/), with every length
// checked against the bytes left. The field numbers are those of sentencepiece_model.proto.
#include "text/tokenizer/sentencepiece.h"

#include <bit>
#include <optional>

#include "base/error.h"

namespace coppice {
namespace {

struct Field {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  uint64_t value = 0;                // for wire types 0, 1 and 5
  std::span<const std::byte> bytes;  // for wire type 2
};

class Message {
 public:
  Message(std::span<const std::byte> bytes, const std::string& source)
      : rest_(bytes), size_(bytes.size()), source_(source) {}

  std::optional<Field> Next() {
    if (rest_.empty()) return std::nullopt;
    const uint64_t tag = Varint();
    Field field{static_cast<uint32_t>(tag >> 3), static_cast<uint32_t>(tag & 7), 0, {}};
    if (tag >> 3 == 0 || tag >> 32 != 0) Fail("an invalid field number");
    switch (field.wire_type) {
      case 0:
        field.value = Varint();
        break;
      case 1:
        field.value = Fixed(8);
        break;
      case 2:
        field.bytes = Take(Varint());
        break;
      case 5:
        field.value = Fixed(4);
        break;
      default:
        Fail("an unknown wire type");
    }
    return field;
  }

 private:
  [[noreturn]] void Fail(const char* what) const {
    throw Error("[tokenizer] {}: not a SentencePiece model: {} at byte {} of a message of {}", source_, what,
                size_ - rest_.size(), size_);
  }
  std::span<const std::byte> Take(uint64_t count) {
    if (count > rest_.size()) Fail("a field longer than what is left");
    const std::span<const std::byte> taken = rest_.first(static_cast<size_t>(count));
    rest_ = rest_.subspan(static_cast<size_t>(count));
    return taken;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = std::to_integer<uint64_t>(Take(1)[0]);
      if (shift == 63 && byte > 1) break;
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    Fail("a number of more than 64 bits");
  }
  uint64_t Fixed(int count) {
    uint64_t value = 0;
    const std::span<const std::byte> bytes = Take(static_cast<uint64_t>(count));
    for (int i = count - 1; i >= 0; --i)
      value = value << 8 | std::to_integer<uint64_t>(bytes[static_cast<size_t>(i)]);
    return value;
  }

  std::span<const std::byte> rest_;
  size_t size_;
  const std::string& source_;
};

std::string Text(const Field& field) {
  return {reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()};
}

void ReadPiece(std::span<const std::byte> bytes, const std::string& source, SentencePieceModel& model) {
  std::string text;
  float score = 0;
  uint64_t type = 1;
  Message message(bytes, source);
  while (const std::optional<Field> field = message.Next()) {
    if (field->number == 1 && field->wire_type == 2) text = Text(*field);
    if (field->number == 2 && field->wire_type == 5)
      score = std::bit_cast<float>(static_cast<uint32_t>(field->value));
    if (field->number == 3 && field->wire_type == 0) type = field->value;
  }
  if (type < 1 || type > 6 || score != score) {
    throw Error("[tokenizer] {}: piece {} has type {} and score {}", source, model.texts.size(), type, score);
  }
  model.texts.push_back(std::move(text));
  model.scores.push_back(score);
  model.types.push_back(static_cast<TokenType>(type));
}

void ReadTrainerSpec(std::span<const std::byte> bytes, const std::string& source, SentencePieceModel& model) {
  constexpr uint64_t kBpe = 2;
  uint64_t model_type = 1;
  Message message(bytes, source);
  while (const std::optional<Field> field = message.Next()) {
    if (field->number == 44 && field->wire_type == 2) model.unknown_surface = Text(*field);
    if (field->wire_type != 0) continue;
    // Ids are int32; negative ones are stored sign-extended.
    const auto id = static_cast<int64_t>(field->value);
    if (field->number == 3) model_type = field->value;
    if (field->number == 40) model.unknown = id;
    if (field->number == 41) model.bos = id;
    if (field->number == 42) model.eos = id;
    if (field->number == 24 && field->value != 0) {
      throw Error("[tokenizer] {}: treat_whitespace_as_suffix is not supported", source);
    }
  }
  if (model_type != kBpe) {
    throw Error("[tokenizer] {}: SentencePiece model type {} is not supported; expected 2 (BPE)", source,
                model_type);
  }
}

void ReadNormalizerSpec(std::span<const std::byte> bytes, const std::string& source,
                        SentencePieceModel& model) {
  Message message(bytes, source);
  while (const std::optional<Field> field = message.Next()) {
    if (field->number == 2 && field->wire_type == 2 && !field->bytes.empty()) {
      throw Error(
          "[tokenizer] {}: normaliser with a precompiled_charsmap is not supported; expected 'identity'",
          source);
    }
    if (field->wire_type != 0) continue;
    if (field->number == 3) model.add_space_prefix = field->value != 0;
    if (field->number == 4) model.trim_spaces = field->value != 0;
    if (field->number == 5 && field->value == 0) {
      throw Error("[tokenizer] {}: escape_whitespaces = false is not supported", source);
    }
  }
}

}  // namespace

SentencePieceModel ParseSentencePiece(std::span<const std::byte> bytes, const std::string& source) {
  SentencePieceModel model;
  bool trained = false;
  Message message(bytes, source);
  while (const std::optional<Field> field = message.Next()) {
    if (field->wire_type != 2) continue;
    if (field->number == 1) ReadPiece(field->bytes, source, model);
    if (field->number == 2) ReadTrainerSpec(field->bytes, source, model);
    if (field->number == 3) ReadNormalizerSpec(field->bytes, source, model);
    trained = trained || field->number == 2;
  }
  if (model.texts.empty() || !trained) throw Error("[tokenizer] {}: not a SentencePiece model", source);
  return model;
}

}  // namespace coppice
