// coppice train sdtp: reads the options, shows progress, and prints how well predictions agree with saliency.
#include "apps/train/train_sdtp.h"

#include <fmt/core.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/checks.h"
#include "apps/cli/terminal.h"
#include "train/sdtp_trainer.h"

namespace coppice::train {

namespace {

using cli::ProgressLine;
using Phase = TrainingProgress::Phase;

struct Options {
  SdtpTraining training;
  bool no_mse = false;
  bool no_rank = false;
  std::optional<double> ratio;
  bool json = false;
  bool paper = false;
};

std::string LossText(const SdtpLosses& l, bool end_to_end) {
  std::string text = fmt::format("mse {:.4f}  rank {:.4f}", l.mse, l.rank);
  if (end_to_end) text += fmt::format("  answer {:.4f}", l.answer);
  if (l.distill != 0) text += fmt::format("  distill {:.4f}", l.distill);
  return text;
}

// One progress line for each phase.
class Progress {
 public:
  explicit Progress(bool end_to_end) : end_to_end_(end_to_end) {}

  void Tell(const TrainingProgress& p) {
    if (!line_ || p.phase != phase_) {
      const bool marking = p.phase == Phase::kMarking;
      const bool learning = p.phase == Phase::kLearning;
      line_.emplace(marking                      ? "marking saliency"
                    : learning                   ? "learning"
                    : p.phase == Phase::kReading ? "reading"
                                                 : "comparing",
                    static_cast<double>(p.total),
                    marking    ? "text"
                    : learning ? "step"
                               : "");
      phase_ = p.phase;
    }
    line_->Update(static_cast<double>(p.done),
                  p.phase == Phase::kLearning ? LossText(p.losses, end_to_end_) : "");
  }
  void Clear() { line_.reset(); }

