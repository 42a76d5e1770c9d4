// coppice bench: time to first token by prompt length and method, its parts, and the decode rate.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "apps/checks.h"
#include "apps/cli/bench_report.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/report.h"
#include "apps/cli/terminal.h"
#include "apps/cli/watch.h"
#include "base/cpu_seconds.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/peak_memory.h"
#include "base/random.h"
#include "engine/calibration.h"
#include "engine/dry_run.h"
#include "engine/open_model.h"
#include "model/synthetic.h"
#include "model/weights.h"

namespace coppice::cli {

namespace {

struct BenchOptions {
  ModelOptions model;
  std::string shape;
  std::vector<int64_t> prompts = {4096};
  int64_t generate = 0;
  std::vector<std::string> prune;
  int64_t second = 0;  // tokens of a second question; 0: none is asked
  int rounds = 3;
  std::string output = "md";
  bool warm_up = true;
  bool dry_run = false;
};

// One of the alternating measurements: a method on a whole prompt, or on its second question about the same
// document.
struct Arm {
  std::string prune;
  bool second = false;
};

// Random ids: the arithmetic does not depend on them, though a method's choice may.
std::vector<int32_t> RandomPrompt(int64_t tokens, int64_t vocab, uint64_t seed = 1) {
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  Random random(seed);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab)));
  return ids;
}

// Round 0 of a second question asks the first question, which leaves the document in the cache.
Request MakeRequest(const BenchOptions& o, const Arm& arm, int64_t tokens, int round, int64_t vocab) {
  Request request;
  request.tokens = RandomPrompt(tokens, vocab);
  if (arm.second && round > 0) {
    const std::vector<int32_t> question = RandomPrompt(o.second, vocab, static_cast<uint64_t>(round) + 1);
    std::copy(question.begin(), question.end(), request.tokens.end() - o.second);
  }
  request.max_tokens = o.generate;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  request.prune = arm.prune;
  request.use_documents = arm.second;
  request.cancelled = &Interrupted();
  return request;
}

// Methods alternate run by run, dense first, after one uncounted round, so that a drift of the machine's
// speed affects all alike. Where a device computes, waiting for each operation would cost time, so one more
// round measures the parts, and counts for nothing else.
std::vector<BenchSample> Measure(const BenchOptions& o, const std::vector<Arm>& arms, int64_t tokens,
                                 Engine& engine) {
  std::vector<BenchSample> samples(arms.size());
  const bool apart = engine.backend().memory() != nullptr;
  for (int round = 0; round <= o.rounds + (apart ? 1 : 0); ++round) {
    const bool timed = !apart || round > o.rounds;
    engine.TimeOperations(timed);
    for (size_t a = 0; a < arms.size(); ++a) {
      if (round == 0 && !o.warm_up && !arms[a].second) continue;
      samples[a].asked = arms[a].prune;
      samples[a].second = arms[a].second ? o.second : 0;
      Request request = MakeRequest(o, arms[a], tokens, round, engine.model().config().shape.vocab);
      const std::string which = round > o.rounds ? "parts" : fmt::format("round {}/{}", round, o.rounds);
      const Watch watch(fmt::format("{} tokens, {}{}, {}", tokens, arms[a].prune,
                                    arms[a].second ? ", second question" : "", which),
                        engine.model().config().shape.layer_count(), request);
      ResetPeakMemory();
      const double before = CpuSeconds();
      samples[a].last = engine.Generate(request);
      samples[a].cpu_seconds = CpuSeconds() - before;
      samples[a].peak_bytes = std::max(samples[a].peak_bytes, PeakMemoryBytes());
      if (round == 0) continue;
      if (timed) samples[a].times.push_back(samples[a].last.prefill_times);
      if (round > o.rounds) continue;
      samples[a].ttft_ms.push_back(samples[a].last.ttft_ms);
      samples[a].decode_rates.push_back(samples[a].last.decode_tokens_per_second);
    }
  }
  return samples;
}

std::vector<Arm> Arms(const BenchOptions& o) {
  std::vector<Arm> arms = {{"none"}};
  for (const std::string& spec : o.prune) {
    if (spec != "none") arms.push_back({spec});
  }
  // A dense second question costs one more dense first one, so it is run only if "none" was asked for, or no
  // method.
  if (o.second > 0 && o.prune.empty()) arms.push_back({"none", true});
  if (o.second > 0) {
    for (const std::string& spec : o.prune) arms.push_back({spec, true});
  }
  return arms;
}

template <typename Row>
void Print(const BenchOptions& o, const std::vector<Row>& rows) {
  if (o.output == "md") fmt::print("{}", Tables(rows));
  nlohmann::ordered_json json;
  for (const Row& row : rows) json.push_back(ToJson(row));
  if (o.output == "csv") fmt::print("{}", CsvText(json));
  if (o.output == "json") fmt::print("{}\n", Dump(json, 1));
}

// The parts of a model that a dry run needs: its sizes, and for "auto" the fingerprint of its weights.
struct PlannedModel {
  explicit PlannedModel(const BenchOptions& o) {
    if (!o.shape.empty()) {
      config = ParseShape(o.shape).config;
      return;
    }
    OpenedModel model = OpenModel(o.model.model);
    Weights::Load(model.store, model.config);  // sets the vocabulary's size; reads no weights
    store = std::move(model.store);
    config = std::move(model.config);
    calibrations.emplace(*store, config);
  }

