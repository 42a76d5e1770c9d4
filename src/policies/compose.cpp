#include "policies/compose.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "tensor/merge_spans.h"

namespace coppice {

namespace {

class ComposedPolicy final : public TokenPolicy {
 public:
  ComposedPolicy(std::vector<std::unique_ptr<TokenPolicy>> policies, Protection protection,
                 std::optional<DroppedMassMeter> meter)
      : policies_(std::move(policies)), protection_(std::move(protection)), meter_(meter) {}

  // The registry lets at most one method park tokens, and at most one ask for pages.
  PolicyFacts Facts() const override {
    PolicyFacts all;
    for (const auto& policy : policies_) {
      const PolicyFacts one = policy->Facts();
      all.compact_positions |= one.compact_positions;
      if (one.parks && !all.parks) all.revive_mask = one.revive_mask;
      all.parks |= one.parks;
      if (all.page_size == 0) all.page_size = one.page_size;
      if (all.offload_block == 0) all.offload_block = one.offload_block;
      all.fills |= one.fills;
      if (all.one_process.empty()) all.one_process = one.one_process;
    }
    return all;
  }

  TokenSet Input(int64_t tokens, Backend& be) override {
    TokenSet answer = TokenSet::All(tokens);
    for (const auto& policy : policies_)
      answer = answer.Intersect(Checked(policy->Input(tokens, be), tokens));
    if (answer.IsAll()) return answer;
    std::vector<int32_t> protected_tokens = {static_cast<int32_t>(tokens - 1)};
    for (const PositionSpan& span : AlwaysStay(tokens)) {
      for (int64_t p = span.begin; p < span.end; ++p) protected_tokens.push_back(static_cast<int32_t>(p));
    }
    answer = answer.Union(TokenSet::Of(std::move(protected_tokens), tokens));
    if (Facts().compact_positions && !answer.IsAll()) Renumber(answer, tokens);
    return answer;
  }

  LayerPoint FirstChoice() const override {
    LayerPoint first = kNoPoint;
    for (const auto& policy : policies_) first = std::min(first, policy->FirstChoice());
    return first;
  }
  std::vector<PositionSpan> AlwaysStay(int64_t tokens) const override {
    Protection with_last_row = protection_;
    with_last_row.last = std::max<int64_t>(protection_.last, 1);
    return SpansOf(with_last_row, tokens);
  }
  Needs NeedsAt(Phase phase, int layer) const override {
    Needs all;
    for (const auto& policy : policies_) all.Merge(policy->NeedsAt(phase, layer));
    if (meter_) all.Merge(meter_->NeedsAt(phase, layer));
    return all;
  }
  bool ReadsHidden(int layer) const override {
    return Find([&](const TokenPolicy& p) { return p.ReadsHidden(layer); }) != nullptr;
  }
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override {
    TokenSet kept = Ask(seen, be, &TokenPolicy::BeforeLayer);
    if (meter_) meter_->BeforeLayer(seen, kept);
    return kept;
  }
  TokenSet AfterAttention(const Observation& seen, Backend& be) override {
    TokenSet kept = Ask(seen, be, &TokenPolicy::AfterAttention);
    if (meter_) meter_->AfterAttention(seen, kept);
    return kept;
  }
  TokenSet RunFfn(const Observation& seen, Backend& be) override {
    return Ask(seen, be, &TokenPolicy::RunFfn);
  }
  bool ProbesAttention(int layer) const override {
    return Find([&](const TokenPolicy& p) { return p.ProbesAttention(layer); }) != nullptr;
  }
  TokenSet RunAttention(const Observation& seen, Backend& be) override {
    return Ask(seen, be, &TokenPolicy::RunAttention);
  }
  // Only one method fills; the answers of the others are empty.
  TokenSet FillFrom(const Observation& seen, const TokenSet& ran) override {
    TokenSet from = TokenSet::None(ran.universe());
    for (const auto& policy : policies_)
      from = from.Union(Checked(policy->FillFrom(seen, ran), ran.universe()));
    return from.Intersect(ran);
  }

