// StreamingLLM: attention sinks and a sliding window of recent tokens. No training. After the attention of
// every layer, in prefill and in each decode step, the cache keeps
//   [0, sink) and the last `recent` rows                              (1)
// at positions that are slots of the cache: no key is further from a query than the cache is long.
//
// The paper stores keys before RoPE and rotates all of them by their slots in every step. With RoPE, q . k
// depends only on the difference of positions (so does ALiBi's bias). The recent tokens keep their original
// positions p - recent + 1 .. p, which are one apart like slots. Only the gap must be closed: the sinks move
// up to p - recent - sink + 1 .., right before the recent tokens (Retained::close_gap). That rotates `sink`
// keys by one position per step instead of sink + recent keys. Every pair of query and key has the same
// difference as in the paper, hence the same attention.
//
// Prefill is dense, and the cache is cut after it, as in kvpress. The paper's alternative, to evict while the
// prompt is read, is a pattern of prefill attention (sinks and a window), not of the cache. Protected rows
// stay in addition to (1) and move up with the sinks. The policy remembers them as rows, because their
// positions change. Tokens that another method lets into the model take positions without gaps.
#include "policies/methods/streamingllm.h"

#include <algorithm>
#include <utility>

namespace coppice {

bool StreamingLlmPolicy::RetainsAt(Phase /*phase*/, int /*layer*/) const { return true; }

std::optional<Retained> StreamingLlmPolicy::Retain(const Observation& seen, const CacheScene& cache,
                                                   Backend& /*be*/) {
  const auto layer = static_cast<size_t>(seen.layer);
  if (pinned_.size() <= layer) pinned_.resize(layer + 1);
  TokenSet pinned = TokenSet::Of(pinned_[layer], cache.rows);
  for (const TokenSet& rows : cache.pinned) pinned = pinned.Union(rows);
  // Every scene pins its last row. That row is not remembered.
  pinned = pinned.Intersect(TokenSet::Range(0, cache.rows - 1, cache.rows));

  const TokenSet kept = pinned.UnionFirst(config_.sink).UnionLast(config_.recent);  // (1)
  pinned_[layer].clear();
  const std::vector<int32_t> rows = kept.ToRows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (pinned.Contains(rows[i])) pinned_[layer].push_back(static_cast<int32_t>(i));
  }
  if (kept.IsAll()) return std::nullopt;
  return Retained{.rows = {kept}, .close_gap = true};
}

namespace {

Keys StreamingLlmKeys(StreamingLlmConfig& c, const ModelShape& /*shape*/) {
  return {{"sink", &c.sink, 0, kManyTokens, "number of first tokens to keep"},
          {"recent", &c.recent, 1, kManyTokens, "number of last tokens to keep"},
          MinKey(c.minimum)};
}

MethodInstance MakeStreamingLlm(const MethodSpec& spec, const MethodContext& context) {
  StreamingLlmConfig c;
  Keys keys = StreamingLlmKeys(c, context.shape);
  keys.Read(spec);
  // The method acts even if the prompt fits, because the cache must stay this small in decode.
  return MakeInstance<StreamingLlmPolicy>(keys, {LengthReason(context, c.minimum)}, c);
}

}  // namespace

MethodInfo StreamingLlmMethod() {
  return {
      "streamingllm",
      "evict keys and values: keep the first few tokens and a sliding window of recent ones",
      "StreamingLLM: efficient streaming language models with attention sinks, ICLR 2024, arXiv 2309.17453",
      kEvicts | kMovesPositions,
      HelpOf(&StreamingLlmKeys),
      &MakeStreamingLlm};
}

}  // namespace coppice
