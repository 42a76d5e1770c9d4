#include "eval/results.h"

#include <fmt/core.h>

#include <algorithm>

#include "eval/json_fields.h"

namespace coppice {

using nlohmann::ordered_json;

// A row of places is written as [layer, share, ...].
static ordered_json Write(const PlaceRow& row) {
  ordered_json json = {row.layer};
  for (const double share : row.shares) json.push_back(share);
  return json;
}
static bool Read(const ordered_json& json, PlaceRow& row, WrongKind) {
  const auto is_number = [](const ordered_json& x) { return x.is_number(); };
  if (!json.is_array() || json.size() != kPlaces + 1 || !json[0].is_number_integer() ||
      !std::all_of(json.begin(), json.end(), is_number))
    return false;
  row = {json[0].get<int64_t>(), std::vector<double>(json.begin() + 1, json.end())};
  return true;
}

static ordered_json Write(const Interval& interval) {
  return std::isnan(interval.low) ? ordered_json() : ordered_json{interval.low, interval.high};
}
static bool Read(const ordered_json& json, Interval& interval, WrongKind wrong) {
  std::vector<double> ends;
  if (!json_fields::Read(json, ends, wrong) || ends.size() != 2) return false;
  interval = {ends[0], ends[1]};
  return true;
}

template <IsA<LayerUse> T, typename Field>
void Fields(T& use, const Field& field) {
  field("layer", use.layer);
  field("shares", use.shares);
}

template <IsA<TokenUse> T, typename Field>
void Fields(T& use, const Field& field) {
  field("all", use.all);
  field("last", use.last);
  field("layers", use.layers);
}

template <IsA<PartTimes> T, typename Field>
void Fields(T& parts, const Field& field) {
  for (size_t i = 0; i < kOpKindNames.size(); ++i) field(kOpKindNames[i], parts.ms[i]);
}

template <IsA<Confidence> T, typename Field>
void Fields(T& c, const Field& field) {
  field("dropped_mass", c.dropped_mass);
  field("first_probability", c.first_probability);
  field("mean_log_probability", c.mean_log_probability);
}

template <IsA<SampleResult> T, typename Field>
void Fields(T& r, const Field& field) {
  field("prune", r.prune);
  field("nll", r.nll);
  field("scored_tokens", r.scored_tokens);
  field("score", r.score);
  field("score_norm", r.score_norm);
  field("log_likelihoods", r.log_likelihoods);
  field("text", r.text);
  field("kl", r.kl);
  field("spec", r.spec);
  field("active", r.active);
  field("reason", r.reason);
  field("auto", r.auto_reason);
  field("prompt_tokens", r.prompt_tokens);
  field("generated_tokens", r.generated_tokens);
  field("finish_reason", r.finish_reason);
  field("ttft_ms", r.ttft_ms);
  field("total_ms", r.total_ms);
  field("decode_tokens_per_second", r.decode_tokens_per_second);
  field("flops", r.flops);
  field("flops_dense", r.flops_dense);
  field("confidence", r.confidence);
  field("kept_per_layer", r.kept_per_layer);
  field("ffn_per_layer", r.ffn_per_layer);
  field("density_per_layer", r.density_per_layer);
  field("kept_by_place", r.kept_by_place);
  field("ffn_by_place", r.ffn_by_place);
  field("used_by_step", r.used_by_step);
  field("parts_ms", r.parts_ms);
  field("kv_bytes", r.kv_bytes);
  field("kv_bytes_dense", r.kv_bytes_dense);
  field("aux_bytes", r.aux_bytes);
  field("cold_bytes", r.cold_bytes);
  field("peak_held_bytes", r.peak_held_bytes);
  field("peak_memory_bytes", r.peak_memory_bytes);
}

template <IsA<SampleRecord> T, typename Field>
void Fields(T& r, const Field& field) {
  field("task", r.task);
  field("length", r.length);
  field("id", r.id);
  field("metric", r.metric);
  field("prompt", r.prompt);
  field("depth", r.depth);
  field("references", r.references);
  field("question", r.question);
  field("cutter", r.cutter);
  field("attention_mass", r.attention_mass);
}

template <IsA<DepthScore> T, typename Field>
void Fields(T& place, const Field& field) {
  field("depth", place.depth);
  field("score", place.score);
  field("n", place.n);
}

template <IsA<ResultRow> T, typename Field>
void Fields(T& r, const Field& field) {
  field("task", r.task);
  field("length", r.length);
  field("prune", r.prune);
  field("metric", r.metric);
  field("score", r.score);
  field("score_error", r.score_error);
  field("score_interval", r.score_interval);
  field("score_norm", r.score_norm);
  field("win_rate", r.win_rate);
  field("verdicts", r.verdicts);
  field("n", r.n);
  field("ttft_ms", r.ttft_ms);
  field("speed_up", r.speed_up);
  field("total_speed_up", r.total_speed_up);
  field("flops", r.flops);
  field("flops_ratio", r.flops_ratio);
  field("kl", r.kl);
  field("active", r.active);
  field("spec", r.spec);
  field("reason", r.reason);
  field("auto", r.auto_reason);
  field("total_ms", r.total_ms);
  field("decode_tokens_per_second", r.decode_tokens_per_second);
  field("prompt_tokens", r.prompt_tokens);
  field("generated_tokens", r.generated_tokens);
  field("kv_bytes", r.kv_bytes);
  field("kv_bytes_dense", r.kv_bytes_dense);
  field("aux_bytes", r.aux_bytes);
  field("cold_bytes", r.cold_bytes);
  field("peak_held_bytes", r.peak_held_bytes);
  field("peak_memory_bytes", r.peak_memory_bytes);
  field("kept_per_layer", r.kept_per_layer);
  field("ffn_per_layer", r.ffn_per_layer);
  field("density_per_layer", r.density_per_layer);
  field("parts_ms", r.parts_ms);
  field("dropped_by_place", r.dropped_by_place);
  field("ffn_skipped_by_place", r.ffn_skipped_by_place);
  field("used_by_step", r.used_by_step);
  field("attention_mass", r.attention_mass);
  field("by_depth", r.by_depth);
}

ordered_json ToJson(const SampleResult& result) {
  ordered_json json = json_fields::Write(result);
  if (!result.log_likelihoods.empty()) {  // a choice is right or wrong, which is written as 1 or 0, not 1.0
    for (const char* name : {"score", "score_norm"}) json[name] = json[name].get<int>();
  }
  return json;
}

ordered_json ToJson(const SampleRecord& record) {
  ordered_json json = json_fields::Write(record);
  json["arms"] = ordered_json::array();
  for (const SampleResult& arm : record.arms) json["arms"].push_back(ToJson(arm));
  return json;
}

SampleRecord RecordFromJson(const ordered_json& json) {
  for (const char* name : {"task", "length", "id", "arms"}) {
    if (!json.is_object() || !json.contains(name)) throw Error("is no record of a sample");
  }
  auto record = FromJson<SampleRecord>(json);
  if (!json["arms"].is_array()) throw Error("is no record of a sample");
  for (const ordered_json& arm : json["arms"]) {
    if (!arm.is_object() || !arm.contains("prune")) throw Error("is no record of a sample");
    record.arms.push_back(FromJson<SampleResult>(arm));
  }
  return record;
}

ordered_json ToJson(const ResultRow& row) { return json_fields::Write(row); }

std::vector<std::string> AsideNotes(std::span<const ResultRow> rows) {
  struct Tally {
    std::string prune;
    std::string reason;  // in the first of the tasks
    int aside = 0;
    int all = 0;
  };
  std::vector<Tally> methods;
  for (const ResultRow& row : rows) {
    if (row.prune == "none" || row.prune.empty()) continue;
    auto at =
        std::find_if(methods.begin(), methods.end(), [&](const Tally& t) { return t.prune == row.prune; });
    if (at == methods.end()) at = methods.insert(at, {.prune = row.prune, .reason = {}});
    ++at->all;
    if (!row.StoodAside()) continue;
    if (++at->aside == 1) at->reason = row.reason;
  }
  std::vector<std::string> notes;
  for (const Tally& t : methods) {
    if (t.aside == 0) continue;
    // The papers prune five-shot prompts of a few hundred tokens.
    const bool too_short = t.reason.find("break-even") != std::string::npos;
    notes.push_back(fmt::format("{} stood aside in {} of {} tasks, which are dense there ({}){}", t.prune,
                                t.aside, t.all, t.reason,
                                too_short ? "; with min=0 it prunes prompts of every length" : ""));
  }
  return notes;
}

std::vector<ResultRow> RowsFromJson(const ordered_json& list) {
  std::vector<ResultRow> rows;
  for (const ordered_json& json : list) {
    if (!json.is_object()) continue;
    rows.push_back(FromJson<ResultRow>(json, WrongKind::kSkip));
    if (rows.back().task.empty() || rows.back().prune.empty()) rows.pop_back();
  }
  return rows;
}

}  // namespace coppice
