// Follows a text through a grammar byte by byte (Earley's algorithm, CACM 13(2), 1970), so that any
// context-free grammar works, left recursion and ambiguity included, in memory linear in the text for the
// grammars in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "grammar/automaton.h"

namespace coppice {

// The grammar takes more work than an answer may: a fault of who sent it.
class GrammarError : public Error {
 public:
  using Error::Error;
};

class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<const Automaton> automaton);

  // Returns whether the text may go on with this byte; if not, nothing changes. Throws GrammarError if the
  // grammar is so ambiguous that the byte takes more than limits::kMaxGrammarItems items, or all bytes
  // together more than kMaxGrammarAnswerItems.
  bool Push(uint8_t byte);
  // The next token begins. The work for one token is limited, and so is the work for all of them: Push()
  // throws GrammarError beyond limits::kMaxGrammarTokenSteps since this was called, and once the answer has
  // used up kFirstGrammarSteps and kGrammarStepsOfEachToken for each call of this.
  void RenewBudget();
  // Of the work for this token so far: some nanoseconds each.
  uint64_t steps() const { return steps_; }
  // Takes the last `bytes` bytes back.
  void Pop(size_t bytes);
  // The text may end here.
  bool can_end() const { return sets_.back().accepts; }
  // Nothing may follow.
  bool must_end() const;
  // Two moments of one matcher with equal items allow the same continuations.
  struct Item {
    uint32_t state = 0;
    uint32_t origin = 0;  // the set in which the item's rule began
    bool operator==(const Item&) const = default;
  };
  std::span<const Item> items() const { return std::span(items_).subspan(sets_.back().begin); }

 private:
  // The items after some number of bytes: a part of items_, up to the next set.
  struct Set {
    uint32_t begin = 0;
    bool accepts = false;
  };

  std::span<const Item> ItemsOf(uint32_t set) const;
  void Add(Item item);
  void Spend(uint64_t steps);
  void Close();

  std::shared_ptr<const Automaton> automaton_;
  std::vector<Item> items_;
  std::vector<Set> sets_;
  uint64_t steps_ = 0;    // since RenewBudget()
  uint64_t allowed_ = 0;  // of these
  uint64_t left_ = 0;     // of the answer, as of RenewBudget()
};

}  // namespace coppice
