// StreamingLLM: attention sinks and a sliding window of recent tokens. No training. After the attention of
// every layer, in prefill and in each decode step, the cache keeps
//   [0, sink) and the last `recent` rows                              (1)
// at positions that are slots of the cache: a query never sees a key further away than the cache is long.
//
// The paper stores keys before RoPE and rotates all of them by their slots in every step. RoPE makes q . k
// depend on the difference of positions alone (ALiBi's bias likewise), so only distances count. The recent
// tokens keep their original positions p - recent + 1 .. p, which stand as slots do: one apart, the query's
// own last. What is left to do is to close the gap: the sinks move up to p - recent - sink + 1 .., right
// before the recent ones (Retained::close_gap). That rotates `sink` keys by one position per step instead of
// sink + recent keys, and gives the same differences for every pair of query and key, hence the same
// attention.
//
// Prefill is dense and then cut, as kvpress does it; the paper's alternative, eviction while the prompt is
// read, is a pattern of prefill attention (sinks and a window) and not of the cache. Protected rows stay
// besides (1) and move up with the sinks. They are remembered as rows, because positions that moved no longer
// tell them.
#include "policies/streamingllm.h"

#include <fmt/core.h>

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
  // The last row is pinned in every scene, for being last: that does not make it one to remember.
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

MethodInstance MakeStreamingLlm(const MethodSpec& spec, const MethodContext& context) {
  SpecReader read(spec);
  StreamingLlmConfig config;
  config.sink = read.Integer("sink", config.sink, 0, kManyTokens);
  config.recent = read.Integer("recent", config.recent, 1, kManyTokens);
  const int64_t minimum = read.Integer("min", 1024, 0, kManyTokens);
  read.RefuseUnknownKeys();

  MethodInstance made;
  made.settings = fmt::format("streamingllm:sink={},recent={},min={}", config.sink, config.recent, minimum);
  // Not where the prompt fits: the cache must stay as small while tokens are generated.
  made.reason = LengthReason(context, minimum);
  if (made.reason.empty()) made.policy = std::make_unique<StreamingLlmPolicy>(config);
  return made;
}

}  // namespace

MethodInfo StreamingLlmMethod() {
  return {
      "streamingllm",
      "evict keys and values: keep the first few tokens and a sliding window of recent ones",
      "StreamingLLM: efficient streaming language models with attention sinks, ICLR 2024, arXiv 2309.17453",
      kEvicts | kMovesPositions,
      {{"sink", "4", "0 up", "first tokens that stay"},
       {"recent", "1020", "1 up", "last tokens that stay"},
       {"min", "1024", "0 up", "shorter prompts run dense"}},
      &MakeStreamingLlm};
}

}  // namespace coppice
