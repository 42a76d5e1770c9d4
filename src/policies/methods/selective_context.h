// Selective Context: input compression by another model's self-information (file head of
// selective_context.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "policies/lexical_units.h"
#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/text_input.h"

namespace coppice {

struct SelectiveContextConfig {
  double keep = 0.65;  // share of the units that stays, (0, 1]
  LexicalUnit unit = LexicalUnit::kPhrase;
  bool compact = true;     // tokens that enter the model take positions 0, 1, ...
  std::string model = {};  // file of the second model
  int64_t minimum = 1024;  // shorter prompts run densely
};

class SelectiveContextPolicy final : public TextInputPolicy {
 public:
  // `pieces`: the prompt's tokens as text; tokens without text always stay. `bits` is called once, in Input.
  SelectiveContextPolicy(SelectiveContextConfig config, std::vector<std::string> pieces, TokenScores bits);

  TokenSet Input(int64_t tokens, Backend& be) override;

 private:
  SelectiveContextConfig config_;
  TokenScores bits_;
};

MethodInfo SelectiveContextMethod();

}  // namespace coppice
