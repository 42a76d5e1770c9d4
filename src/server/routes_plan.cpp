// POST /plan: what a prune setting would do to a prompt of a given length, without a prompt.
#include "policies/registry.h"
#include "server/plan_context.h"
#include "server/prune_parameter.h"
#include "server/request_json.h"
#include "server/server.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

int64_t PromptTokens(const ordered_json& body, int64_t context) {
  const auto found = body.find("prompt_tokens");
  if (found == body.end() || !found->is_number_integer() || *found < 1 || *found > context) {
    throw BadField("prompt_tokens", fmt::format("is not a number of tokens from 1 to {}", context));
  }
  return found->get<int64_t>();
}

}  // namespace

void Server::Plan(const HttpRequest& request, const ExchangePtr& exchange) {
  const ordered_json body = ParseRequestObject(request.body);
  const int64_t tokens = PromptTokens(body, engine_->context());
  Parameters p = options_.defaults;
  if (const auto prune = body.find("prune"); prune != body.end() && !prune->is_null())
    ReadPrune(nlohmann::json(*prune), "prune", p);
  ordered_json plan = {{"prompt_tokens", tokens}};
  try {
    const PromptStates states =
        engine_->documents() != nullptr ? PromptStates::kKept : PromptStates::kDiscarded;
    const ResolvedPrune resolved = engine_->ResolvePrune(p.prune, tokens, states);
    const PruneChoice choice = MakePolicy(resolved.spec, PlanContext(*engine_, tokens), p.protection);
    plan.update({{"spec", choice.spec}, {"active", choice.active}});
    if (!choice.reason.empty()) plan["reason"] = choice.reason;
    if (!resolved.reason.empty()) plan["auto"] = resolved.reason;
  } catch (const Error& error) {
    throw BadField("prune", error.what());
  }
  Answer(exchange, plan);
}

}  // namespace coppice
