// SpecPrefill (speculative prefill): a second, small model of the same family reads the prompt first. The
// tokens that it would attend to next enter the large model, at their own positions.
//
// The second model's queries are those of the prompt's last token and of the K - 1 tokens that it generates.
// With a[l,h,k,i] the softmax weight that query k gives to prompt token i in head h of layer l, over the
// prompt's tokens alone,
//   m[l,h,k,i] = (1 / pool) sum over |j - i| <= pool / 2 of a[l,h,k,j]                             (1)
//   b[k,i]     = max over l, h of m[l,h,k,i]                                                       (2)
//   s_i        = mean over k of b[k,i]                                                             (3)
//   enter: the best ceil(keep * chunks) chunks of `chunk` tokens, by their mean s                  (4)
// If the second model ends its answer, the queries up to there count. It generates greedily.
//
// The authors' code lets the last token go with its chunk; here it always enters. What the user protects
// enters on top of (4).
//
// Cost: a dense prefill of the second model and K steps, in TTFT and in the ledger (LookAheadFlops,
// engine/draft_reader.h). Both models must have the same tokens, because ids pass from one to the other.
//
// Sources: J. Liu, B. Chen, C. Zhang, "Speculative prefill: turbocharging TTFT with lightweight and
// training-free token importance estimation", ICML 2025, arXiv 2502.02789, and its public code. For second
// models of another family, arXiv 2603.02631, tokens would have to be matched by their text.
#include "policies/methods/specprefill.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policies/stages.h"

namespace coppice {

void PoolAverage(std::span<float> row, int pool) {
  COPPICE_CHECK(pool > 0 && pool % 2 == 1);
  const auto n = static_cast<int64_t>(row.size());
  std::vector<float> pooled(row.size());
  double sum = 0;
  for (int64_t i = -(pool / 2); i < n; ++i) {
    const int64_t enters = i + pool / 2;
    const int64_t leaves = i - pool / 2 - 1;
    if (enters < n) sum += row[static_cast<size_t>(enters)];
    if (leaves >= 0) sum -= row[static_cast<size_t>(leaves)];
    if (i >= 0) pooled[static_cast<size_t>(i)] = static_cast<float>(sum / pool);
  }
  std::copy(pooled.begin(), pooled.end(), row.begin());
}

SparsePattern LookAhead::Pattern(const AttentionScene& scene, Backend& be) {
  AttentionInput in = scene.in;
  COPPICE_CHECK(in.queries.rows == 1 && in.keys.rows >= tokens_);
  in.keys = in.keys.Rows(0, tokens_);
  in.key_positions = in.key_positions.first(static_cast<size_t>(tokens_));
  in.values = {};
  in.packed = nullptr;
  Tensor weights(DType::kF32, in.shape.heads, tokens_);
  be.AttentionWeights(in, weights.mutable_view());
  best_.resize(static_cast<size_t>(tokens_), 0.0f);
  for (int64_t h = 0; h < weights.rows(); ++h) {
    const std::span<float> row = weights.mutable_view().Row<float>(h);
    PoolAverage(row, pool_);                                                        // (1)
    for (size_t i = 0; i < row.size(); ++i) best_[i] = std::max(best_[i], row[i]);  // (2)
  }
  return {};
}

void LookAhead::EndQuery() {
  sum_.resize(best_.size(), 0.0f);
  for (size_t i = 0; i < best_.size(); ++i) sum_[i] += std::exchange(best_[i], 0.0f);
  ++queries_;
}

std::vector<float> LookAhead::Importance() const {
  COPPICE_CHECK(queries_ > 0);
  std::vector<float> mean = sum_;
  for (float& s : mean) s /= static_cast<float>(queries_);
  return mean;
}

SpecPrefillPolicy::SpecPrefillPolicy(SpecPrefillConfig config, DraftScores draft)
    : config_(std::move(config)), draft_(std::move(draft)) {}

TokenSet SpecPrefillPolicy::Input(int64_t tokens, Backend& be) {
  if (config_.keep >= 1) return TokenSet::All(tokens);
  const std::vector<float> scores = draft_(config_.look_ahead, config_.pool);
  COPPICE_CHECK(static_cast<int64_t>(scores.size()) == tokens);
  const auto size = static_cast<size_t>(config_.chunk);
  std::vector<float> means;
  for (size_t begin = 0; begin < scores.size(); begin += size) {
    const size_t end = std::min(begin + size, scores.size());
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += scores[i];
    means.push_back(static_cast<float>(sum / static_cast<double>(end - begin)));
  }
  const auto chunks = static_cast<int64_t>(means.size());
  const TensorView view{means.data(), DType::kF32, 1, chunks};
  const TokenSet best = be.TopK(view, CeilShare(config_.keep, chunks));  // (4)
  std::vector<int32_t> enter;
  for (int64_t t = 0; t < tokens; ++t) {
    if (t + 1 == tokens || best.Contains(static_cast<int32_t>(t / config_.chunk)))
      enter.push_back(static_cast<int32_t>(t));
  }
  return TokenSet::Of(std::move(enter), tokens);
}

namespace {

Keys SpecPrefillKeys(SpecPrefillConfig& c, const ModelShape& /*shape*/) {
  return {
      Keys::File("draft", &c.draft, "a GGUF file or a folder", "the second model; must have the same tokens",
                 "a second, small model with the same tokenizer"),
      {"keep", &c.keep, kAboveZero, 1, "share of the chunks to keep"},
      {"look_ahead", &c.look_ahead, 1, 1024, "queries of the second model that score"},
      Keys("pool", &c.pool, 1, 1023, "keys per mean of softmax weights", "", "1 to 1023, odd").Check([&c] {
        return c.pool % 2 == 1 ? "" : "must be odd";
      }),
      {"chunk", &c.chunk, 1, kManyTokens, "tokens that are kept or dropped together"},
      MinKey(c.minimum),
  };
}

MethodInstance MakeSpecPrefill(const MethodSpec& spec, const MethodContext& context) {
  SpecPrefillConfig c;
  Keys keys = SpecPrefillKeys(c, context.shape);
  keys.Read(spec);
  Draft draft;
  if (context.open_draft) {
    draft = context.open_draft(c.draft);  // a wrong file is an error for every prompt
  } else {
    draft.reason = "the model has no tokenizer to compare with that of the second model";
  }
  const int64_t chunks = (context.tokens + c.chunk - 1) / c.chunk;
  const int64_t entering = std::min(CeilShare(c.keep, chunks) * c.chunk, context.tokens);
  MethodInstance made =
      MakeInstance<SpecPrefillPolicy>(keys,
                                      {LengthReason(context, c.minimum), std::move(draft.reason),
                                       c.keep < 1 ? NothingToDrop(context, entering + 1) : ""},
                                      c, std::move(draft.read));
  if (made.policy) made.entering = entering;
  return made;
}

}  // namespace

MethodInfo SpecPrefillMethod() {
  return {"specprefill",
          "the tokens that a second, small model would attend to next enter the model",
          "SpecPrefill, ICML 2025, arXiv 2502.02789",
          kSelectsInput,
          HelpOf(&SpecPrefillKeys),
          &MakeSpecPrefill};
}

}  // namespace coppice
