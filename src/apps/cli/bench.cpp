// coppice bench: time to first token by prompt length and method, and the decode rate.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/report.h"
#include "apps/cli/terminal.h"
#include "apps/cli/watch.h"
#include "base/error.h"

namespace coppice::cli {

namespace {

struct BenchOptions {
  ModelOptions model;
  std::string shape;
  std::vector<int64_t> prompts = {4096};
  int64_t generate = 0;
  std::vector<std::string> prune;
  int rounds = 3;
  std::string output = "md";
};

struct Sample {
  std::vector<double> ttft_ms;
  std::vector<double> decode_rates;
  Answer last;
};

// Any ids do: the arithmetic does not depend on them, except where a method's choice does.
std::vector<int32_t> RandomPrompt(int64_t tokens, int64_t vocab) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  uint64_t state = 1;
  for (int32_t& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab));
  }
  return ids;
}

// Methods alternate run by run, dense first, after one uncounted round, so that a drifting machine hits all
// alike.
std::vector<Sample> Measure(const BenchOptions& o, const std::vector<std::string>& arms, int64_t tokens,
                            Engine& engine) {
  std::vector<Sample> samples(arms.size());
  const std::vector<int32_t> prompt = RandomPrompt(tokens, engine.model().config().shape.vocab);
  for (int round = 0; round <= o.rounds; ++round) {
    for (size_t a = 0; a < arms.size(); ++a) {
      Request request;
      request.tokens = prompt;
      request.max_tokens = o.generate;
      request.ignore_eos = true;
      request.sampling.temperature = 0;
      request.prune = arms[a];
      request.cancelled = &Interrupted();
      const Watch watch(fmt::format("{} tokens, {}, round {}/{}", tokens, arms[a], round, o.rounds),
                        engine.model().config().shape.layers, request);
      samples[a].last = engine.Generate(request);
      if (round == 0) continue;
      samples[a].ttft_ms.push_back(samples[a].last.ttft_ms);
      samples[a].decode_rates.push_back(samples[a].last.decode_tokens_per_second);
    }
  }
  return samples;
}

nlohmann::ordered_json Row(const BenchOptions& o, const Engine& engine, int64_t tokens, const Sample& sample,
                           const Sample& dense) {
  const Spread ttft = SpreadOf(sample.ttft_ms);
  const Ledger& ledger = sample.last.ledger;
  const double speed_up = SpreadOf(dense.ttft_ms).median / ttft.median;
  const double bound = ledger.prefill_flops_dense() / ledger.prefill_flops();
  nlohmann::ordered_json row = {
      {"model", engine.store().path()},
      {"type", Info(engine.model().weights().layers.front().down.weight.dtype).name},
      {"backend", engine.backend().name()},
      {"isa", engine.backend().isa()},
      {"threads", engine.backend().threads()},
      {"prompt", tokens},
      {"prune", sample.last.prune_spec},
      {"active", sample.last.prune_active},
      {"kept", KeptText(ledger)},
      {"ttft_ms", ttft.median},
      {"ttft_ms_min", ttft.min},
      {"ttft_ms_max", ttft.max},
      {"tokens_per_second", 1000 * static_cast<double>(tokens) / ttft.median},
      {"tflops_per_second", ledger.prefill_flops() / ttft.median / 1e9},
      {"speed_up", speed_up},
      {"flop_bound", bound},
      {"share_of_bound", speed_up / bound}};
  if (o.generate > 1) row["decode_tokens_per_second"] = SpreadOf(sample.decode_rates).median;
  return row;
}

