#include "grammar/token_texts.h"

#include <algorithm>

namespace coppice {

TokenTexts::TokenTexts(const Tokenizer& tokenizer) {
  const int32_t size = tokenizer.vocab_size();
  offsets_.push_back(0);
  for (int32_t id = 0; id < size; ++id) {
    bytes_ += tokenizer.Piece(id);
    offsets_.push_back(static_cast<uint32_t>(bytes_.size()));
    ends_.push_back(tokenizer.EndsGeneration(id) ? 1 : 0);
    if (offsets_[static_cast<size_t>(id) + 1] > offsets_[static_cast<size_t>(id)])
      sorted_.push_back({.id = id});
  }
  const TokenTexts& texts = *this;
  std::ranges::sort(sorted_, {}, [&](const Entry& e) { return std::pair(texts[e.id], e.id); });
  for (size_t i = 1; i < sorted_.size(); ++i) {
    const std::string_view a = texts[sorted_[i - 1].id];
    const std::string_view b = texts[sorted_[i].id];
    sorted_[i].common = static_cast<uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  }
}

std::string_view TokenTexts::operator[](int32_t id) const {
  if (id < 0 || id >= size()) return {};
  const auto index = static_cast<size_t>(id);
  return std::string_view(bytes_).substr(offsets_[index], offsets_[index + 1] - offsets_[index]);
}

}  // namespace coppice
