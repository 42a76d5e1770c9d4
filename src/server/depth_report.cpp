#include "server/depth_report.h"

#include "trace/texts.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

// [3, 3, 1] as [[3, 2], [1, 1]].
ordered_json RunsOf(const std::vector<int32_t>& depths) {
  ordered_json runs = ordered_json::array();
  for (size_t i = 0; i < depths.size();) {
    size_t end = i + 1;
    while (end < depths.size() && depths[end] == depths[i]) ++end;
    runs.push_back({depths[i], end - i});
    i = end;
  }
  return runs;
}

}  // namespace

std::vector<int32_t> DepthReport::PromptTokens(std::span<const int32_t> positions) {
  const std::vector<int32_t>& entered = trace().entered;
  std::vector<int32_t> tokens;
  tokens.reserve(positions.size());
  for (const int32_t p : positions) {
    if (p >= trace().PromptPositions()) break;
    tokens.push_back(entered.empty() ? p : entered[static_cast<size_t>(p)]);
  }
  return tokens;
}

ordered_json DepthReport::InAndOut(const std::vector<int32_t>& positions) {
  ordered_json lengths = ordered_json::array();
  int64_t end = 0;  // the end of the last run
  int64_t run = 0;
  const auto close = [&](int64_t next) {
    if (next == end) return;
    lengths.push_back(run);
    lengths.push_back(next - end);
    run = 0;
  };
  for (const int32_t token : PromptTokens(positions)) {
    close(token);
    ++run;
    end = token + 1;
  }
  if (run > 0) {
    lengths.push_back(run);
    if (end < prompt_tokens_) lengths.push_back(prompt_tokens_ - end);
  } else {
    lengths = {0, prompt_tokens_};
  }
  return lengths;
}

ordered_json DepthReport::TakeLayers() {
  ordered_json layers = ordered_json::array();
  const std::vector<TraceLayer>& done = trace().prefill;
  for (; told_ < done.size(); ++told_) {
    const TraceLayer& layer = done[told_];
    ordered_json item = {{"layer", told_}};
    if (told_ == 0 || layer.kept != done[told_ - 1].kept) item["kept"] = InAndOut(layer.kept);
    if (layer.ffn != layer.kept) item["ffn"] = InAndOut(layer.ffn);
    layers.push_back(std::move(item));
  }
  return layers;
}

void DepthReport::AddDepths(ordered_json& prune) {
  const std::vector<TraceLayer>& layers = trace().prefill;
  if (layers.empty() || static_cast<int>(layers.size()) != trace().layers) return;
  std::vector<int32_t> keys(static_cast<size_t>(prompt_tokens_));
  std::vector<int32_t> ffn(keys.size());
  const auto count = [&](std::span<const int32_t> positions, std::vector<int32_t>& depths) {
    for (const int32_t token : PromptTokens(positions)) ++depths[static_cast<size_t>(token)];
  };
  // In the last layer only the last position's FFN runs, whatever the method.
  bool skips_ffn = false;
  for (size_t l = 0; l < layers.size(); ++l) {
    count(layers[l].kept, keys);
    count(layers[l].ffn, ffn);
    skips_ffn |= l + 1 < layers.size() && layers[l].ffn != layers[l].kept;
  }
  prune["depth"] = RunsOf(keys);
  if (skips_ffn) prune["ffn_depth"] = RunsOf(ffn);
  const std::vector<int32_t> after_prefill = keys;
  for (const TraceStep& step : trace().steps) {
    for (const TraceEvent& event : step.events) {
      if (event.kind == TraceEventKind::kRevived) count(event.positions, keys);
    }
  }
  if (keys != after_prefill) prune["final_depth"] = RunsOf(keys);
}

ordered_json PromptPieces(const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  std::vector<std::string> pieces;
  pieces.reserve(tokens.size());
  for (const int32_t id : tokens) pieces.push_back(tokenizer.Piece(id, true));
  return TextsOfPieces(pieces);
}

}  // namespace coppice