  bool ChoosesPattern(Phase phase, int layer) const override {
    return Find([&](const TokenPolicy& p) { return p.ChoosesPattern(phase, layer); }) != nullptr;
  }
  SparsePattern Pattern(const AttentionScene& scene, Backend& be) override {
    TokenPolicy* one = Find([&](const TokenPolicy& p) { return p.ChoosesPattern(scene.phase, scene.layer); });
    return one == nullptr ? SparsePattern{} : one->Pattern(scene, be);
  }

  bool RetainsAt(Phase phase, int layer) const override {
    return Find([&](const TokenPolicy& p) { return p.RetainsAt(phase, layer); }) != nullptr;
  }
  std::optional<Retained> Retain(const Observation& seen, const CacheScene& cache, Backend& be) override {
    TokenPolicy* one = Find([&](const TokenPolicy& p) { return p.RetainsAt(seen.phase, seen.layer); });
    if (one == nullptr) return std::nullopt;
    CacheScene scene = cache;
    scene.pinned.clear();
    for (const std::span<const int32_t> positions : cache.positions) {
      // Generated tokens can be evicted; otherwise no method could keep its budget.
      const auto prompt = std::lower_bound(positions.begin(), positions.end(), seen.prompt_tokens);
      const TokenSet evictable = TokenSet::Range(0, prompt - positions.begin(), cache.rows).UnionLast(1);
      scene.pinned.push_back(ProtectedRows(positions, seen.prompt_tokens).Intersect(evictable));
    }
    std::optional<Retained> answer = one->Retain(seen, scene, be);
    if (!answer) return std::nullopt;
    COPPICE_CHECK(answer->rows.size() == 1 || answer->rows.size() >= cache.positions.size());
    for (size_t list = 0; list < answer->rows.size(); ++list) {
      const TokenSet& rows = Checked(answer->rows[list], cache.rows);
      COPPICE_CHECK(rows.size() == answer->rows.front().size() && rows.Contains(cache.rows - 1));
      const TokenSet& pinned = scene.pinned[std::min(list, scene.pinned.size() - 1)];
      COPPICE_CHECK(rows.Intersect(pinned).size() == pinned.size());
    }
    return answer;
  }

  DecodePoint AttendsAt(int layer) const override {
    const TokenPolicy* one =
        Find([&](const TokenPolicy& p) { return p.AttendsAt(layer) != DecodePoint::kNone; });
    return one == nullptr ? DecodePoint::kNone : one->AttendsAt(layer);
  }
  TokenSet Attend(const Observation& seen, const Candidates& candidates, Backend& be) override {
    TokenPolicy* one =
        Find([&](const TokenPolicy& p) { return p.AttendsAt(seen.layer) != DecodePoint::kNone; });
    const auto count = static_cast<int64_t>(candidates.positions.size());
    if (one == nullptr) return TokenSet::All(count);
    const int64_t front = FrontOf(protection_, seen.prompt_tokens);
    if (front > 0) {
      const auto before =
          std::ranges::lower_bound(candidates.positions, front) - candidates.positions.begin();
      const auto from = static_cast<size_t>(before);
      const Candidates behind{candidates.positions.subspan(from), candidates.parked.subspan(from)};
      const TokenSet chosen =
          Checked(one->Attend(seen.Behind(front, EnteredFrom(front, seen)), behind, be), count - before);
      if (chosen.IsAll()) return TokenSet::All(count);
      return chosen.Shift(before, count)
          .UnionFirst(before)
          .Union(ProtectedRows(candidates.positions, seen.prompt_tokens));
    }
    const TokenSet answer = Checked(one->Attend(seen, candidates, be), count);
    return answer.IsAll() ? answer : answer.Union(ProtectedRows(candidates.positions, seen.prompt_tokens));
  }

 private:
  using Question = TokenSet (TokenPolicy::*)(const Observation&, Backend&);

  template <typename Predicate>
  TokenPolicy* Find(Predicate&& predicate) const {
    for (const auto& policy : policies_) {
      if (predicate(*policy)) return policy.get();
    }
    return nullptr;
  }
  static const TokenSet& Checked(const TokenSet& answer, int64_t universe) {
    COPPICE_CHECK(answer.universe() == universe);
    return answer;
  }