 private:
  bool end_to_end_;
  Phase phase_ = Phase::kReading;
  std::optional<ProgressLine> line_;
};

nlohmann::ordered_json ToJson(const Agreement& a) {
  return {{"tau", a.tau}, {"rho", a.rho}, {"kept", a.kept}};
}

void PrintJson(const SdtpTraining& t, const SdtpReport& r) {
  nlohmann::ordered_json out = {{"file", t.output},
                                {"base_model", r.base_model},
                                {"texts", r.texts.used},
                                {"too_long", r.texts.too_long},
                                {"too_short", r.texts.too_short},
                                {"learned_from", r.learned_from},
                                {"held_out", r.held_out},
                                {"steps", r.steps},
                                {"resumed_at", r.resumed_at},
                                {"mse", r.losses.mse},
                                {"rank", r.losses.rank},
                                {"answer", r.losses.answer}};
  for (const SdtpStageReport& s : r.stages) {
    out["stages"].push_back({{"layer", s.layer},
                             {"trained", ToJson(s.trained)},
                             {"untrained", ToJson(s.untrained)},
                             {"random", ToJson(s.random)},
                             {"best_kept", s.best_kept}});
  }
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void PrintTable(const SdtpTraining& t, const SdtpReport& r) {
  fmt::print("{} texts ({} too long, {} too short): learned from {}, held out {}; {} steps{}\n", r.texts.used,
             r.texts.too_long, r.texts.too_short, r.learned_from, r.held_out, r.steps,
             r.resumed_at > 0 ? fmt::format(", gone on from step {}", r.resumed_at) : "");
  fmt::print(
      "Predicted against true saliency on the held-out texts: Kendall's tau, Spearman's rho, and the "
      "saliency\n"
      "that the tokens kept at the stage hold, in %.\n\n");
  cli::Table table({"layer", "tau", "untrained", "random", "rho", "kept %", "untrained", "random", "best"},
                   std::vector<bool>(9, true));
  for (const SdtpStageReport& s : r.stages) {
    const auto number = [](double x) { return fmt::format("{:.3f}", x); };
    const auto percent = [](double x) { return fmt::format("{:.1f}", 100 * x); };
    table.Add({fmt::format("{}", s.layer), number(s.trained.tau), number(s.untrained.tau),
               number(s.random.tau), number(s.trained.rho), percent(s.trained.kept),
               percent(s.untrained.kept), percent(s.random.kept), percent(s.best_kept)});
  }
  fmt::print("{}\nwritten: {}\n", table.Text(), t.output);
}

// The paper's training, where it says how (arXiv 2504.04514, sections 3.2 and 4.1): ten stages of 0.9, the
// first 4 and the last 10 % protected, Gumbel masks, the three losses in an unweighted sum, two epochs. No
// ratio loss: the paper's text has none.
void TakePapersSettings(SdtpTraining& t) {
  const SdtpPaperSetting paper;
  t.stages = paper.stages;
  t.r = paper.r;
  t.first = paper.first;
  t.local = paper.local;
  t.end_to_end = true;
  t.mask = MaskKind::kGumbel;
  t.losses = {};
  t.epochs = 2;
}

void Train(Options& o) {
  SdtpTraining& t = o.training;
  if (o.paper) {
    TakePapersSettings(t);
    o.ratio = 0;
  }
  if (o.no_mse) t.losses.mse = 0;
  if (o.no_rank) t.losses.rank = 0;
  // DynamicViT's weight, where nothing else ties the number of kept tokens to r.
  t.losses.ratio = o.ratio.value_or(t.end_to_end && t.mask == MaskKind::kGumbel ? 2 : 0);
  cli::InstallInterruptHandler();
  Progress progress(t.end_to_end);
  const SdtpReport report = TrainSdtp(
      t, [&](const TrainingProgress& p) { progress.Tell(p); }, &cli::Interrupted());
  progress.Clear();
  if (o.json) {
    PrintJson(t, report);
  } else {
    PrintTable(t, report);
  }
}

void AddTextOptions(CLI::App& app, SdtpTraining& t) {
  using Format = TextOptions::Format;
  TextOptions& x = t.texts;
  app.add_option("-m,--model,model", t.model, "GGUF file, or Hugging Face folder")->required();
  app.add_option(
         "-d,--data", t.data,
         "texts: JSON lines with instruction, context, response (Dolly) or prompt, answer; or plain text. "
         "Several files may follow")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option_function<std::string>(
         "--format",
         [&x](const std::string& name) {
           x.format = name == "jsonl" ? Format::kJsonl : name == "text" ? Format::kPlain : Format::kAuto;
         },
         "format of the texts: auto (JSON lines if the name ends in .jsonl), jsonl, text")
      ->check(CLI::IsMember({"auto", "jsonl", "text"}));
  app.add_option("--texts", x.limit, "the number of texts to use, from the first on; 0: all")
      ->check(cli::ZeroOrMore());
  app.add_option("--length", x.longest, "tokens of a text; longer ones are left out, plain text is cut")
      ->check(CLI::Range(16, 1 << 20))
      ->capture_default_str();
  app.add_option("--response", x.response,
                 "plain text: tokens at the end of a piece that count as the response")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--chat", x.chat, "prompts go through the model's chat template");
  app.add_option("-o,--output", t.output, "the side file to write, e.g. sdtp.safetensors")->required();
  app.add_option("--work", t.work, "folder of what a run goes on from; default: the output's name + .work");
}

void AddStageOptions(CLI::App& app, SdtpTraining& t) {
  app.add_option("--stages", t.stages, "the number of stages, spread evenly from layer L / 8 to the last")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--layers", t.layers, "the layers of the stages, e.g. 4/7/10, instead of --stages")
      ->delimiter('/');
  app.add_option("-r", t.r, "each stage keeps this share of the tokens that the stage before kept")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  app.add_option("--first", t.first, "positions below this always stay")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--local", t.local, "share of the prompt, at its end, that always stays")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--width", t.width, "of the networks; 0: a quarter of the model's hidden size")
      ->check(CLI::Range(0, 1 << 20));
}

void AddLearningOptions(CLI::App& app, Options& o) {
  SdtpTraining& t = o.training;
  app.add_option("--epochs", t.epochs, "passes over the texts; 0: 15, or 2 with --end-to-end")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--batch", t.batch, "texts per step")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--lr", t.learning_rate, "AdamW's, at its peak")
      ->check(cli::AboveZero())
      ->capture_default_str();
  app.add_option("--rows", t.rows, "tokens of a text whose hidden states are kept on disk, drawn at random")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  app.add_option("--holdout", t.holdout, "share of the texts that is not learned from")
      ->check(CLI::Range(0.0, 0.9))
      ->capture_default_str();
  app.add_flag("--no-rank", o.no_rank, "ablation: without the ranking loss");
  app.add_flag("--no-mse", o.no_mse, "ablation: without the mean squared error");
  CLI::Option* pruned = app.add_flag("--end-to-end", t.end_to_end,
                                     "learn through the pruned model too: cross entropy of the response");
  app.add_option_function<std::string>(
         "--mask",
         [&t](const std::string& m) { t.mask = m == "gumbel" ? MaskKind::kGumbel : MaskKind::kTopK; },
         "topk (as a run prunes), or gumbel")
      ->check(CLI::IsMember({"topk", "gumbel"}))
      ->needs(pruned);
  app.add_option("--distill", t.losses.distill,
                 "weight of the divergence from the dense model; DynamicViT: 0.5")
      ->check(cli::ZeroOrMore())
      ->needs(pruned);
  app.add_option("--ratio", o.ratio, "weight of (kept - r^s)^2; default 0, with gumbel masks 2")
      ->check(cli::ZeroOrMore())
      ->needs(pruned);
  app.add_option("-s,--seed", t.seed, "the same seed, the same file (on one thread, to the bit)")
      ->capture_default_str();
  app.add_option("--save-every", t.save_every, "steps from one saved state to the next")
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  app.add_option("-t,--threads", t.threads, "threads; 0: all usable cores")->check(CLI::Range(0, 1024));
  app.add_flag("--json", o.json, "one JSON object instead of the table");
}

}  // namespace

void AddSdtp(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* sdtp = app.add_subcommand("sdtp", "SDTP's predictors, from texts and a frozen model");
  sdtp->footer("A run that was interrupted goes on where it was: give the same command again.");
  AddTextOptions(*sdtp, o->training);
  AddStageOptions(*sdtp, o->training);
  AddLearningOptions(*sdtp, *o);
  CLI::Option* paper = sdtp->add_flag("--paper", o->paper,
                                      "train as the paper says: its stages, masks, losses and epochs; give "
                                      "Dolly (databricks-dolly-15k) as data");
  for (const char* decided : {"--stages", "--layers", "-r", "--first", "--local", "--epochs", "--no-rank",
                              "--no-mse", "--end-to-end", "--mask", "--distill", "--ratio"})
    paper->excludes(sdtp->get_option(decided));
  sdtp->callback([o] { Train(*o); });
}

}  // namespace coppice::train
