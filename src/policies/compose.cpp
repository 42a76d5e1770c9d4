#include "policies/compose.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace coppice {

namespace {

class ComposedPolicy final : public TokenPolicy {
 public:
  ComposedPolicy(std::vector<std::unique_ptr<TokenPolicy>> policies, const Protection& protection)
      : policies_(std::move(policies)), protection_(protection) {}

  Needs NeedsAt(int layer) const override {
    Needs all;
    for (const auto& policy : policies_) all.Merge(policy->NeedsAt(layer));
    return all;
  }
  TokenSet BeforeLayer(const Observation& seen, Backend& be) override {
    return Ask(seen, be, &TokenPolicy::BeforeLayer);
  }
  TokenSet AfterAttention(const Observation& seen, Backend& be) override {
    return Ask(seen, be, &TokenPolicy::AfterAttention);
  }
  TokenSet RunFfn(const Observation& seen, Backend& be) override {
    return Ask(seen, be, &TokenPolicy::RunFfn);
  }

 private:
  using Question = TokenSet (TokenPolicy::*)(const Observation&, Backend&);

  TokenSet Ask(const Observation& seen, Backend& be, Question question) {
    TokenSet answer = TokenSet::All(seen.rows());
    for (const auto& policy : policies_) {
      const TokenSet one = ((*policy).*question)(seen, be);
      COPPICE_CHECK(one.universe() == seen.rows());
      answer = answer.Intersect(one);
    }
    return answer.IsAll() ? answer : AddProtected(std::move(answer), seen);
  }

  TokenSet AddProtected(TokenSet answer, const Observation& seen) const {
    const auto rows_below = [&](int64_t position) {
      return std::lower_bound(seen.positions.begin(), seen.positions.end(), position) -
             seen.positions.begin();
    };
    const int64_t first = rows_below(protection_.first);
    const int64_t last = seen.rows() - rows_below(seen.prompt_tokens - protection_.last);
    return answer.UnionFirst(first).UnionLast(std::max<int64_t>(last, 1));
  }

  std::vector<std::unique_ptr<TokenPolicy>> policies_;
  Protection protection_;
};

}  // namespace

std::unique_ptr<TokenPolicy> Compose(std::vector<std::unique_ptr<TokenPolicy>> policies,
                                     const Protection& protection) {
  return std::make_unique<ComposedPolicy>(std::move(policies), protection);
}

}  // namespace coppice
