#include "policies/method_info.h"

#include <fmt/core.h>

namespace coppice {

std::string WindowReason(const MethodContext& context) {
  const int32_t window = context.shape.WidestWindow();
  if (window == 0 || context.tokens <= window) return "";
  return fmt::format("the model attends in a sliding window of {} tokens, shorter than the prompt", window);
}

std::string WindowReason(const MethodContext& context, int layer) {
  if (!context.shape.layer(layer).attends()) {
    return fmt::format("it scores in layer {}, which has {} instead of attention", layer,
                       context.shape.layer(layer).has_state() ? "a state" : "an FFN alone");
  }
  const int32_t window = context.shape.layer(layer).window;
  if (window == 0 || context.tokens <= window) return "";
  return fmt::format(
      "it scores in layer {}, which attends in a sliding window of {} tokens, shorter than the prompt", layer,
      window);
}

std::string WindowReason(const MethodContext& context, const TokenPolicy& policy) {
  for (int layer = 0; layer < context.shape.layer_count(); ++layer) {
    if (policy.NeedsAt(Phase::kPrefill, layer).empty()) continue;
    const std::string reason = WindowReason(context, layer);
    if (!reason.empty()) return reason;
  }
  return "";
}

std::string StateReason(const MethodContext& context, const TokenPolicy& policy) {
  if (!context.shape.HasStates()) return "";
  if (policy.Facts().parks) return "layers of the model carry states, into which no dropped token can return";
  for (int layer = 0; layer < context.shape.layer_count(); ++layer) {
    if (policy.ProbesAttention(layer))
      return "layers of the model carry states, which need every token that the layers above get";
    if (policy.AttendsAt(layer) != DecodePoint::kNone || policy.RetainsAt(Phase::kPrefill, layer) ||
        policy.RetainsAt(Phase::kDecode, layer))
      return "most of the model's layers carry states instead of the keys that it would choose among";
  }
  return "";
}

std::string NothingToDrop(const MethodContext& context, int64_t stays) {
  if (context.tokens > stays) return "";
  return fmt::format("{} prompt tokens are no more than it always keeps", context.tokens);
}

std::string LengthReason(const MethodContext& context, int64_t minimum) {
  if (context.tokens >= minimum) return "";
  return fmt::format("{} prompt tokens are below its break-even of {}", context.tokens, minimum);
}

}  // namespace coppice
