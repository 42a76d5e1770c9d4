// Shared by the methods that read the prompt's text with another model, and choose which words of it enter
// this one: Selective Context and LLMLingua-2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/stages.h"

namespace coppice {

class TextInputPolicy : public TokenPolicy {
 public:
  PolicyFacts Facts() const final { return {.compact_positions = compact_}; }
  LayerPoint FirstChoice() const final { return {}; }  // what enters depends on the whole prompt

 protected:
  // `pieces`: the prompt's tokens as text, "" for control tokens. `compact`: the tokens that enter take
  // positions 0, 1, ...
  TextInputPolicy(std::vector<std::string> pieces, bool compact)
      : pieces_(std::move(pieces)), compact_(compact) {}

  const std::vector<std::string>& pieces() const { return pieces_; }

  // The tokens for which chosen(token) is true. Tokens without text and the last one always stay.
  template <typename Chosen>
  TokenSet Staying(const Chosen& chosen) const {
    std::vector<int32_t> stay;
    for (size_t t = 0; t < pieces_.size(); ++t) {
      if (pieces_[t].empty() || t + 1 == pieces_.size() || chosen(t)) stay.push_back(static_cast<int32_t>(t));
    }
    return TokenSet::Of(std::move(stay), std::ssize(pieces_));
  }

 private:
  std::vector<std::string> pieces_;
  bool compact_;
};

// The last step of MethodInfo::make for these methods. `open`: the context's function for config.model.
template <typename Policy, typename Config, typename Open>
MethodInstance MakeTextInput(const Keys& keys, const Config& config, const MethodContext& context,
                             const Open& open) {
  using Reader = decltype(open(config.model));
  const bool text = context.pieces && open;
  Reader read = text ? open(config.model) : Reader();  // a wrong file is an error for every prompt
  MethodInstance made{.settings = keys.Text(), .reason = LengthReason(context, config.minimum)};
  if (made.reason.empty() && !text) made.reason = "the model has no tokenizer, so there is no text to read";
  if (!made.reason.empty()) return made;
  made.entering = CeilShare(config.keep, context.tokens);
  made.policy = std::make_unique<Policy>(config, context.pieces(), std::move(read));
  return made;
}

}  // namespace coppice
