#include "apps/cli/bench_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "apps/cli/bench_bounds.h"
#include "apps/cli/terminal.h"
#include "policies/methods/sdtp.h"

namespace coppice::cli {

namespace {

using nlohmann::ordered_json;

double Tflops(double flops, double ms) { return ms > 0 ? flops / ms / 1e9 : 0; }

int64_t StoredBytes(const TensorStore& store) {
  int64_t bytes = 0;
  for (const StoredTensor& t : store.tensors()) bytes += t.view.rows * BytesOf(t.view.dtype, t.view.cols);
  return bytes;
}

std::string Number(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }
std::string Times(double value) { return Number(value, 2) + "x"; }
std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

template <typename Row>
std::string AskedText(const Row& row) {
  return row.prune != "none" && !row.active ? row.asked + " (stood aside)" : row.asked;
}

std::string Name(const PlanRow& row) { return AskedText(row); }
std::string Name(const BenchRow& row) {
  if (row.second_question == 0) return AskedText(row);
  return fmt::format("{}, question 2 of {}", AskedText(row), row.second_question);
}

// All columns but the second hold numbers.
Table NewTable(const std::vector<std::string>& header) {
  std::vector<bool> right(header.size(), true);
  right[1] = false;
  return {header, right};
}

std::string ResultTable(const std::vector<BenchRow>& rows) {
  std::vector<std::string> header = {"prompt",      "prune",      "kept KV / FFN", "TTFT ms",    "min",
                                     "max",         "tokens/s",   "TFLOP/s",       "speed-up",   "FLOP bound",
                                     "share of it", "time bound", "share of it",   "peak memory"};
  const bool decoded = rows.front().decode_tokens_per_second.has_value();
  if (decoded) header.emplace_back("decode tokens/s");
  Table table = NewTable(header);
  for (const BenchRow& r : rows) {
    std::vector<std::string> cells = {std::to_string(r.prompt),
                                      Name(r),
                                      r.kept,
                                      Number(r.ttft_ms.median, 0),
                                      Number(r.ttft_ms.min, 0),
                                      Number(r.ttft_ms.max, 0),
                                      Number(r.tokens_per_second, 1),
                                      Number(r.tflops_per_second, 3),
                                      Times(r.speed_up),
                                      Times(r.flop_bound),
                                      Percent(r.share_of_bound),
                                      Times(r.time_bound),
                                      Percent(r.share_of_time_bound),
                                      BytesText(r.peak_bytes)};
    if (decoded) cells.push_back(Number(r.decode_tokens_per_second.value_or(Spread{}).median, 1));
    table.Add(cells);
  }
  return table.Markdown();
}

std::string TimeTable(const std::vector<BenchRow>& rows) {
  std::vector<std::string> header = {"prompt",       "prune",        "products ms",    "TFLOP/s",
                                     "attention ms", "TFLOP/s",      "packing ms",     "rows ms",
                                     "scoring ms",   "selection ms", "single rows ms", "other ms"};
  const bool recurs =
      std::ranges::any_of(rows, [](const BenchRow& r) { return r.part_ms(OpKind::kRecurrence) > 0; });
  if (recurs) header.emplace_back("recurrence ms");
  Table table = NewTable(header);
  for (const BenchRow& r : rows) {
    const auto ms = [&r](OpKind kind) { return Number(r.part_ms(kind), 0); };
    std::vector<std::string> cells = {std::to_string(r.prompt),   Name(r),
                                      ms(OpKind::kProduct),       Number(r.product_tflops_per_second, 3),
                                      ms(OpKind::kAttention),     Number(r.attention_tflops_per_second, 3),
                                      ms(OpKind::kPack),          ms(OpKind::kRows),
                                      ms(OpKind::kScoring),       ms(OpKind::kSelection),
                                      ms(OpKind::kDecodeProduct), Number(r.other_ms, 0)};
    if (recurs) cells.push_back(ms(OpKind::kRecurrence));
    table.Add(cells);
  }
  return table.Markdown();
}

// What auto chose, a line for each row that it chose for.
template <typename Row>
std::string AutoRows(const std::vector<Row>& rows) {
  std::string lines;
  for (const Row& row : rows) {
    if (!row.auto_reason.empty()) lines += fmt::format("\nauto, {} tokens: {}", row.prompt, row.auto_reason);
  }
  return lines.empty() ? "" : lines + "\n";
}

// Of the last round. Nothing for one process.
std::string ProcessTable(const std::vector<BenchRow>& rows) {
  Table table =
      NewTable({"prompt", "prune", "", "K/V rows", "queries", "FFN rows", "sent", "waited s", "CPU s"});
  for (const BenchRow& r : rows) {
    for (size_t p = 0; p < r.processes.size(); ++p) {
      const ProcessWork& work = r.processes[p];
      table.Add({std::to_string(r.prompt), Name(r), fmt::format("process {}", p),
                 std::to_string(work.rows.kv), std::to_string(work.rows.query), std::to_string(work.rows.ffn),
                 BytesText(work.bytes_sent), Number(work.seconds_waited, 2), Number(work.cpu_seconds, 2)});
    }
  }
  return rows.front().processes.empty() ? "" : "\n" + table.Markdown();
}

// The whole spec behind each name of the table, below it, because it would make the table too wide.
template <typename Row>
std::string SpecLines(const std::vector<Row>& rows) {
  std::string lines;
  for (const Row& row : rows) {
    const std::string line = fmt::format("\n{}: {}", row.asked, row.prune);
    if (row.asked != row.prune && lines.find(line + "\n") == std::string::npos) lines += line + "\n";
  }
  return lines;
}

template <typename Row>
std::string ExpertLines(const std::vector<Row>& rows) {
  std::string lines;
  for (const Row& row : rows) {
    if (row.experts.dense > 0)
      lines += fmt::format("\n{}, {} tokens: reads {} experts, a dense prefill {:.0f}\n", Name(row),
                           row.prompt, row.experts.run, row.experts.dense);
  }
  return lines;
}

void AddExperts(const ExpertReads& experts, ordered_json& json) {
  if (experts.dense == 0) return;
  json["experts_read"] = experts.run;
  json["experts_read_dense"] = experts.dense;
}

ExpertReads ReadsOf(const Ledger& ledger) { return {ledger.experts_read(), ledger.experts_read_dense()}; }

// Of a layer's last matrix, as of most of its weights.
DType TypeOf(const LayerWeights& layer) {
  const std::vector<Linear>& experts = layer.mixture.down;
  if (!experts.empty()) return experts.front().weight.dtype;
  return (layer.down.weight.empty() ? layer.output : layer.down).weight.dtype;
}

std::string CsvCell(const ordered_json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : Dump(value);
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

BenchRow MakeRow(const Engine& engine, int64_t tokens, const BenchSample& sample, const BenchSample& dense) {
  const Ledger& ledger = sample.last.ledger;
  const PrefillFlops flops = ledger.prefill_parts();
  const Bounds bounds = BoundsOf(engine.model().config().shape, ledger, sample.second > 0, dense);
  const double dense_ms = SpreadOf(dense.ttft_ms).median;
  BenchRow row;
  row.model = engine.store().path();
  row.type = Info(TypeOf(engine.model().weights().layers.front())).name;
  row.backend = engine.backend().name();
  row.isa = engine.backend().isa();
  row.threads = engine.backend().threads();
  row.rounds = static_cast<int64_t>(sample.ttft_ms.size());
  row.prompt = tokens;
  row.asked = sample.asked;
  row.prune = sample.last.prune_spec;
  row.active = sample.last.prune_active;
  row.auto_reason = sample.last.auto_reason;
  row.second_question = sample.second;
  row.cached_tokens = ledger.cached_tokens;
  row.kept = KeptText(ledger);

  row.ttft_ms = SpreadOf(sample.ttft_ms);
  const double ttft = row.ttft_ms.median;
  row.tokens_per_second = 1000 * static_cast<double>(tokens) / ttft;
  row.tflops_per_second = Tflops(ledger.prefill_flops(), ttft);
  row.speed_up = dense_ms / ttft;
  row.flop_bound = ledger.prefill_flops_dense() / ledger.prefill_flops();
  row.share_of_bound = row.speed_up / row.flop_bound;
  row.time_bound = dense_ms / bounds.time_ms;
  row.share_of_time_bound = bounds.time_ms / ttft;
  row.rate_bound = bounds.rate;
  row.share_of_rate_bound = row.speed_up / bounds.rate;

  row.other_ms = ttft;
  for (size_t kind = 0; kind < kOpKindNames.size(); ++kind) {
    row.parts_ms[kind] = PartMs(sample, static_cast<OpKind>(kind));
    row.other_ms -= row.parts_ms[kind];
  }
  row.other_ms = std::max(0.0, row.other_ms);
  row.flops = flops.total();
  row.product_flops = flops.products;
  row.attention_flops = flops.attention;
  row.product_tflops_per_second = Tflops(flops.products, row.part_ms(OpKind::kProduct));
  row.attention_tflops_per_second = Tflops(flops.attention, row.part_ms(OpKind::kAttention));

  row.weights_bytes = StoredBytes(engine.store());
  row.kv_bytes = ledger.kv_bytes;
  row.aux_bytes = ledger.aux_bytes;
  row.cold_bytes = ledger.cold_bytes;
  row.peak_bytes = sample.peak_bytes;
  row.experts = ReadsOf(ledger);
  const Spread decode = SpreadOf(sample.decode_rates);
  if (decode.max > 0) row.decode_tokens_per_second = decode;
  row.cpu_seconds = sample.cpu_seconds;
  row.processes = ledger.processes;
  return row;
}

PlanRow MakeRow(const std::string& model, int64_t tokens, const std::string& asked, const DryRun& run,
                const std::string& auto_reason) {
  const PrefillFlops parts = run.ledger.prefill_parts();
  const double dense = run.ledger.prefill_flops_dense();
  return {.model = model,
          .prompt = tokens,
          .asked = asked,
          .prune = run.spec,
          .active = run.active,
          .kept = KeptText(run.ledger),
          .flops = parts.total(),
          .flops_dense = dense,
          .flop_bound = dense / parts.total(),
          .product_flops = parts.products,
          .attention_flops = parts.attention,
          .kv_bytes = run.ledger.kv_bytes,
          .kv_bytes_dense = run.ledger.kv_bytes_dense,
          .aux_bytes = run.ledger.aux_bytes,
          .cold_bytes = run.ledger.cold_bytes,
          .experts = ReadsOf(run.ledger),
          .reason = run.reason,
          .auto_reason = auto_reason};
}

ordered_json ToJson(const BenchRow& row) {
  ordered_json json = {{"model", row.model},
                       {"type", row.type},
                       {"backend", row.backend},
                       {"isa", row.isa},
                       {"threads", row.threads},
                       {"rounds", row.rounds},
                       {"prompt", row.prompt},
                       {"prune", row.prune},
                       {"active", row.active},
                       {"second_question", row.second_question},
                       {"cached_tokens", row.cached_tokens},
                       {"kept", row.kept},
                       {"ttft_ms", row.ttft_ms.median},
                       {"ttft_ms_min", row.ttft_ms.min},
                       {"ttft_ms_max", row.ttft_ms.max},
                       {"tokens_per_second", row.tokens_per_second},
                       {"tflops_per_second", row.tflops_per_second},
                       {"speed_up", row.speed_up},
                       {"flop_bound", row.flop_bound},
                       {"share_of_bound", row.share_of_bound},
                       {"time_bound", row.time_bound},
                       {"share_of_time_bound", row.share_of_time_bound},
                       {"rate_bound", row.rate_bound},
                       {"share_of_rate_bound", row.share_of_rate_bound}};
  for (size_t kind = 0; kind < kOpKindNames.size(); ++kind)
    json[fmt::format("{}_ms", kOpKindNames[kind])] = row.parts_ms[kind];
  json.update(ordered_json{{"other_ms", row.other_ms},
                           {"flops", row.flops},
                           {"product_flops", row.product_flops},
                           {"attention_flops", row.attention_flops},
                           {"product_tflops_per_second", row.product_tflops_per_second},
                           {"attention_tflops_per_second", row.attention_tflops_per_second},
                           {"cpu_seconds", row.cpu_seconds},
                           {"auto", row.auto_reason},
                           {"weights_bytes", row.weights_bytes},
                           {"kv_bytes", row.kv_bytes},
                           {"aux_bytes", row.aux_bytes},
                           {"cold_bytes", row.cold_bytes},
                           {"peak_bytes", row.peak_bytes}});
  if (row.decode_tokens_per_second) {
    json["decode_tokens_per_second"] = row.decode_tokens_per_second->median;
    json["decode_tokens_per_second_min"] = row.decode_tokens_per_second->min;
    json["decode_tokens_per_second_max"] = row.decode_tokens_per_second->max;
  }
  AddExperts(row.experts, json);
  if (!row.processes.empty()) json["processes"] = ProcessesJson(row.processes);
  return json;
}

ordered_json ToJson(const PlanRow& row) {
  ordered_json json = {{"model", row.model},
                       {"prompt", row.prompt},
                       {"prune", row.prune},
                       {"active", row.active},
                       {"kept", row.kept},
                       {"flops", row.flops},
                       {"flops_dense", row.flops_dense},
                       {"flop_bound", row.flop_bound},
                       {"product_flops", row.product_flops},
                       {"attention_flops", row.attention_flops},
                       {"kv_bytes", row.kv_bytes},
                       {"kv_bytes_dense", row.kv_bytes_dense},
                       {"aux_bytes", row.aux_bytes},
                       {"cold_bytes", row.cold_bytes},
                       {"reason", row.reason},
                       {"auto", row.auto_reason}};
  AddExperts(row.experts, json);
  return json;
}

std::string Tables(const std::vector<BenchRow>& rows) {
  const BenchRow& first = rows.front();
  return fmt::format("{}, {}, backend {} ({}), {} threads, median of {}\n\n{}\n{}{}{}", first.model,
                     first.type, first.backend, first.isa, first.threads, first.rounds, ResultTable(rows),
                     TimeTable(rows) + ProcessTable(rows), SpecLines(rows),
                     ExpertLines(rows) + AutoRows(rows));
}

std::string Tables(const std::vector<PlanRow>& rows) {
  const bool random_predictors = std::any_of(rows.begin(), rows.end(), [](const PlanRow& row) {
    return row.prune.find(fmt::format("sdtp:file={},", kRandomPredictors)) != std::string::npos;
  });
  Table table = NewTable({"prompt", "prune", "kept KV / FFN", "TFLOP dense", "TFLOP", "FLOP bound",
                          "KV dense", "KV", "Aux", "cold"});
  for (const PlanRow& r : rows) {
    table.Add({std::to_string(r.prompt), Name(r), r.kept, Number(r.flops_dense / 1e12, 3),
               Number(r.flops / 1e12, 3), Times(r.flop_bound), BytesText(r.kv_bytes_dense),
               BytesText(r.kv_bytes), BytesText(r.aux_bytes), BytesText(r.cold_bytes)});
  }
  const char* const predictors =
      random_predictors
          ? "\nsdtp: random predictors at the trainer's default stages; file= names trained ones\n"
          : "";
  return fmt::format("{}, nothing was run: closed forms of a prefill, random scores\n\n{}{}{}{}",
                     rows.front().model, table.Markdown(), SpecLines(rows),
                     ExpertLines(rows) + AutoRows(rows), predictors);
}

std::string CsvText(const ordered_json& rows) {
  std::string text;
  for (const auto& [key, value] : rows.front().items()) {
    if (!value.is_structured()) text += (text.empty() ? "" : ",") + key;
  }
  text += '\n';
  for (const ordered_json& row : rows) {
    std::string line;
    for (const auto& [key, value] : row.items()) {
      if (!value.is_structured()) line += (line.empty() ? "" : ",") + CsvCell(value);
    }
    text += line + '\n';
  }
  return text;
}

}  // namespace coppice::cli
