#include "apps/cli/report.h"

#include <fmt/core.h>

#include <algorithm>

namespace coppice::cli {

nlohmann::ordered_json AnswerJson(const Answer& answer, const std::string& text, int64_t prompt_tokens,
                                  const Engine& engine) {
  const Ledger& ledger = answer.ledger;
  nlohmann::ordered_json kept = nlohmann::ordered_json::array();
  nlohmann::ordered_json ffn = nlohmann::ordered_json::array();
  nlohmann::ordered_json density = nlohmann::ordered_json::array();
  for (const LayerCounts& layer : ledger.layers()) {
    kept.push_back(layer.kv_rows);
    ffn.push_back(layer.ffn_rows);
    density.push_back(layer.density);
  }
  nlohmann::ordered_json prune = {{"spec", answer.prune_spec},
                                  {"active", answer.prune_active},
                                  {"kept_per_layer", kept},
                                  {"ffn_rows_per_layer", ffn},
                                  {"token_layers", ledger.token_layers()},
                                  {"token_layers_dense", ledger.token_layers_dense()},
                                  {"flops", ledger.flops()},
                                  {"flops_dense", ledger.flops_dense()},
                                  {"selection_flops", ledger.selection_flops},
                                  {"revived", ledger.revived},
                                  {"swaps", ledger.swaps},
                                  {"blocks_written", ledger.blocks_written},
                                  {"blocks_loaded", ledger.blocks_loaded},
                                  {"kv_bytes", ledger.kv_bytes},
                                  {"aux_bytes", ledger.aux_bytes},
                                  {"cold_bytes", ledger.cold_bytes},
                                  {"kv_bytes_dense", ledger.kv_bytes_dense},
                                  {"peak_kv_bytes", ledger.peak_kv_bytes},
                                  {"peak_held_bytes", ledger.peak_held_bytes},
                                  {"attention_density_per_layer", density}};
  if (!answer.prune_reason.empty()) prune["reason"] = answer.prune_reason;
  return {{"text", text},
          {"prompt_tokens", prompt_tokens},
          {"generated_tokens", answer.tokens.size()},
          {"finish_reason", answer.finish_reason},
          {"ttft_ms", answer.ttft_ms},
          {"total_ms", answer.total_ms},
          {"decode_tokens_per_second", answer.decode_tokens_per_second},
          {"backend", engine.backend().name()},
          {"isa", engine.backend().isa()},
          {"threads", engine.backend().threads()},
          {"prune", prune}};
}

std::string KeptText(const Ledger& ledger) {
  double kv = 0;
  double ffn = 0;
  double ffn_dense = 0;
  const double prompt = static_cast<double>(ledger.prompt_tokens());
  const size_t layers = ledger.layers().size();
  for (size_t l = 0; l < layers; ++l) {
    kv += static_cast<double>(ledger.layers()[l].kv_rows);
    ffn += static_cast<double>(ledger.layers()[l].ffn_rows);
    ffn_dense += l + 1 < layers ? prompt : 1;  // the last layer's FFN runs for the last position only
  }
  return fmt::format("{:.0f} % / {:.0f} %", 100 * kv / (prompt * static_cast<double>(layers)),
                     100 * ffn / ffn_dense);
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

}  // namespace coppice::cli