void PrintTable(const BenchOptions& o, const std::vector<nlohmann::ordered_json>& rows) {
  std::vector<std::string> header = {"prompt",   "prune", "kept KV / FFN", "TTFT ms",
                                     "min",      "max",   "tokens/s",      "TFLOP/s",
                                     "speed-up", "bound", "share of bound"};
  std::vector<bool> right = {true, false, true, true, true, true, true, true, true, true, true};
  if (o.generate > 1) {
    header.push_back("decode tokens/s");
    right.push_back(true);
  }
  Table table(header, right);
  for (const nlohmann::ordered_json& r : rows) {
    const auto number = [&](const char* key, int digits) {
      return fmt::format("{:.{}f}", r[key].get<double>(), digits);
    };
    const std::string prune = r["prune"].get<std::string>();
    std::vector<std::string> cells = {
        fmt::format("{}", r["prompt"].get<int64_t>()),
        prune != "none" && !r["active"].get<bool>() ? prune + " (stood aside)" : prune,
        r["kept"].get<std::string>(),
        number("ttft_ms", 0),
        number("ttft_ms_min", 0),
        number("ttft_ms_max", 0),
        number("tokens_per_second", 1),
        number("tflops_per_second", 3),
        number("speed_up", 2) + "x",
        number("flop_bound", 2) + "x",
        fmt::format("{:.0f} %", 100 * r["share_of_bound"].get<double>())};
    if (o.generate > 1) cells.push_back(number("decode_tokens_per_second", 1));
    table.Add(cells);
  }
  const nlohmann::ordered_json& first = rows.front();
  fmt::print("{}, {}, backend {} ({}), {} threads, median of {}\n\n{}", first["model"].get<std::string>(),
             first["type"].get<std::string>(), first["backend"].get<std::string>(),
             first["isa"].get<std::string>(), first["threads"].get<int>(), o.rounds, table.Markdown());
}

std::string CsvCell(const nlohmann::ordered_json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : Dump(value);
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

void PrintCsv(const std::vector<nlohmann::ordered_json>& rows) {
  std::string header;
  for (const auto& [key, value] : rows.front().items()) header += (header.empty() ? "" : ",") + key;
  fmt::print("{}\n", header);
  for (const nlohmann::ordered_json& row : rows) {
    std::string line;
    for (const auto& [key, value] : row.items()) line += (line.empty() ? "" : ",") + CsvCell(value);
    fmt::print("{}\n", line);
  }
}

void Bench(const BenchOptions& o) {
  if (o.shape.empty() == o.model.model.empty()) throw Error("give either -m MODEL or --shape NAME[:TYPE]");
  const std::unique_ptr<Engine> engine = o.shape.empty() ? Engine::Load(o.model.model, o.model.engine)
                                                         : Engine::FromShape(o.shape, o.model.engine);
  std::vector<std::string> arms = {"none"};
  for (const std::string& spec : o.prune) {
    if (spec != "none") arms.push_back(spec);
  }
  for (const int64_t tokens : o.prompts) {
    if (tokens + o.generate > engine->context()) {
      throw Error("-p {} and -n {} exceed the context of {}: raise --ctx-size", tokens, o.generate,
                  engine->context());
    }
  }
  std::vector<nlohmann::ordered_json> rows;
  for (const int64_t tokens : o.prompts) {
    const std::vector<Sample> samples = Measure(o, arms, tokens, *engine);
    for (const Sample& sample : samples) {
      rows.push_back(Row(o, *engine, tokens, sample, samples.front()));
      if (o.output == "jsonl") fmt::print("{}\n", Dump(rows.back()));
    }
    std::fflush(stdout);
  }
  if (o.output == "md") PrintTable(o, rows);
  if (o.output == "csv") PrintCsv(rows);
  if (o.output == "json") fmt::print("{}\n", Dump(nlohmann::ordered_json(rows), 1));
}

}  // namespace

void AddBench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* bench = app.add_subcommand("bench", "time to first token by prompt length and method");
  AddModelOptions(*bench, o->model, false);
  bench->add_option("--shape", o->shape, "NAME[:TYPE]: random weights in memory instead of a file");
  bench->add_option("-p,--n-prompt", o->prompts, "prompt lengths, separated by commas")
      ->take_all()
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  bench->add_option("-n,--n-gen", o->generate, "also generate this many tokens, for the decode rate")
      ->check(CLI::NonNegativeNumber);
  bench->add_option("--prune", o->prune, "a method to compare with dense; may be repeated")->take_all();
  bench->add_option("-r,--repetitions", o->rounds, "counted rounds, after one that warms up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  bench->add_option("-o,--output", o->output, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  bench->footer(
      "Example:\n  coppice bench --shape llama-3.2-1b:bf16 -p 4096,8192 --prune sliminfer --prune ftp");
  bench->callback([o] {
    InstallInterruptHandler();
    Bench(*o);
  });
}

}  // namespace coppice::cli
