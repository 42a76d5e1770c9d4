#include "server/timings.h"

#include <algorithm>

namespace coppice {

ReplyFigures& ReplyFigures::operator+=(const ReplyFigures& other) {
  prompt += other.prompt;
  cached += other.cached;
  sampled += other.sampled;
  thinking += other.thinking;
  decoded += other.decoded;
  proposed += other.proposed;
  accepted += other.accepted;
  prompt_ms += other.prompt_ms;
  decode_ms += other.decode_ms;
  return *this;
}

double ReplyFigures::decoded_per_second() const {
  return decode_ms > 0 ? 1000 * static_cast<double>(decoded) / decode_ms : 0;
}

ReplyFigures FiguresOf(const JobResult& result, int64_t prompt_tokens, int64_t cached) {
  return {.prompt = prompt_tokens,
          .cached = cached,
          .sampled = result.sampled,
          .thinking = result.thinking,
          .decoded = std::max<int64_t>(result.sampled - 1, 0),
          .proposed = result.answer.proposed,
          .accepted = result.answer.accepted,
          .prompt_ms = result.answer.ttft_ms,
          .decode_ms = result.answer.total_ms - result.answer.ttft_ms};
}

// The time of the first token counts as the prompt's, so rates of decode leave it out.
nlohmann::ordered_json TimingsJson(const ReplyFigures& f, const std::optional<ReuseReport>& reuse) {
  const auto rate = [](double count, double ms) { return ms > 0 ? 1000 * count / ms : 0.0; };
  const auto each = [](double count, double ms) { return count > 0 ? ms / count : 0.0; };
  const auto prompt = static_cast<double>(f.prompt - f.cached);
  const auto decoded = static_cast<double>(f.decoded);
  nlohmann::ordered_json timings = {{"cache_n", f.cached},
                                    {"prompt_n", f.prompt - f.cached},
                                    {"prompt_ms", f.prompt_ms},
                                    {"prompt_per_token_ms", each(prompt, f.prompt_ms)},
                                    {"prompt_per_second", rate(prompt, f.prompt_ms)},
                                    {"predicted_n", f.sampled},
                                    {"predicted_ms", f.decode_ms},
                                    {"predicted_per_token_ms", each(decoded, f.decode_ms)},
                                    {"predicted_per_second", f.decoded_per_second()}};
  if (f.proposed > 0) {
    timings["draft_n"] = f.proposed;
    timings["draft_n_accepted"] = f.accepted;
  }
  if (reuse) timings["cache"] = ReuseJson(*reuse);
  return timings;
}

}  // namespace coppice
