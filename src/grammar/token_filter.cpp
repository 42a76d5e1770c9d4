#include "grammar/token_filter.h"

#include <algorithm>

namespace coppice {

TokenFilter::TokenFilter(std::shared_ptr<const TokenGrammar> grammar, std::function<void()> rest)
    : grammar_(std::move(grammar)), rest_(std::move(rest)), matcher_(grammar_->automaton) {}

void TokenFilter::MayRest() {
  if (matcher_.steps() - rested_at_ < kStepsBetweenRests) return;
  rested_at_ = matcher_.steps();
  if (rest_) rest_();
}

std::string_view TokenFilter::TextOf(int32_t id) const {
  for (const TokenGrammar::Mark& mark : grammar_->marks) {
    if (mark.id == id) return mark.text;
  }
  return (*grammar_->texts)[id];
}

bool TokenFilter::Fits(std::string_view text) {
  size_t pushed = 0;
  while (pushed < text.size() && matcher_.Push(static_cast<uint8_t>(text[pushed]))) ++pushed;
  matcher_.Pop(pushed);
  MayRest();
  return pushed == text.size();
}

bool TokenFilter::Allows(int32_t id) {
  if (id < 0 || id >= grammar_->texts->size()) return false;
  if (grammar_->texts->EndsGeneration(id)) return matcher_.can_end();
  const std::string_view text = TextOf(id);
  return !text.empty() && Fits(text);
}

const std::vector<uint8_t>& TokenFilter::Mask() {
  const auto items = matcher_.items();
  if (mask_.empty() || !std::ranges::equal(items, mask_items_)) {
    mask_items_.assign(items.begin(), items.end());
    FillMask();
  }
  return mask_;
}

// Goes through the tokens in the order of their texts: a token shares the bytes that were pushed with the one
// before, and the byte that failed fails for all that follow with the same beginning.
void TokenFilter::FillMask() {
  const TokenTexts& texts = *grammar_->texts;
  mask_.assign(static_cast<size_t>(texts.size()), 0);
  size_t pushed = 0;
  bool failed = false;  // at the byte after `pushed`
  for (const TokenTexts::Entry& entry : texts.sorted()) {
    if (failed && entry.common > pushed) continue;
    if (entry.common < pushed) {
      matcher_.Pop(pushed - entry.common);
      pushed = entry.common;
    }
    const std::string_view text = texts[entry.id];
    failed = false;
    while (pushed < text.size() && !failed) {
      failed = !matcher_.Push(static_cast<uint8_t>(text[pushed]));
      if (!failed) ++pushed;
    }
    mask_[static_cast<size_t>(entry.id)] = failed ? 0 : 1;
    MayRest();
  }
  matcher_.Pop(pushed);
  for (int32_t id = 0; id < texts.size(); ++id) {
    if (texts.EndsGeneration(id)) mask_[static_cast<size_t>(id)] = matcher_.can_end() ? 1 : 0;
  }
  for (const TokenGrammar::Mark& mark : grammar_->marks)
    mask_[static_cast<size_t>(mark.id)] = !mark.text.empty() && Fits(mark.text) ? 1 : 0;
}

void TokenFilter::Accept(int32_t id) {
  matcher_.RenewBudget();
  rested_at_ = 0;
  if (grammar_->texts->EndsGeneration(id)) return;
  for (const char c : TextOf(id)) matcher_.Push(static_cast<uint8_t>(c));
}

}  // namespace coppice