  ResolvedPrune Resolve(const std::string& spec, int64_t tokens) {
    if (calibrations) return calibrations->Resolve(spec, tokens, PromptStates::kDiscarded);
    if (AutoLoss(spec))
      throw Error("--prune {}: a shape has no weights that a calibration could be of", spec);
    return {spec, ""};
  }

  std::shared_ptr<const TensorStore> store;
  ModelConfig config;
  std::optional<Calibrations> calibrations;
};

void PlanAll(const BenchOptions& o) {
  PlannedModel model(o);
  const std::unique_ptr<Backend> backend = MakeBackend(
      o.model.engine.backend,
      {.threads = o.model.engine.threads, .exact = o.model.engine.exact, .fast = o.model.engine.fast});
  std::vector<PlanRow> rows;
  for (const int64_t tokens : o.prompts) {
    if (tokens > limits::kMaxContext) throw Error("-p {}: at most {}", tokens, limits::kMaxContext);
    const std::vector<int32_t> prompt = RandomPrompt(tokens, model.config.shape.vocab);
    for (const Arm& arm : Arms(o)) {
      const ResolvedPrune resolved = model.Resolve(arm.prune, tokens);
      rows.push_back(MakeRow(o.shape.empty() ? o.model.model : o.shape, tokens, arm.prune,
                             PlanRun(model.config, prompt, resolved.spec, *backend), resolved.reason));
      if (o.output == "jsonl") fmt::print("{}\n", Dump(ToJson(rows.back())));
    }
  }
  Print(o, rows);
}

void Bench(BenchOptions o) {
  if (o.shape.empty() == o.model.model.empty())
    throw Error("give either -m MODEL or --shape NAME[/LAYERS][:TYPE]");
  if (o.dry_run && o.second > 0) throw Error("--second: --dry-run plans first questions only");
  if (o.dry_run) return PlanAll(o);
  o.model.engine.time_operations = true;
  // Every round uses the entries that the arms leave in the cache, so none may be evicted.
  if (o.second > 0) o.model.engine.documents = DocumentCacheOptions{.memory_bytes = int64_t{1} << 50};
  const std::unique_ptr<Engine> engine = o.shape.empty() ? LoadEngine(o.model.model, o.model.engine)
                                                         : Engine::FromShape(o.shape, o.model.engine);
  for (const int64_t tokens : o.prompts) {
    if (tokens + o.generate > engine->context()) {
      throw Error("-p {} and -n {} exceed the context of {}: raise --ctx-size", tokens, o.generate,
                  engine->context());
    }
    if (tokens <= o.second) throw Error("--second {}: a prompt of {} has no document", o.second, tokens);
  }
  std::vector<BenchRow> rows;
  for (const int64_t tokens : o.prompts) {
    const std::vector<BenchSample> samples = Measure(o, Arms(o), tokens, *engine);
    for (const BenchSample& sample : samples) {
      rows.push_back(MakeRow(*engine, tokens, sample, samples.front()));
      if (o.output == "jsonl") fmt::print("{}\n", Dump(ToJson(rows.back())));
    }
    std::fflush(stdout);
  }
  Print(o, rows);
}

}  // namespace

void AddBench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* bench = app.add_subcommand("bench", "time to first token by prompt length and method");
  AddModelOptions(*bench, o->model, false);
  bench->add_option("--shape", o->shape, "NAME[/LAYERS][:TYPE]: random weights in memory instead of a file");
  bench->add_option("-p,--n-prompt", o->prompts, "prompt lengths, separated by commas")
      ->take_all()
      ->delimiter(',')
      ->check(AboveZero());
  bench->add_option("-n,--n-gen", o->generate, "also generate this many tokens, for the decode rate")
      ->check(ZeroOrMore());
  bench->add_option("--prune", o->prune, "a method to compare with dense; may be repeated")->take_all();
  bench
      ->add_option(
          "--second", o->second,
          "also ask a second question of this many tokens about the same document, with the document cache")
      ->check(AboveZero());
  bench->add_option("-r,--repetitions", o->rounds, "counted rounds, after a warm-up round")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  bench->add_option("-o,--output", o->output, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  bench->add_flag("!--no-warmup", o->warm_up, "no warm-up round");
  bench->add_flag("--dry-run", o->dry_run,
                  "run nothing: FLOPs and bytes by closed forms, with random scores and attention");
  bench->footer(
      "Example:\n  coppice bench --shape llama-3.2-1b:bf16 -p 4096,8192 --prune sliminfer --prune ftp\n"
      "FLOP bound: the dense run's FLOPs over the method's. Time bound: the dense run's time over what it\n"
      "would be with the method's FLOPs in products and in attention, each at the dense run's rate, the "
      "rest\n"
      "unchanged, but for the packing of experts that no row reads (of a second question: the rest but for\n"
      "the packing shrunk as its products are);\n"
      "rate bound: the same of products and attention alone.\n"
      "On a gpu, parts are of one more round, in which the device waits after each operation; they\n"
      "may add up to more than TTFT.");
  bench->callback([o] {
    InstallInterruptHandler();
    Bench(*o);
  });
}

}  // namespace coppice::cli
