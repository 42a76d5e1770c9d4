// Selective Context: a second, small language model reads the prompt first. Text that it predicts well does
// not enter the large model.
//
//   I(t) = -log2 p(t | the text before t), by the second model        (1)
//   I(u) = mean of I(t) over the tokens of a phrase u                 (2)
//   keep the best ceil(keep * phrases) by I(u)                        (3) ties: earlier
//
// keep = 0.65 corresponds to the authors' reduce_ratio of 0.35, a percentile over phrases. A count is exact;
// a percentile would keep all ties. (2) is a mean as in their code; their text adds. They find phrases with
// spaCy's noun chunks; lexical_units.h says how they are found here. The second model may have another
// tokenizer: its bits are assigned to the bytes of the text (engine/text_scorer.h). Control tokens always
// stay.
//
// The method does not know which part of a prompt is the question. Protect it (Protection::last), because the
// authors compress only the context.
//
// Cost: one dense prefill of the second model with logits for every token, counted in the ledger and in TTFT.
// Source: Y. Li et al., "Compressing context to enhance inference efficiency of large language models",
// arXiv 2310.06201, sections 3.1 to 3.3.
#include "policies/methods/selective_context.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policies/stages.h"

namespace coppice {

SelectiveContextPolicy::SelectiveContextPolicy(SelectiveContextConfig config, std::vector<std::string> pieces,
                                               TokenScores bits)
    : TextInputPolicy(std::move(pieces), config.compact),
      config_(std::move(config)),
      bits_(std::move(bits)) {}

TokenSet SelectiveContextPolicy::Input(int64_t tokens, Backend& be) {
  if (config_.keep >= 1) return TokenSet::All(tokens);
  const std::vector<float> bits = bits_();  // (1)
  COPPICE_CHECK(static_cast<int64_t>(bits.size()) == tokens && bits.size() == pieces().size());
  const std::vector<int32_t> unit_of = LexicalUnits(pieces(), config_.unit);
  Tensor mean(DType::kF32, 1, unit_of.back() + 1);
  const std::span<float> score = mean.mutable_view().Row<float>(0);
  std::fill(score.begin(), score.end(), 0.0f);
  std::vector<int> sizes(score.size());
  for (size_t t = 0; t < bits.size(); ++t) {
    const auto u = static_cast<size_t>(unit_of[t]);
    if (pieces()[t].empty()) continue;
    score[u] += (bits[t] - score[u]) / static_cast<float>(++sizes[u]);  // (2)
  }
  const auto units = static_cast<int64_t>(score.size());
  const TokenSet best = be.TopK(mean.view(), CeilShare(config_.keep, units));  // (3)
  return Staying([&](size_t t) { return best.Contains(unit_of[t]); });
}

namespace {

Keys SelectiveContextKeys(SelectiveContextConfig& c, const ModelShape& /*shape*/) {
  return {
      Keys::File("model", &c.model, "a GGUF file or a folder", "the second model; may have another tokenizer",
                 "a second, small model that scores the prompt"),
      {"keep", &c.keep, kAboveZero, 1, "share of the units to keep"},
      {"unit", &c.unit, "phrase sentence token", "unit that is kept or dropped as a whole"},
      {"positions", &c.compact, "original compact",
       "compact: the remaining tokens are renumbered without gaps"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeSelectiveContext(const MethodSpec& spec, const MethodContext& context) {
  SelectiveContextConfig c;
  Keys keys = SelectiveContextKeys(c, context.shape);
  keys.Read(spec);
  return MakeTextInput<SelectiveContextPolicy>(keys, c, context, context.open_scorer);
}

}  // namespace

MethodInfo SelectiveContextMethod() {
  return {"selective",
          "drop phrases that a second, small model could have guessed, before the model",
          "Selective Context, arXiv 2310.06201",
          kSelectsInput,
          HelpOf(&SelectiveContextKeys),
          &MakeSelectiveContext};
}

}  // namespace coppice
