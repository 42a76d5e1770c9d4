#include "engine/prune_json.h"

#include <cmath>

namespace coppice {

nlohmann::ordered_json PruneJson(const Answer& answer, std::span<const PositionSpan> question) {
  const Ledger& ledger = answer.ledger;
  nlohmann::ordered_json kept = nlohmann::ordered_json::array();
  nlohmann::ordered_json ffn = nlohmann::ordered_json::array();
  nlohmann::ordered_json density = nlohmann::ordered_json::array();
  for (const LayerCounts& layer : ledger.layers()) {
    kept.push_back(layer.taken_over + layer.kv_rows);
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
  for (const PositionSpan& span : question) prune["question"].push_back({span.begin, span.end});
  if (!answer.protected_spans.empty()) {
    int64_t tokens = 0;
    for (const PositionSpan& span : answer.protected_spans) {
      prune["protected"].push_back({span.begin, span.end});
      tokens += span.end - span.begin;
    }
    prune["protected_tokens"] = tokens;
  }
  if (answer.confidence) {
    const Confidence& c = *answer.confidence;
    prune["confidence"] = {{"mean_probability", std::exp(c.mean_log_probability)},
                           {"first_probability", c.first_probability},
                           {"dropped_mass", c.dropped_mass}};
  }
  if (answer.fell_back) prune["fell_back"] = true;
  if (!answer.prune_reason.empty()) prune["reason"] = answer.prune_reason;
  if (!answer.auto_reason.empty()) prune["auto"] = answer.auto_reason;
  return prune;
}

}  // namespace coppice
