#include "apps/cli/bench_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "apps/cli/report.h"
#include "apps/cli/terminal.h"

namespace coppice::cli {

namespace {

using nlohmann::ordered_json;

double MedianMs(const BenchSample& sample, OpKind kind) {
  std::vector<double> ms;
  for (const OpTimes& times : sample.times) ms.push_back(1000 * times.of(kind));
  return SpreadOf(std::move(ms)).median;
}

// What a run would take if its products and its attention ran at the dense run's rates.
struct Bounds {
  double time_ms;  // with everything else of the dense run unchanged; but see BoundsOf
  double rate;     // of products and attention alone: the dense run's time in both over the method's
};

// A second question computes few rows even in the first layer, so that what is done by rows shrinks with the products;
// only the weights are packed as for a whole prompt.
Bounds BoundsOf(const PrefillFlops& parts, bool is_second, const BenchSample& dense) {
  const PrefillFlops all = dense.last.ledger.prefill_parts();
  const double products_ms = MedianMs(dense, OpKind::kProduct);
  const double attention_ms = MedianMs(dense, OpKind::kAttention);
  // A prompt of one token has no products of many rows.
  const double products = all.products > 0 ? products_ms * parts.products / all.products : 0;
  const double attention = all.attention > 0 ? attention_ms * parts.attention / all.attention : 0;
  const double both_ms = products_ms + attention_ms;
  double rest = SpreadOf(dense.ttft_ms).median - both_ms;
  if (is_second && products_ms > 0) {
    const double packing = MedianMs(dense, OpKind::kPack);
    rest = packing + (rest - packing) * products / products_ms;
  }
  return {.time_ms = rest + products + attention,
          .rate = products + attention > 0 ? both_ms / (products + attention) : 1};
}

double Tflops(double flops, double ms) { return ms > 0 ? flops / ms / 1e9 : 0; }

int64_t StoredBytes(const TensorStore& store) {
  int64_t bytes = 0;
  for (const StoredTensor& t : store.tensors()) bytes += t.view.rows * BytesOf(t.view.dtype, t.view.cols);
  return bytes;
}

void AddTimes(const BenchSample& sample, double ttft_ms, ordered_json& row) {
  double rest = ttft_ms;
  for (size_t kind = 0; kind < kOpKindNames.size(); ++kind) {
    const double ms = MedianMs(sample, static_cast<OpKind>(kind));
    row[fmt::format("{}_ms", kOpKindNames[kind])] = ms;
    rest -= ms;
  }
  row["other_ms"] = rest;
  const PrefillFlops parts = sample.last.ledger.prefill_parts();
  row["flops"] = parts.total();
  row["product_flops"] = parts.products;
  row["attention_flops"] = parts.attention;
  row["product_tflops_per_second"] = Tflops(parts.products, row["product_ms"].get<double>());
  row["attention_tflops_per_second"] = Tflops(parts.attention, row["attention_ms"].get<double>());
}

std::string Number(const ordered_json& row, const char* key, int digits) {
  return fmt::format("{:.{}f}", row[key].get<double>(), digits);
}
std::string Times(const ordered_json& row, const char* key) { return Number(row, key, 2) + "x"; }
std::string Percent(const ordered_json& row, const char* key) {
  return fmt::format("{:.0f} %", 100 * row[key].get<double>());
}
std::string Bytes(const ordered_json& row, const char* key) { return BytesText(row[key].get<int64_t>()); }

std::string Prompt(const ordered_json& row) { return fmt::format("{}", row["prompt"].get<int64_t>()); }

std::string Prune(const ordered_json& row) {
  std::string prune = row["prune"].get<std::string>();
  if (prune != "none" && !row["active"].get<bool>()) prune += " (stood aside)";
  if (row.value("second_question", 0) > 0)
    prune += fmt::format(", question 2 of {}", row["second_question"].get<int>());
  return prune;
}

// All columns but the second hold numbers.
Table NewTable(const std::vector<std::string>& header) {
  std::vector<bool> right(header.size(), true);
  right[1] = false;
  return {header, right};
}

std::string ResultTable(const std::vector<ordered_json>& rows) {
  std::vector<std::string> header = {"prompt",      "prune",      "kept KV / FFN", "TTFT ms",    "min",
                                     "max",         "tokens/s",   "TFLOP/s",       "speed-up",   "FLOP bound",
                                     "share of it", "time bound", "share of it",   "peak memory"};
  const bool decoded = rows.front().contains("decode_tokens_per_second");
  if (decoded) header.emplace_back("decode tokens/s");
  Table table = NewTable(header);
  for (const ordered_json& r : rows) {
    std::vector<std::string> cells = {Prompt(r),
                                      Prune(r),
                                      r["kept"].get<std::string>(),
                                      Number(r, "ttft_ms", 0),
                                      Number(r, "ttft_ms_min", 0),
                                      Number(r, "ttft_ms_max", 0),
                                      Number(r, "tokens_per_second", 1),
                                      Number(r, "tflops_per_second", 3),
                                      Times(r, "speed_up"),
                                      Times(r, "flop_bound"),
                                      Percent(r, "share_of_bound"),
                                      Times(r, "time_bound"),
                                      Percent(r, "share_of_time_bound"),
                                      Bytes(r, "peak_bytes")};
    if (decoded) cells.push_back(Number(r, "decode_tokens_per_second", 1));
    table.Add(cells);
  }
  return table.Markdown();
}

std::string TimeTable(const std::vector<ordered_json>& rows) {
  Table table =
      NewTable({"prompt", "prune", "products ms", "TFLOP/s", "attention ms", "TFLOP/s", "packing ms",
                "rows ms", "scoring ms", "selection ms", "single rows ms", "other ms"});
  for (const ordered_json& r : rows) {
    table.Add({Prompt(r), Prune(r), Number(r, "product_ms", 0), Number(r, "product_tflops_per_second", 3),
               Number(r, "attention_ms", 0), Number(r, "attention_tflops_per_second", 3),
               Number(r, "pack_ms", 0), Number(r, "rows_ms", 0), Number(r, "scoring_ms", 0),
               Number(r, "selection_ms", 0), Number(r, "decode_product_ms", 0), Number(r, "other_ms", 0)});
  }
  return table.Markdown();
}

std::string CsvCell(const ordered_json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : Dump(value);
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

ordered_json BenchRow(const Engine& engine, int64_t tokens, const BenchSample& sample,
                      const BenchSample& dense) {
  const Spread ttft = SpreadOf(sample.ttft_ms);
  const double dense_ms = SpreadOf(dense.ttft_ms).median;
  const Ledger& ledger = sample.last.ledger;
  const double speed_up = dense_ms / ttft.median;
  const double flop_bound = ledger.prefill_flops_dense() / ledger.prefill_flops();
  const Bounds bounds = BoundsOf(ledger.prefill_parts(), sample.second > 0, dense);
  ordered_json row = {{"model", engine.store().path()},
                      {"type", Info(engine.model().weights().layers.front().down.weight.dtype).name},
                      {"backend", engine.backend().name()},
                      {"isa", engine.backend().isa()},
                      {"threads", engine.backend().threads()},
                      {"rounds", sample.ttft_ms.size()},
                      {"prompt", tokens},
                      {"prune", sample.last.prune_spec},
                      {"active", sample.last.prune_active},
                      {"second_question", sample.second},
                      {"cached_tokens", ledger.cached_tokens},
                      {"kept", KeptText(ledger)},
                      {"ttft_ms", ttft.median},
                      {"ttft_ms_min", ttft.min},
                      {"ttft_ms_max", ttft.max},
                      {"tokens_per_second", 1000 * static_cast<double>(tokens) / ttft.median},
                      {"tflops_per_second", Tflops(ledger.prefill_flops(), ttft.median)},
                      {"speed_up", speed_up},
                      {"flop_bound", flop_bound},
                      {"share_of_bound", speed_up / flop_bound},
                      {"time_bound", dense_ms / bounds.time_ms},
                      {"share_of_time_bound", bounds.time_ms / ttft.median},
                      {"rate_bound", bounds.rate},
                      {"share_of_rate_bound", speed_up / bounds.rate}};
  AddTimes(sample, ttft.median, row);
  row["auto"] = sample.last.auto_reason;
  row["weights_bytes"] = StoredBytes(engine.store());
  row["kv_bytes"] = ledger.kv_bytes;
  row["aux_bytes"] = ledger.aux_bytes;
  row["cold_bytes"] = ledger.cold_bytes;
  row["peak_bytes"] = sample.peak_bytes;
  const Spread decode = SpreadOf(sample.decode_rates);
  if (decode.max > 0) {
    row["decode_tokens_per_second"] = decode.median;
    row["decode_tokens_per_second_min"] = decode.min;
    row["decode_tokens_per_second_max"] = decode.max;
  }
  return row;
}

ordered_json PlanRow(const std::string& model, int64_t tokens, const DryRun& run) {
  const PrefillFlops parts = run.ledger.prefill_parts();
  const double dense = run.ledger.prefill_flops_dense();
  ordered_json row = {{"model", model},
                      {"prompt", tokens},
                      {"prune", run.spec},
                      {"active", run.active},
                      {"kept", KeptText(run.ledger)},
                      {"flops", parts.total()},
                      {"flops_dense", dense},
                      {"flop_bound", dense / parts.total()},
                      {"product_flops", parts.products},
                      {"attention_flops", parts.attention},
                      {"kv_bytes", run.ledger.kv_bytes},
                      {"kv_bytes_dense", run.ledger.kv_bytes_dense},
                      {"aux_bytes", run.ledger.aux_bytes},
                      {"cold_bytes", run.ledger.cold_bytes}};
  row["reason"] = run.reason;
  return row;
}

namespace {

// What auto chose, a line for each row that it chose for.
std::string AutoLines(const std::vector<ordered_json>& rows) {
  std::string lines;
  for (const ordered_json& row : rows) {
    const std::string reason = row.value("auto", "");
    if (!reason.empty()) lines += fmt::format("\nauto, {} tokens: {}", row["prompt"].get<int64_t>(), reason);
  }
  return lines.empty() ? "" : lines + "\n";
}

}  // namespace

std::string BenchTables(const std::vector<ordered_json>& rows) {
  const ordered_json& first = rows.front();
  return fmt::format("{}, {}, backend {} ({}), {} threads, median of {}\n\n{}\n{}{}",
                     first["model"].get<std::string>(), first["type"].get<std::string>(),
                     first["backend"].get<std::string>(), first["isa"].get<std::string>(),
                     first["threads"].get<int>(), first["rounds"].get<int>(), ResultTable(rows),
                     TimeTable(rows), AutoLines(rows));
}

std::string PlanTable(const std::vector<ordered_json>& rows) {
  Table table = NewTable({"prompt", "prune", "kept KV / FFN", "TFLOP dense", "TFLOP", "FLOP bound",
                          "KV dense", "KV", "Aux", "cold"});
  const auto tera = [](const ordered_json& flops) {
    return fmt::format("{:.3f}", flops.get<double>() / 1e12);
  };
  for (const ordered_json& r : rows) {
    table.Add({Prompt(r), Prune(r), r["kept"].get<std::string>(), tera(r["flops_dense"]), tera(r["flops"]),
               Times(r, "flop_bound"), Bytes(r, "kv_bytes_dense"), Bytes(r, "kv_bytes"),
               Bytes(r, "aux_bytes"), Bytes(r, "cold_bytes")});
  }
  return fmt::format("{}, nothing was run: closed forms of a prefill, random scores\n\n{}{}",
                     rows.front()["model"].get<std::string>(), table.Markdown(), AutoLines(rows));
}

std::string CsvText(const std::vector<ordered_json>& rows) {
  std::string text;
  for (const auto& [key, value] : rows.front().items()) text += (text.empty() ? "" : ",") + key;
  text += '\n';
  for (const ordered_json& row : rows) {
    std::string line;
    for (const auto& [key, value] : row.items()) line += (line.empty() ? "" : ",") + CsvCell(value);
    text += line + '\n';
  }
  return text;
}

}  // namespace coppice::cli
