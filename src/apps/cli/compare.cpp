// coppice compare: the same question answered densely and by each method, side by side.
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

struct CompareOptions {
  ModelOptions model;
  PromptOptions prompt;
  GenerateOptions generate;
  std::vector<std::string> prune;
  std::vector<std::string> baseline;  // methods marked as baselines
  std::string expect;
  int rounds = 3;
  bool json = false;
  bool markdown = false;
};

struct ComparedArm {
  std::string prune;
  bool is_baseline = false;
  Answer answer;                // of the last round; greedy, so every round's is the same
  std::vector<double> ttft_ms;  // a round each
};

// The answer on one line, short enough for a cell. A long answer is cut to the part around the expected text,
// else to its end, because long answers begin with the words of the question.
std::string Cell(std::string text, const std::string& expect) {
  constexpr size_t kWidth = 44;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '|') c = ' ';
  }
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  text.resize(text.find_last_not_of(' ') + 1);
  if (text.size() <= kWidth) return text;
  const size_t place = expect.empty() ? std::string::npos : text.find(expect);
  const size_t middle = place == std::string::npos ? text.size() : place + expect.size() / 2;
  size_t begin = std::min(middle - std::min(middle, kWidth / 2), text.size() - kWidth);
  size_t end = begin + kWidth;
  const auto cuts_character = [&text](size_t at) { return at < text.size() && (text[at] & 0xc0) == 0x80; };
  while (cuts_character(begin)) ++begin;
  while (cuts_character(end)) --end;
  return fmt::format("{}{}{}", begin > 0 ? "..." : "", text.substr(begin, end - begin),
                     end < text.size() ? "..." : "");
}

// The method as the table names it.
std::string Name(const ComparedArm& arm) {
  if (arm.prune == "none") return "dense";
  return arm.prune + (arm.is_baseline ? " (baseline)" : "") +
         (arm.answer.prune_active ? "" : " (stood aside)");
}

std::vector<ComparedArm> RunArms(const CompareOptions& o, Engine& engine, const ChatPrompt& prompt) {
  std::vector<ComparedArm> arms = {{"none", false, {}, {}}};
  for (const std::string& spec : o.prune) arms.push_back({spec, false, {}, {}});
  for (const std::string& spec : o.baseline) arms.push_back({spec, true, {}, {}});
  // Round 0 warms caches and page tables and is not counted. Arms alternate, so that a drift of the machine's
  // speed affects all alike.
  for (int round = 0; round <= o.rounds; ++round) {
    for (ComparedArm& arm : arms) {
      Request request = MakeRequest(o.generate, prompt, engine.tokenizer());
      request.prune = arm.prune;
      request.sampling.temperature = 0;
      request.cancelled = &Interrupted();
      const Watch watch(fmt::format("{} {}/{}", arm.prune, round, o.rounds),
                        engine.model().config().shape.layer_count(), request);
      arm.answer = engine.Generate(request);
      if (round > 0) arm.ttft_ms.push_back(arm.answer.ttft_ms);
    }
  }
  return arms;
}

std::string Verdict(const CompareOptions& o, const std::string& text) {
  if (o.expect.empty()) return "";
  return text.find(o.expect) != std::string::npos ? "right" : "wrong";
}

void Compare(const CompareOptions& o) {
  if (o.prompt.question.asks.size() > 1) throw Error("--ask: compare takes one question");
  const std::unique_ptr<Engine> engine = LoadEngine(o.model.model, o.model.engine);
  TellChat(o.prompt, engine->tokenizer(), o.model.model);
  // An invalid setting is an error now, and not after the rounds of those in front of it.
  for (const std::vector<std::string>& settings : {o.prune, o.baseline}) {
    for (const std::string& setting : settings) engine->CheckSetting(setting);
  }
  const ChatPrompt prompt = TokenizePrompt(o.prompt, engine->tokenizer(), o.model.model);
  const std::vector<ComparedArm> arms = RunArms(o, *engine, prompt);
  const double dense = SpreadOf(arms.front().ttft_ms).median;

  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  Table table(
      {"method", "kept KV / FFN", "TTFT ms", "min", "max", "speed-up", "FLOPs share", "KV", "answer", ""},
      {false, true, true, true, true, true, true, true, false, false});
  for (const ComparedArm& arm : arms) {
    const Ledger& ledger = arm.answer.ledger;
    const std::string text = AnswerText(arm.answer, *engine);
    const Spread ttft = SpreadOf(arm.ttft_ms);
    table.Add({Name(arm), KeptText(ledger), fmt::format("{:.0f}", ttft.median),
               fmt::format("{:.0f}", ttft.min), fmt::format("{:.0f}", ttft.max),
               fmt::format("{:.2f}x", dense / ttft.median),
               fmt::format("{:.0f} %", 100 * ledger.flops() / ledger.flops_dense()),
               BytesText(ledger.kv_bytes), Cell(text, o.expect), Verdict(o, text)});
    nlohmann::ordered_json row = AnswerJson(arm.answer, text, prompt, *engine);
    row["baseline"] = arm.is_baseline;
    row["ttft_ms_rounds"] = arm.ttft_ms;
    row["speed_up"] = dense / ttft.median;
    if (!o.expect.empty()) row["right"] = Verdict(o, text) == "right";
    rows.push_back(std::move(row));
  }
  if (o.json) {
    fmt::print("{}\n", Dump(rows, 1));
    return;
  }
  fmt::print("{}: {} prompt tokens, backend {} ({}), {} threads, {}\n\n{}", o.model.model,
             prompt.tokens.size(), engine->backend().name(), engine->backend().isa(),
             engine->backend().threads(),
             o.rounds == 1 ? "one round" : fmt::format("median of {} interleaved rounds", o.rounds),
             o.markdown ? table.Markdown() : table.Text());
  for (const ComparedArm& arm : arms) {
    if (!arm.answer.prune_reason.empty())
      fmt::print("{} stood aside: {}\n", arm.prune, arm.answer.prune_reason);
    if (!arm.answer.auto_reason.empty())
      fmt::print("{} ran {}: {}\n", arm.prune, arm.answer.prune_spec, arm.answer.auto_reason);
  }
}

}  // namespace

void AddCompare(CLI::App& app) {
  auto o = std::make_shared<CompareOptions>();
  o->generate.predict = 16;
  CLI::App* compare =
      app.add_subcommand("compare", "answer one prompt densely and pruned, side by side (greedy)");
  AddModelOptions(*compare, o->model);
  AddPromptOptions(*compare, o->prompt);
  AddQuestionOptions(*compare, o->prompt.question);
  AddAskOption(*compare, o->prompt.question);
  o->generate.prompt_lookup = 0;  // its gain depends on each answer, and not every method has it
  AddGenerateOptions(*compare, o->generate);
  compare->add_option("--prune", o->prune, "a method, or auto, to compare with dense; may be repeated")
      ->required()
      ->take_all();
  compare
      ->add_option("--baseline", o->baseline, "a method that the table marks as a baseline; may be repeated")
      ->take_all();
  compare->add_option("--expect", o->expect, "text that a right answer contains");
  compare->add_option("-r,--repetitions", o->rounds, "counted rounds, after a warm-up round")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  compare->add_flag("--json", o->json, "print a JSON list with all figures of every run");
  compare->add_flag("--markdown", o->markdown, "print a Markdown table");
  compare->footer(
      "Example:\n  coppice compare -m model.gguf -f prompt.txt --expect 48213 --prune ftp --prune sliminfer");
  compare->callback([o] {
    InstallInterruptHandler();
    Compare(*o);
  });
}

}  // namespace coppice::cli
