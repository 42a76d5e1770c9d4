// LLMLingua-2: input compression by a classifier of words (file head of llmlingua2.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/method_info.h"
#include "policies/policy.h"
#include "policies/text_input.h"

namespace coppice {

struct LlmLingua2Config {
  std::string model = {};      // folder of the classifier
  double keep = 0.5;           // share of the tokens that stays, (0, 1]
  bool force_ends = false;     // ".", "?" and "!" stay
  bool force_digits = false;   // what holds a digit stays
  bool drop_repeated = false;  // of forced words that would follow each other, one stays
  bool compact = true;         // tokens that enter the model take positions 0, 1, ...
  int64_t minimum = 1024;      // shorter prompts run densely
};

// Which words stay: (2) to (4). `weights`: how often each word counts in (3).
std::vector<bool> ChooseWords(const LlmLingua2Config& config, std::span<const ReadWord> words,
                              std::span<const int64_t> weights);

class LlmLingua2Policy final : public TextInputPolicy {
 public:
  // `pieces`: the prompt's tokens as text; tokens without text always stay. `read` is called once, in Input.
  LlmLingua2Policy(LlmLingua2Config config, std::vector<std::string> pieces, WordReader read);

  TokenSet Input(int64_t tokens, Backend& be) override;

 private:
  LlmLingua2Config config_;
  WordReader read_;
};

MethodInfo LlmLingua2Method();

}  // namespace coppice
