#include "server/native_reply.h"

namespace coppice {

nlohmann::ordered_json SettingsJson(const Parameters& p) {
  const SamplingOptions& s = p.sampling;
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
          {"ignore_eos", p.ignore_eos},
          {"stream", p.stream},
          {"stop", p.stop},
          {"n_probs", p.log_probs ? p.top_log_probs : 0},
          {"prune", p.prune},
          {"complete", p.complete}};
}

nlohmann::ordered_json NativeEnding(const JobResult& result, const Parameters& parameters) {
  const char* type = !result.stop_string.empty() ? "word" : result.finish_reason == "stop" ? "eos" : "limit";
  return {{"generation_settings", SettingsJson(parameters)},
          {"truncated", false},
          {"stop_type", type},
          {"stopping_word", result.stop_string}};
}

}  // namespace coppice
