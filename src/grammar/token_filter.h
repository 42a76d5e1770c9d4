// Which tokens may come next in an answer that follows a grammar.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grammar/automaton.h"
#include "grammar/matcher.h"
#include "grammar/token_texts.h"

namespace coppice {

// A grammar that answers in a vocabulary follow. Shared by requests.
struct TokenGrammar {
  struct Mark {
    int32_t id = 0;
    std::string text;
  };
  std::shared_ptr<const Automaton> automaton;
  std::shared_ptr<const TokenTexts> texts;
  std::vector<Mark> marks;  // control tokens whose written form belongs to the answer
};

// Of one answer.
class TokenFilter {
 public:
  // `rest`, which may be empty, is called about every kStepsBetweenRests steps of looking at tokens, and may
  // block.
  explicit TokenFilter(std::shared_ptr<const TokenGrammar> grammar, std::function<void()> rest = {});

  static constexpr uint64_t kStepsBetweenRests = 20'000;  // some tenths of a millisecond

  // A token's text must continue the grammar; tokens that end the answer are allowed where the grammar may
  // end, and those without text never.
  bool Allows(int32_t id);
  // For each token whether Allows() is true. Valid until the next call of Accept().
  const std::vector<uint8_t>& Mask();
  // The answer goes on with this token, which must be allowed. Tokens that end the answer change nothing.
  void Accept(int32_t id);
  // The grammar has ended and nothing may follow.
  bool done() const { return matcher_.must_end(); }

 private:
  std::string_view TextOf(int32_t id) const;
  bool Fits(std::string_view text);
  void FillMask();
  void MayRest();

  std::shared_ptr<const TokenGrammar> grammar_;
  std::function<void()> rest_;
  GrammarMatcher matcher_;
  uint64_t rested_at_ = 0;  // steps of the matcher
  // The mask, and the items it was made for: inside a string, say, they stay the same from token to token.
  std::vector<uint8_t> mask_;
  std::vector<GrammarMatcher::Item> mask_items_;
};

}  // namespace coppice
