// The trie is darts-clone's (https://github.com/s-yata/darts-clone): a unit of 32 bits holds a label, whether
// a value follows, and the offset of its children, which are reached by XOR.
#include "text/tokenizer/charsmap.h"

#include <array>
#include <cstring>

#include "base/error.h"

namespace coppice {

namespace {

bool HasValue(uint32_t unit) { return ((unit >> 8) & 1) == 1; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view table, const std::string& source) {
  uint32_t bytes = 0;
  const bool has_size = table.size() >= sizeof bytes;
  if (has_size) std::memcpy(&bytes, table.data(), sizeof bytes);
  if (!has_size || bytes % sizeof(uint32_t) != 0 || bytes == 0 || bytes > table.size() - sizeof bytes)
    throw Error("[tokenizer] {}: precompiled_charsmap has {} bytes, its trie {}", source, table.size(),
                bytes);
  units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), table.data() + sizeof bytes, bytes);
  texts_ = table.substr(sizeof bytes + bytes);
}

std::optional<std::string_view> Charsmap::Replacement(std::string_view characters) const {
  if (units_.empty()) return std::nullopt;
  uint32_t node = OffsetOf(units_[0]);
  for (const char c : characters) {
    const auto label = static_cast<unsigned char>(c);
    node ^= label;
    if (label == 0 || node >= units_.size() || LabelOf(units_[node]) != label) return std::nullopt;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (!HasValue(unit)) continue;
    if (node >= units_.size() || ValueOf(units_[node]) >= texts_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(texts_).substr(ValueOf(units_[node]));
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

std::string FromBase64(std::string_view text, const std::string& source) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos)
      throw Error("[tokenizer] {}: precompiled_charsmap is no base64", source);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

}  // namespace coppice
