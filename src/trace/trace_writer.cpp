#include <fmt/core.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/new_file.h"
#include "base/utf8.h"
#include "trace/ranges.h"
#include "trace/texts.h"
#include "trace/trace_file.h"

namespace coppice {
namespace {

using Json = nlohmann::ordered_json;

// JSON strings must be UTF-8, but a token's bytes may end inside a character. Such a token is written in hex:
// {"bytes": "e282"}.
Json TokenJson(const std::string& bytes) {
  if (IsUtf8(bytes)) return bytes;
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<uint8_t>(c));
  return {{"bytes", hex}};
}

// The double that prints as the float does: 0.3, and not 0.30000001192092896.
double Shortest(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

void PutBytes(Json& line, const TraceBytes& bytes) {
  line["kv_bytes"] = bytes.kv;
  line["aux_bytes"] = bytes.aux;
  line["cold_bytes"] = bytes.cold;
}

Json HeaderJson(const Trace& trace) {
  Json line = {{"coppice_trace", kTraceVersion},
               {"model", ReplaceInvalidUtf8(trace.model)},
               {"prune", ReplaceInvalidUtf8(trace.spec)},
               {"backend", ReplaceInvalidUtf8(trace.backend)},
               {"layers", trace.layers},
               {"prompt_tokens", trace.prompt_tokens},
               {"steps", trace.steps.size()}};
  PutBytes(line, trace.prefill_bytes);
  line["kv_bytes_dense"] = trace.kv_bytes_dense;
  if (!trace.entered.empty()) line["entered"] = RangesText(trace.entered);
  Json& tokens = line["tokens"] = Json::array();
  for (const std::string& token : trace.tokens) tokens.push_back(TokenJson(token));
  return line;
}

// Leaves out what most layers repeat: kept positions equal to those of the layer below, and FFN rows equal to
// them.
Json LayerJson(const Trace& trace, int l) {
  const TraceLayer& layer = trace.prefill[static_cast<size_t>(l)];
  Json line = {{"layer", l}};
  if (l == 0 || layer.kept != trace.prefill[static_cast<size_t>(l) - 1].kept) {
    line["kept"] = RangesText(layer.kept);
  }
  if (layer.ffn != layer.kept) line["ffn"] = RangesText(layer.ffn);
  if (layer.rows_per_head != static_cast<int64_t>(layer.kept.size()))
    line["rows_per_head"] = layer.rows_per_head;
  line["density"] = layer.density;
  if (!layer.head_density.empty()) {
    Json& heads = line["head_density"] = Json::array();
    for (const float density : layer.head_density) heads.push_back(Shortest(density));
  }
  for (const std::vector<int32_t>& process : layer.computed) line["computed"].push_back(RangesText(process));
  return line;
}

Json StepJson(const TraceStep& step, size_t number) {
  Json line = {{"step", number}, {"position", step.position}, {"attended", step.attended}};
  PutBytes(line, step.bytes);
  Json& events = line["events"] = Json::array();
  for (const TraceEvent& event : step.events) {
    events.push_back({{"layer", event.layer},
                      {"kind", kTraceEventNames[static_cast<size_t>(event.kind)]},
                      {"positions", RangesText(event.positions)}});
  }
  return line;
}

}  // namespace

void WriteTrace(const Trace& trace, const std::string& path) {
  COPPICE_CHECK(static_cast<int>(trace.prefill.size()) == trace.layers);
  COPPICE_CHECK(static_cast<int64_t>(trace.tokens.size()) >= trace.prompt_tokens);
  COPPICE_CHECK(trace.steps.empty() || trace.steps.back().position < trace.Positions());
  NewFile out(path, "trace");
  out.Append(HeaderJson(trace).dump() + '\n');
  for (int l = 0; l < trace.layers; ++l) out.Append(LayerJson(trace, l).dump() + '\n');
  for (size_t s = 0; s < trace.steps.size(); ++s) out.Append(StepJson(trace.steps[s], s).dump() + '\n');
  out.Commit();
}

}  // namespace coppice
