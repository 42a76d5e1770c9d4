// Selective Context: a second, small language model reads the prompt first, and what it could have guessed
// does not enter the large one.
//
//   I(t) = -log2 p(t | the text before t), by the second model        (1)
//   I(u) = mean of I(t) over the tokens of a phrase u                 (2)
//   stay:  the best ceil(keep * phrases) by I(u)                      (3) ties: earlier
//
// keep = 0.65 stands for the authors' reduce_ratio of 0.35, a percentile over phrases; a count is exact where a
// percentile would keep all ties. (2) is a mean as in their code; their text adds. They find phrases with
// spaCy's noun chunks; how they are found here is in lexical_units.h. The second model may have another
// tokenizer: its bits are laid over the text's bytes (engine/text_scorer.h). Control tokens always stay.
//
// Which part of a prompt is the question is not known here: protect it (--protect-last), as the authors
// compress the context alone.
//
// Cost: one dense prefill of the second model with logits for every token, counted in the ledger and in TTFT.
// Source: Y. Li et al., "Compressing context to enhance inference efficiency of large language models",
// arXiv 2310.06201, sections 3.1 to 3.3.
#include "policies/selective_context.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policies/stages.h"

namespace coppice {

SelectiveContextPolicy::SelectiveContextPolicy(SelectiveContextConfig config, std::vector<std::string> pieces,
                                               TokenScores bits)
    : config_(config), pieces_(std::move(pieces)), bits_(std::move(bits)) {}

TokenSet SelectiveContextPolicy::Input(int64_t tokens, Backend& be) {
  if (config_.keep >= 1) return TokenSet::All(tokens);
  const std::vector<float> bits = bits_();  // (1)
  COPPICE_CHECK(static_cast<int64_t>(bits.size()) == tokens && bits.size() == pieces_.size());
  const std::vector<int32_t> unit_of = LexicalUnits(pieces_, config_.unit);
  Tensor mean(DType::kF32, 1, unit_of.back() + 1);
  const std::span<float> score = mean.mutable_view().Row<float>(0);
  std::fill(score.begin(), score.end(), 0.0f);
  std::vector<int> sizes(score.size());
  for (size_t t = 0; t < bits.size(); ++t) {
    const auto u = static_cast<size_t>(unit_of[t]);
    if (pieces_[t].empty()) continue;
    score[u] += (bits[t] - score[u]) / static_cast<float>(++sizes[u]);  // (2)
  }
  const auto units = static_cast<int64_t>(score.size());
  const TokenSet best = be.TopK(mean.view(), CeilShare(config_.keep, units));  // (3)
  std::vector<int32_t> stay;
  for (size_t t = 0; t < bits.size(); ++t) {
    const bool last = t + 1 == bits.size();
    if (last || pieces_[t].empty() || best.Contains(unit_of[t])) stay.push_back(static_cast<int32_t>(t));
  }
  return TokenSet::Of(std::move(stay), tokens);
}

namespace {

LexicalUnit UnitNamed(const std::string& name) {
  if (name == "token") return LexicalUnit::kToken;
  return name == "sentence" ? LexicalUnit::kSentence : LexicalUnit::kPhrase;
}

MethodInstance MakeSelectiveContext(const MethodSpec& spec, const MethodContext& context) {
  SpecReader read(spec);
  const std::string path = read.File("model", "a second, small model that scores the prompt");
  SelectiveContextConfig config;
  config.keep = read.Number("keep", config.keep, 1e-6, 1);
  const std::string unit = read.Choice("unit", {"phrase", "sentence", "token"});
  config.unit = UnitNamed(unit);
  const std::string positions = read.Choice("positions", {"compact", "original"});
  config.compact = positions == "compact";
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  made.settings = fmt::format("selective:model={},keep={},unit={},positions={},min={}", QuotedValue(path),
                              config.keep, unit, positions, minimum);
  const bool text = context.pieces && context.open_scorer;
  made.reason = FirstReason({LengthReason(context, minimum),
                             text ? "" : "the model has no tokenizer, so there is no text to score"});
  TokenScores bits =
      text ? context.open_scorer(path) : TokenScores{};  // a wrong file is an error at any length
  if (!made.reason.empty()) return made;
  made.policy = std::make_unique<SelectiveContextPolicy>(config, context.pieces(), std::move(bits));
  return made;
}

}  // namespace

MethodInfo SelectiveContextMethod() {
  return {"selective",
          "drop phrases that a second, small model could have guessed, before the model",
          "Selective Context, arXiv 2310.06201",
          kSelectsInput,
          {{"model", "none: must be given", "a GGUF file or a folder",
            "the second model; may have another tokenizer", true},
           {"keep", "0.65", "0 to 1", "share of the units that stays"},
           {"unit", "phrase", "phrase, sentence, token", "what stays or goes whole"},
           {"positions", "compact", "compact, original", "whether what enters the model closes ranks"},
           {"min", "1024", "0 up", "shorter prompts run dense"}},
          &MakeSelectiveContext};
}

}  // namespace coppice
