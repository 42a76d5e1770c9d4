#include "grammar/matcher.h"

#include <algorithm>

#include "base/error.h"
#include "base/limits.h"

namespace coppice {

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Automaton> automaton)
    : automaton_(std::move(automaton)), left_(limits::kFirstGrammarSteps) {
  RenewBudget();
  sets_.push_back({});
  Add({automaton_->starts[automaton_->root], 0});
  Close();
}

std::span<const GrammarMatcher::Item> GrammarMatcher::ItemsOf(uint32_t set) const {
  const size_t end = set + 1 < sets_.size() ? sets_[set + 1].begin : items_.size();
  return std::span(items_).subspan(sets_[set].begin, end - sets_[set].begin);
}

void GrammarMatcher::RenewBudget() {
  left_ = std::min(left_ - std::min(left_, steps_) + limits::kGrammarStepsOfEachToken,
                   limits::kFirstGrammarSteps);
  steps_ = 0;
  allowed_ = std::min(limits::kMaxGrammarTokenSteps, left_);
}

void GrammarMatcher::Spend(uint64_t steps) {
  steps_ += steps;
  if (steps_ <= allowed_) return;
  if (allowed_ == limits::kMaxGrammarTokenSteps)
    throw GrammarError("the grammar takes too long for one token");
  throw GrammarError("the grammar takes too long for this answer");
}

// Sets are small (one to a dozen items), so a search is as fast as a table.
void GrammarMatcher::Add(Item item) {
  const std::span<const Item> items = this->items();
  Spend(1 + items.size() / 16);  // about as long as the search takes
  if (std::ranges::find(items, item) != items.end()) return;
  if (items.size() >= limits::kMaxGrammarItems)
    throw GrammarError("the grammar is too ambiguous: a byte takes more than {} items",
                       limits::kMaxGrammarItems);
  if (items_.size() >= limits::kMaxGrammarAnswerItems)
    throw GrammarError("the grammar is too ambiguous: the answer takes more than {} items",
                       limits::kMaxGrammarAnswerItems);
  items_.push_back(item);
}

// Adds to the last set the rules that its items call, and what follows the rules that end.
void GrammarMatcher::Close() {
  const auto here = static_cast<uint32_t>(sets_.size()) - 1;
  const Automaton& a = *automaton_;
  for (size_t i = sets_.back().begin; i < items_.size(); ++i) {
    const Item item = items_[i];
    const Automaton::State& state = a.states[item.state];
    for (const Automaton::Call& call : a.CallsOf(state)) {
      Add({a.starts[call.rule], here});
      // A rule that stands for nothing may have ended in this set before this item came (Aycock and Horspool,
      // The Computer Journal 45(6), 2002).
      if (a.nullable[call.rule] != 0) Add({call.to, item.origin});
    }
    if (!state.accepts) continue;
    if (state.rule == a.root && item.origin == 0) sets_.back().accepts = true;
    if (item.origin == here) continue;  // the rule stood for nothing: done above
    for (size_t j = 0; j < ItemsOf(item.origin).size(); ++j) {
      const Item caller = ItemsOf(item.origin)[j];
      Spend(1);
      const std::span<const Automaton::Call> calls = a.CallsOf(a.states[caller.state]);
      const auto call = std::ranges::lower_bound(calls, state.rule, {}, &Automaton::Call::rule);
      if (call != calls.end() && call->rule == state.rule) Add({call->to, caller.origin});
    }
  }
}

bool GrammarMatcher::Push(uint8_t byte) {
  const auto begin = static_cast<uint32_t>(items_.size());
  const size_t old_begin = sets_.back().begin;
  sets_.push_back({.begin = begin});
  try {
    for (size_t i = old_begin; i < begin; ++i) {
      Spend(1);
      for (const Automaton::Bytes& edge : automaton_->BytesOf(automaton_->states[items_[i].state])) {
        if (byte < edge.first) break;
        if (byte > edge.last) continue;
        Add({edge.to, items_[i].origin});
        break;
      }
    }
    if (items_.size() > begin) {
      Close();
      return true;
    }
  } catch (...) {
    Pop(1);
    throw;
  }
  Pop(1);
  return false;
}

void GrammarMatcher::Pop(size_t bytes) {
  const size_t left = sets_.size() - bytes;
  if (bytes > 0) items_.resize(sets_[left].begin);
  sets_.resize(left);
}

bool GrammarMatcher::must_end() const {
  return can_end() && std::ranges::all_of(items(), [&](const Item& item) {
           return automaton_->BytesOf(automaton_->states[item.state]).empty();
         });
}

}  // namespace coppice
