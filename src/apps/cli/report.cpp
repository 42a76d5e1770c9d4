#include "apps/cli/report.h"

#include <fmt/core.h>

#include <algorithm>

#include "apps/cli/terminal.h"
#include "engine/prune_json.h"

namespace coppice::cli {

nlohmann::ordered_json AnswerJson(const Answer& answer, const std::string& text, const ChatPrompt& prompt,
                                  const Engine& engine) {
  nlohmann::ordered_json json = {{"text", text},
                                 {"prompt_tokens", prompt.tokens.size()},
                                 {"cached_tokens", answer.cached_tokens()},
                                 {"generated_tokens", answer.tokens.size()},
                                 {"finish_reason", answer.finish_reason},
                                 {"ttft_ms", answer.ttft_ms},
                                 {"total_ms", answer.total_ms},
                                 {"decode_tokens_per_second", answer.decode_tokens_per_second},
                                 {"proposed", answer.proposed},
                                 {"accepted", answer.accepted},
                                 {"backend", engine.backend().name()},
                                 {"isa", engine.backend().isa()},
                                 {"threads", engine.backend().threads()},
                                 {"prune", PruneJson(answer, prompt.question)}};
  if (!answer.ledger.processes.empty()) json["processes"] = ProcessesJson(answer.ledger.processes);
  return json;
}

nlohmann::ordered_json ProcessesJson(const std::vector<ProcessWork>& processes) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ProcessWork& work : processes) {
    list.push_back({{"kv_rows", work.rows.kv},
                    {"query_rows", work.rows.query},
                    {"ffn_rows", work.rows.ffn},
                    {"bytes_sent", work.bytes_sent},
                    {"seconds_waited", work.seconds_waited},
                    {"cpu_seconds", work.cpu_seconds}});
  }
  return list;
}

std::string KeptText(const Ledger& ledger) {
  double kv = 0;
  double ffn = 0;
  double ffn_dense = 0;
  const double prompt = static_cast<double>(ledger.prompt_tokens());
  const size_t layers = ledger.layers().size();
  for (size_t l = 0; l < layers; ++l) {
    kv += static_cast<double>(ledger.layers()[l].taken_over + ledger.layers()[l].kv_rows);
    ffn += static_cast<double>(ledger.layers()[l].ffn_rows);
    ffn_dense += l + 1 < layers ? prompt : 1;  // the last layer's FFN runs for the last position only
  }
  return fmt::format("{:.0f} % / {:.0f} %", 100 * kv / (prompt * static_cast<double>(layers)),
                     100 * ffn / ffn_dense);
}

std::string LinesBefore(const ChosenRun& chosen) {
  std::string lines;
  if (!chosen.auto_reason.empty()) {
    lines += fmt::format("auto: {}{}\n", chosen.auto_reason,
                         chosen.setting == "none" ? "" : fmt::format(": {}", chosen.setting));
  }
  if (!chosen.reason.empty()) lines += fmt::format("stands aside: {}\n", chosen.reason);
  return lines;
}

namespace {

// "6,621 tokens".
std::string TokensText(int64_t tokens) {
  std::string digits = fmt::format("{}", tokens);
  for (auto at = std::ssize(digits) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits + (tokens == 1 ? " token" : " tokens");
}

}  // namespace

std::string AnswerLine(const Answer& answer, int64_t most) {
  const Ledger& ledger = answer.ledger;
  const double seconds = answer.ttft_ms / 1000;
  std::string line =
      fmt::format("read {} in {} s", TokensText(ledger.prompt_tokens()),
                  seconds < 1 ? fmt::format("{:.1g}", seconds) : fmt::format("{:.1f}", seconds));
  if (answer.cached_tokens() > 0)
    line += fmt::format(", {} of them from the document cache", TokensText(answer.cached_tokens()));
  const std::string work =
      fmt::format("{:.0f} %", 100 * ledger.prefill_flops() / ledger.prefill_flops_dense());
  if (work != "100 %") line += fmt::format("; {} of the work of a full read", work);
  const auto written = std::ssize(answer.tokens);
  line += fmt::format("; wrote {}", TokensText(written));
  if (written > 1) line += fmt::format(", {:.1f} a second", answer.decode_tokens_per_second);
  if (answer.finish_reason == "length")
    line += fmt::format(" (cut at {}: {})", TokensText(written),
                        written == most ? "-n" : "the context is full, -c");
  return line;
}

std::string PruneLine(const Answer& answer) {
  if (answer.fell_back) return fmt::format("prune: {}", answer.prune_reason);
  const std::string aside =
      answer.prune_reason.empty() ? "" : fmt::format("stood aside: {}", answer.prune_reason);
  if (!answer.prune_active) {
    return aside.empty() ? "" : fmt::format("prune {}: {}", answer.prune_spec, aside);
  }
  const Ledger& ledger = answer.ledger;
  return fmt::format("prune {}: kept {} of the dense KV / FFN rows, {:.0f} % of the FLOPs, KV {} of {}{}{}",
                     answer.prune_spec, KeptText(ledger), 100 * ledger.flops() / ledger.flops_dense(),
                     BytesText(ledger.kv_bytes), BytesText(ledger.kv_bytes_dense), aside.empty() ? "" : "; ",
                     aside);
}

Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {median, values.front(), values.back()};
}

std::string Dump(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string AnswerText(const Answer& answer, const Engine& engine) {
  if (engine.tokenizer() == nullptr) return "";
  Utf8Stream stream;
  std::string text;
  for (const int32_t id : answer.tokens) text += stream.Push(engine.tokenizer()->Piece(id));
  return text + stream.Flush();
}

bool HeadIsAbsent(const Engine& engine) {
  const ModelConfig& config = engine.model().config();
  return config.tied_head && !config.hf_names && engine.store().Find("output.weight") == nullptr;
}

}  // namespace coppice::cli
