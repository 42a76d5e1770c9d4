#include "server/native_reply.h"

namespace coppice {

nlohmann::ordered_json SettingsJson(const Parameters& p) {
  const SamplingOptions& s = p.sampling;
  nlohmann::ordered_json biases = nlohmann::ordered_json::array();
  for (const TokenBias& bias : s.logit_bias) biases.push_back({{"token", bias.id}, {"bias", bias.bias}});
  return {{"n_predict", p.max_tokens.value_or(-1)},
          {"temperature", s.temperature},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"typical_p", s.typical_p},
          {"top_n_sigma", s.top_n_sigma},
          {"xtc_probability", s.xtc_probability},
          {"xtc_threshold", s.xtc_threshold},
          {"repeat_penalty", s.repeat_penalty},
          {"repeat_last_n", s.repeat_last_n},
          {"presence_penalty", s.presence_penalty},
          {"frequency_penalty", s.frequency_penalty},
          {"dry_multiplier", s.dry.multiplier},
          {"dry_base", s.dry.base},
          {"dry_allowed_length", s.dry.allowed_length},
          {"dry_penalty_last_n", s.dry.last_n},
          {"dry_sequence_breakers", p.dry_breakers},
          {"logit_bias", std::move(biases)},
          {"seed", p.seed ? nlohmann::ordered_json(*p.seed) : nlohmann::ordered_json(-1)},
          {"min_tokens", p.min_tokens},
          {"ignore_eos", p.ignore_eos},
          {"prompt_lookup", p.prompt_lookup},
          {"stream", p.stream},
          {"stop", p.stop},
          {"n_probs", p.log_probs ? p.top_log_probs : 0},
          {"prune", p.prune},
          {"complete", p.complete}};
}

nlohmann::ordered_json NativeEnding(const JobResult& result, const Parameters& parameters) {
  // The context was full before the answer was as long as it might have been.
  const int64_t most = parameters.max_tokens.value_or(-1);
  const bool truncated = result.finish_reason == "length" && (most < 0 || result.sampled < most);
  const char* type = !result.stop_string.empty() ? "word" : result.finish_reason == "stop" ? "eos" : "limit";
  return {{"generation_settings", SettingsJson(parameters)},
          {"truncated", truncated},
          {"stop_type", type},
          {"stopping_word", result.stop_string}};
}

}  // namespace coppice
