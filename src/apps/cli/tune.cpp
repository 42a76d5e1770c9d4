// coppice tune: the fastest setting that keeps a model's answers, as the calibration that --prune auto reads.
#include "eval/tune/tune.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/eval_options.h"
#include "apps/cli/options.h"
#include "apps/cli/terminal.h"
#include "apps/cli/tune_report.h"
#include "apps/cli/version.h"
#include "base/error.h"
#include "base/fnv.h"
#include "base/limits.h"
#include "base/mmap.h"
#include "base/new_file.h"
#include "engine/calibration.h"
#include "eval/setup.h"
#include "eval/tune/calibration_writer.h"
#include "eval/tune/ffn_proxies.h"
#include "eval/tune/head_search.h"
#include "eval/tune/time_plan.h"

namespace coppice::cli {

namespace {

struct TuneCommand {
  ModelOptions model;
  TuneOptions tune;
  std::vector<std::string> budgets = {"1%", "5%"};
  double least = 50;
  CLI::Option* time_limit = nullptr;
  std::string calibration;
  std::string out;
  int64_t cache_mib = 4096;
  bool all = false;
  std::string head_patterns;
  std::string reference;
  int64_t head_budget = HeadSearchOptions().budget;
  std::string ffn_proxies;
  FfnProxyOptions proxies;
};

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

// A folder beside the calibration for each set of settings, so that a run with other settings begins its own.
std::string DefaultFolder(const TuneCommand& o, const Engine& engine) {
  const std::string settings = SettingsOf(o.tune.eval, o.model.model, engine).dump();
  const std::string base = std::filesystem::path(o.calibration).replace_extension().string();
  return fmt::format("{}.tune/{:08x}", base, Fnv1a(settings) & 0xffffffff);
}

// Checks the options before a model is loaded.
void Prepare(TuneCommand& o) {
  o.tune.budgets.clear();
  for (const std::string& budget : o.budgets) {
    o.tune.budgets.push_back(ParseBudget(budget));
    if (std::count(o.tune.budgets.begin(), o.tune.budgets.end(), o.tune.budgets.back()) > 1)
      throw Error("--budget {}: named twice", budget);
  }
  o.tune.least = o.least / 100;
  if (o.tune.quick && o.time_limit->count() == 0) o.tune.minutes = kQuickMinutes;
  o.tune.chosen_tasks = !o.tune.eval.tasks.empty();
  if (!o.tune.chosen_tasks) o.tune.eval.tasks = DefaultTasks(!o.tune.eval.data.empty());
  for (const std::string& task : o.tune.eval.tasks) FindTasks(task);
  if (o.calibration.empty()) o.calibration = CalibrationPathOf(o.model.model);
  const NewFile probe(o.calibration, "tune");
}

// The estimate goes to stderr also where that is no terminal: it says how long to wait.
TuneResult Search(TuneCommand& o, Engine& engine) {
  ProgressLine line("tune", 1, "");
  o.tune.say = [&](const std::string& text) {
    line.Clear();
    fmt::print(stderr, "tune: {}\n", text);
  };
  SearchProgress shown;
  auto since = std::chrono::steady_clock::now();
  const auto show = [&] {
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
    const double left = std::max(shown.left - passed, 0.0);
    line.Update(shown.share, "", shown.left > 0 ? std::optional(left) : std::nullopt);
  };
  o.tune.answering = [&](double) { show(); };
  return coppice::Tune(o.tune, o.model.model, engine, &Interrupted(), [&](const SearchProgress& progress) {
    shown = progress;
    since = std::chrono::steady_clock::now();
    line.SetLabel("tune  " + progress.label);
    show();
  });
}

// What `auto` will not take: the user should know before the next prompt runs densely.
void SayNarrow(const nlohmann::ordered_json& made) {
  for (const CalibrationEntry& entry : ParseCalibration(made.dump(), "calibration").entries) {
    if (!entry.narrow || entry.chosen_tasks || entry.setting.prune == "none") continue;
    fmt::print(
        "note: --prune auto does not take the setting for {} tokens, because it was measured on {} only: "
        "raise "
        "--time-limit, or name the tasks that your questions are like (--tasks)\n",
        entry.length, WordsOf(entry.kinds));
    return;
  }
}

void Tune(TuneCommand& o) {
  Prepare(o);
  EngineOptions options = o.model.engine;
  if (o.cache_mib > 0) options.documents = DocumentCacheOptions{.memory_bytes = o.cache_mib << 20};
  const std::unique_ptr<Engine> engine = LoadEngine(o.model.model, options);
  if (o.tune.eval.folder.empty()) o.tune.eval.folder = DefaultFolder(o, *engine);
  const TuneResult result = Search(o, *engine);
  PrintTuned(result, o.tune.budgets, o.all);
  const nlohmann::ordered_json made =
      CalibrationJson(result, o.tune, {o.model.model, kVersion, Today()}, *engine);
  if (!made["entries"].empty()) {
    WriteCalibration(o.calibration, made);
    fmt::print("calibration: {}\n", o.calibration);
    SayNarrow(made);
  }
  fmt::print("every answer: {}/tune.jsonl\n", o.tune.eval.folder);
  std::fflush(stdout);
  if (result.interrupted) throw Cancelled();
  const std::string spec = BestSpec(result, o.tune.budgets);
  if (!o.out.empty()) {
    NewFile file(o.out, "tune");
    file.Append(spec + "\n");
    file.Commit();
  }
  fmt::print("{}\n", spec);
}

// The tokens of --reference.
std::vector<int32_t> Reference(const TuneCommand& o, const MappedFile& text, const Engine& engine) {
  if (engine.tokenizer() == nullptr) throw Error("{}: has no tokenizer", o.model.model);
  return engine.tokenizer()->Encode({reinterpret_cast<const char*>(text.bytes().data()), text.size()},
                                    {.add_special = true, .parse_special = false});
}

// --head-patterns: a pattern for each query head, for minference:heads=FILE.
void TuneHeads(const TuneCommand& o) {
  NewFile file(o.head_patterns, "tune");
  const MappedFile text(o.reference);
  const std::unique_ptr<Engine> engine = LoadEngine(o.model.model, o.model.engine);
  const std::vector<int32_t> tokens = Reference(o, text, *engine);
  ProgressLine line("tune", 1, "");
  HeadSearchResult found = SearchHeadPatterns(
      *engine, tokens, {.budget = o.head_budget, .cancelled = &Interrupted(), .progress = [&](double share) {
                          line.Update(share);
                        }});
  line.Clear();
  found.patterns.model = std::filesystem::path(o.model.model).filename().string();
  file.Append(TextOf(found.patterns));
  file.Commit();
  size_t heads[3] = {0, 0, 0};
  const auto& layers = found.patterns.heads;
  for (size_t l = 0; l + 1 < layers.size(); ++l) {  // the last layer's are not searched
    for (const HeadPattern& head : layers[l]) ++heads[static_cast<size_t>(head.kind)];
  }
  fmt::print("reference of {} tokens; {:.1f} % of the pairs\n", found.patterns.tokens, 100 * found.density);
  fmt::print("{:15} {:>6}  error of the attention's output if all heads had it\n", "", "heads");
  for (size_t kind = 0; kind < 3; ++kind)
    fmt::print("{:15} {:>6}  {:.5f}\n", kPatternNames[kind], heads[kind], found.error_of[kind]);
  fmt::print("{:15} {:>6}  {:.5f}\n", "the best of each", "", found.error);
  fmt::print("minference:heads={}\n", QuotedValue(o.head_patterns));
}

// --ffn-proxies: a proxy of each FFN, for spts:proxy=FILE.
void TuneProxies(TuneCommand& o) {
  { const NewFile probe(o.ffn_proxies, "tune"); }  // before the work
  const MappedFile text(o.reference);
  const std::unique_ptr<Engine> engine = LoadEngine(o.model.model, o.model.engine);
  const std::vector<int32_t> tokens = Reference(o, text, *engine);
  ProgressLine line("tune", 1, "");
  o.proxies.model = std::filesystem::path(o.model.model).filename().string();
  o.proxies.cancelled = &Interrupted();
  o.proxies.progress = [&](double share) { line.Update(share); };
  const FfnProxyResult made = MakeFfnProxies(*engine, tokens, o.ffn_proxies, o.proxies);
  line.Clear();
  PrintProxies(made, std::ssize(tokens));
  fmt::print("spts:proxy={}\n", QuotedValue(o.ffn_proxies));
}

void AddProxyOptions(CLI::App& tune, TuneCommand& o) {
  CLI::Option* proxies = tune.add_option(
      "--ffn-proxies", o.ffn_proxies,
      "search no settings, but make SPTS's low-rank proxy of each FFN, and write them to this file, for "
      "spts:proxy=FILE");
  proxies->needs(tune.get_option("--reference"))->excludes(tune.get_option("--head-patterns"));
  tune.add_option("--proxy-channels", o.proxies.channels,
                  "--ffn-proxies: channels of the FFN that stay; 0: the paper's for its models, else a sixth")
      ->check(CLI::Range(int64_t{0}, limits::kMaxHidden))
      ->capture_default_str()
      ->needs(proxies);
  tune.add_option("--proxy-rank", o.proxies.rank,
                  "--ffn-proxies: rank of each matrix; 0: the paper's for its models, else a twelfth of the "
                  "hidden size")
      ->check(CLI::Range(int64_t{0}, limits::kMaxHidden))
      ->capture_default_str()
      ->needs(proxies);
  tune.add_option("--proxy-tokens", o.proxies.tokens,
                  "--ffn-proxies: tokens of the text, evenly spread, that calibrate; a quarter as many test")
      ->check(CLI::Range(int64_t{100}, limits::kMaxContext))
      ->capture_default_str()
      ->needs(proxies);
}

void AddHeadOptions(CLI::App& tune, TuneCommand& o) {
  CLI::Option* patterns = tune.add_option(
      "--head-patterns", o.head_patterns,
      "search no settings, but MInference's attention pattern for each head, and write them to this "
      "file, for minference:heads=FILE");
  patterns->needs(
      tune.add_option("--reference", o.reference,
                      "a text file. --head-patterns: the heads are compared on its last tokens (at most -c); "
                      "--ffn-proxies: the channels are chosen on pieces of it"));
  tune.add_option("--head-budget", o.head_budget,
                  "--head-patterns: what a head may cost, as the tokens of an A-shape")
      ->check(CLI::Range(int64_t{2}, kManyTokens))
      ->capture_default_str()
      ->needs(patterns);
}

void AddSearchOptions(CLI::App& tune, TuneCommand& o) {
  tune.add_option(
          "--tasks", o.tune.eval.tasks,
          "tasks or groups of tasks, separated by commas (eval --list); default: a generated task for each "
          "kind of question, and with --data those that need it")
      ->take_all()
      ->delimiter(',');
  tune.add_option(
          "--budget", o.budgets,
          "the allowed loss, may be repeated for several calibrations: 1% of the dense score; kl=0.05 nats "
          "of mean divergence; 1%,kl=0.05: both at once")
      ->capture_default_str()
      ->take_all();
  tune.add_option("--methods", o.tune.methods,
                  "what to try, may be repeated: a method, or several joined by +; given keys are fixed")
      ->take_all();
  tune.add_option("--least", o.least, "percent that dense must score in a task; other tasks are left out")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  o.time_limit = tune.add_option("--time-limit", o.tune.minutes,
                                 "minutes, in which the test on the held-out samples is included; the best "
                                 "setting so far is then taken, and the same command goes on; 0: no limit")
                     ->check(CLI::Range(0.0, 1e6))
                     ->capture_default_str();
  tune.add_flag("--quick", o.tune.quick,
                "few samples, and only the settings that are likely to help: 6 minutes, unless --time-limit "
                "says otherwise");
  tune.add_option("--steps", o.tune.most_steps, "refinement steps for each method and budget")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
}

}  // namespace

void AddTune(CLI::App& app) {
  auto o = std::make_shared<TuneCommand>();
  o->tune.eval.samples = 32;
  CLI::App* tune = app.add_subcommand("tune", "find the fastest setting that keeps a model's answers");
  AddSearchOptions(*tune, *o);
  AddHeadOptions(*tune, *o);
  AddProxyOptions(*tune, *o);
  AddSampleOptions(*tune, o->tune.eval);
  tune->add_option("-o,--output", o->calibration,
                   "the calibration file; default: beside the model, where --prune auto finds it");
  tune->add_option("--work", o->tune.eval.folder,
                   "a folder for tune.jsonl and tune.json; resumes a run there. Default: a folder beside the "
                   "calibration");
  tune->add_option("--out", o->out, "a file that gets the best spec");
  tune->add_option("--cache-ram", o->cache_mib,
                   "MiB for what the settings of one sample share; 0: everything is recomputed (-cram)")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  tune->add_flag("--all", o->all, "print every candidate that was run");
  AddModelOptions(*tune, o->model);
  tune->footer(
      "The search uses half of the samples (--samples, of each task and length), the other half tests the "
      "settings that it found. The last line of the output is the best spec, for --prune; where no setting "
      "keeps the budget and is faster than dense, the exit code is 1. docs/tune.md has the rest.\n"
      "Examples:\n  coppice tune -m model.gguf --chat\n"
      "  coppice tune -m model.gguf --lengths 4096,8192 --budget 1% --budget 5% --time-limit 120\n"
      "  coppice tune -m model.gguf --tasks niah,ruler/vt --methods lazyllm --methods sliminfer+ftp\n"
      "  coppice tune -m model.gguf --head-patterns heads.json --reference report.txt --head-budget 1280\n"
      "  coppice tune -m model.gguf --ffn-proxies proxies.safetensors --reference report.txt");
  tune->callback([o] {
    InstallInterruptHandler();
    if (!o->head_patterns.empty()) {
      TuneHeads(*o);
    } else if (!o->ffn_proxies.empty()) {
      TuneProxies(*o);
    } else if (!o->reference.empty()) {
      throw CLI::ValidationError("--reference", "needs --head-patterns or --ffn-proxies");
    } else {
      Tune(*o);
    }
  });
}

}  // namespace coppice::cli