  TokenSet Ask(const Observation& whole, Backend& be, Question question) {
    const int64_t front = FrontOf(protection_, whole.prompt_tokens);
    if (front == 0 || policies_.empty()) return AskAbout(whole, be, question);
    const Observation behind = whole.Behind(front, EnteredFrom(front, whole));
    const TokenSet answer = AskAbout(behind, be, question);
    if (answer.IsAll()) return TokenSet::All(whole.rows());
    const int64_t before = whole.rows() - behind.rows();
    return answer.Shift(before, whole.rows()).UnionFirst(before);
  }

  // The prompt's positions from `front` on.
  std::span<const int32_t> EnteredFrom(int64_t front, const Observation& seen) {
    COPPICE_CHECK(seen.entered.empty());  // MakePolicy: no method that chooses the input
    if (behind_.empty()) {
      behind_.resize(static_cast<size_t>(seen.prompt_tokens - front));
      std::iota(behind_.begin(), behind_.end(), static_cast<int32_t>(front));
    }
    return behind_;
  }

  TokenSet AskAbout(const Observation& seen, Backend& be, Question question) {
    TokenSet answer = TokenSet::All(seen.rows());
    for (const auto& policy : policies_) {
      answer = answer.Intersect(Checked(((*policy).*question)(seen, be), seen.rows()));
    }
    return answer.IsAll() ? answer : answer.Union(ProtectedRows(seen.positions, seen.prompt_tokens));
  }

  // The rows of `positions` that must stay: protected prompt tokens, all generated tokens, and the last row.
  TokenSet ProtectedRows(std::span<const int32_t> positions, int64_t prompt_tokens) const {
    const auto rows = static_cast<int64_t>(positions.size());
    const auto rows_below = [&](int64_t position) {
      return std::lower_bound(positions.begin(), positions.end(), position) - positions.begin();
    };
    const int64_t last = rows - rows_below(prompt_tokens - protection_.last);
    TokenSet answer =
        TokenSet::None(rows).UnionFirst(rows_below(protection_.first)).UnionLast(std::max<int64_t>(last, 1));
    for (const Protection::Span& span : protection_.spans) {
      const int64_t begin = rows_below(span.begin);
      const int64_t end = rows_below(span.end);
      if (begin < end) answer = answer.Union(TokenSet::Range(begin, end, rows));
    }
    return answer;
  }

  // Moves the protection to the new positions of the protected tokens.
  void Renumber(const TokenSet& entered, int64_t tokens) {
    const auto renumbered = [&](int64_t position) {
      const std::span<const int32_t> rows = entered.rows();
      return static_cast<int64_t>(std::lower_bound(rows.begin(), rows.end(), position) - rows.begin());
    };
    const int64_t tail = std::max<int64_t>(tokens - protection_.last, 0);
    protection_.first = renumbered(protection_.first);
    protection_.last = entered.size() - renumbered(tail);
    for (Protection::Span& span : protection_.spans) span = {renumbered(span.begin), renumbered(span.end)};
  }

  std::vector<std::unique_ptr<TokenPolicy>> policies_;
  Protection protection_;
  std::optional<DroppedMassMeter> meter_;
  std::vector<int32_t> behind_;  // EnteredFrom
};

}  // namespace

std::vector<PositionSpan> SpansOf(const Protection& protection, int64_t tokens) {
  std::vector<PositionSpan> all = protection.spans;
  all.push_back({0, protection.first});
  all.push_back({tokens - protection.last, tokens});
  for (PositionSpan& span : all)
    span = {std::clamp<int64_t>(span.begin, 0, tokens), std::clamp<int64_t>(span.end, 0, tokens)};
  return MergeSpans(std::move(all));
}

int64_t FrontOf(const Protection& protection, int64_t tokens) {
  if (!protection.apart) return 0;
  const std::vector<PositionSpan> spans = SpansOf(protection, tokens);
  return spans.empty() || spans.front().begin > 0 ? 0 : std::min(spans.front().end, tokens - 1);
}

std::unique_ptr<TokenPolicy> Compose(std::vector<std::unique_ptr<TokenPolicy>> policies,
                                     const Protection& protection, std::optional<DroppedMassMeter> meter) {
  return std::make_unique<ComposedPolicy>(std::move(policies), protection, meter);
}

}  // namespace coppice
