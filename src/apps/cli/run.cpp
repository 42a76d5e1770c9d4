// coppice run: one prompt, one answer.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/report.h"
#include "apps/cli/terminal.h"
#include "apps/cli/watch.h"
#include "base/error.h"
#include "base/new_file.h"
#include "engine/answer_reader.h"
#include "formats/printable.h"
#include "trace/trace_file.h"

namespace coppice::cli {

namespace {

struct RunOptions {
  ModelOptions model;
  PromptOptions prompt;
  GenerateOptions generate;
  FormOptions form;
  std::string prune = "none";
  std::string trace;
  std::string doc_cache;
  bool json = false;
  bool quiet = false;
  bool only_if_it_pays = true;
};

void PrintSummary(const Answer& answer, int64_t prompt_tokens) {
  fmt::print(stderr, "\n{} prompt tokens, first token after {:.0f} ms; {} generated ({}), {:.1f} tokens/s\n",
             prompt_tokens, answer.ttft_ms, answer.tokens.size(), answer.finish_reason,
             answer.decode_tokens_per_second);
  if (answer.cached_tokens() > 0)
    fmt::print(stderr, "{} tokens taken from the document cache\n", answer.cached_tokens());
}

// An answer for a terminal has no characters that make it act: the model's author chooses its tokens.
std::string Shown(const std::string& text) {
  return isatty(STDOUT_FILENO) == 1 ? WithoutControls(text, "\n\t") : text;
}

void Write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error("cannot write to stdout");
}

// Writes an answer to stdout. A terminal shows the thinking, dim and apart; what reads a pipe wants the
// answer.
class AnswerWriter {
 public:
  void Write(const AnswerReader::Piece& piece) {
    const bool shows = isatty(STDOUT_FILENO) == 1;
    if (shows && !piece.thought.empty()) {
      cli::Write((std::exchange(is_dim_, true) ? "" : kDim) + Shown(piece.thought));
    }
    if (piece.text.empty()) return;
    EndThought();
    cli::Write(Shown(stream_.Push(piece.text)));
  }
  void End() {
    EndThought();
    cli::Write(Shown(stream_.Flush()) + "\n");
  }

 private:
  static constexpr const char* kDim = "\033[2m";

  void EndThought() {
    if (std::exchange(is_dim_, false)) cli::Write("\033[0m\n\n");
  }

  Utf8Stream stream_;
  bool is_dim_ = false;
};

void LimitThinking(const ThinkingWish& wish, const Tokenizer& tokenizer,
                   const std::optional<Thinking>& thinking, Request& request) {
  if (!thinking || !(wish.budget || wish.on == false)) return;
  const int64_t most = wish.on == false ? 0 : *wish.budget;
  request.force = [budget = ThinkingBudget(tokenizer, *thinking, most)](
                      std::span<const int32_t> answer) mutable { return budget.Next(answer); };
}

// Puts the answer's thinking in a member of its own.
void TellThinking(const Answer& answer, AnswerReader& reader, nlohmann::ordered_json& json) {
  AnswerReader::Piece said;
  for (const int32_t id : answer.tokens) said += reader.Push(id);
  said += reader.Flush();
  json["text"] = said.text;
  if (!said.thought.empty()) json["reasoning_content"] = said.thought;
}

// Writes the prompt's entry of the document cache to a file for the next process; a failure is only reported.
void FlushDocuments(Engine& engine) {
  if (engine.documents() == nullptr) return;
  engine.documents()->Flush();
  const std::string error = engine.documents()->stats().last_error;
  if (!error.empty()) fmt::print(stderr, "warning: {}\n", error);
}

void Run(const RunOptions& o) {
  // A trace file that cannot be written is an error before the work, not after.
  if (!o.trace.empty()) {
    const NewFile probe(o.trace, "trace");
  }
  EngineOptions options = o.model.engine;
  if (!o.doc_cache.empty()) options.documents = DocumentCacheOptions{.folder = o.doc_cache};
  const std::unique_ptr<Engine> engine = LoadEngine(o.model.model, options);
  const ChatPrompt prompt = TokenizePrompt(o.prompt, engine->tokenizer(), o.model.model);
  Request request = MakeRequest(o.generate, prompt, engine->tokenizer());
  request.prune = o.prune;
  const Tokenizer& tokenizer = *engine->tokenizer();
  const std::optional<Thinking> thinking =
      o.prompt.is_chat() ? ThinkingOf(tokenizer, ChatTemplateOf(tokenizer), prompt.tokens) : std::nullopt;
  request.grammar = FormGrammar(o.form, *engine, thinking);
  request.cancelled = &Interrupted();
  request.confidence = o.json;
  request.only_if_it_pays = o.only_if_it_pays;
  const bool says = !o.json && !o.quiet;  // JSON holds what these lines say
  if (says)
    request.on_choice = [](const ChosenRun& chosen) { fmt::print(stderr, "{}", LinesBefore(chosen)); };
  std::optional<Watch> watch;
  if (!o.quiet) watch.emplace("prefill", engine->model().config().shape.layer_count(), request);
  const auto clear = [&watch] {
    if (watch) watch->Clear();
  };
  AnswerReader reader(tokenizer, thinking);
  LimitThinking(o.prompt.thinking, tokenizer, thinking, request);
  AnswerWriter writer;
  if (!o.json) {
    request.on_token = [&](int32_t id) {
      clear();
      writer.Write(reader.Push(id));
      return true;
    };
  }
  TraceRecorder recorder;
  if (!o.trace.empty()) request.trace = &recorder;
  const Answer answer = engine->Generate(request);
  if (!o.trace.empty()) WriteTrace(recorder.Take(), o.trace);
  clear();
  if (o.json) {
    nlohmann::ordered_json json = AnswerJson(answer, AnswerText(answer, *engine), prompt, *engine);
    if (thinking) TellThinking(answer, reader, json);
    Write(Dump(json) + "\n");
  } else {
    writer.Write(reader.Flush());
    writer.End();
    const bool summary = says && StderrIsTerminal();
    if (summary && HeadIsAbsent(*engine)) fmt::print(stderr, "note: {}\n", kHeadIsAbsent);
    if (summary) PrintSummary(answer, static_cast<int64_t>(prompt.tokens.size()));
    // Printed even if stderr is no terminal: who asks for pruning must see what came of it.
    const std::string pruned = PruneLine(answer);
    if (says && !pruned.empty()) fmt::print(stderr, "{}\n", pruned);
  }
  FlushDocuments(*engine);
}

}  // namespace

void AddRun(CLI::App& app) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* run = app.add_subcommand("run", "answer one prompt");
  AddModelOptions(*run, o->model);
  AddPromptOptions(*run, o->prompt);
  AddQuestionOptions(*run, o->prompt.question);
  AddGenerateOptions(*run, o->generate);
  AddFormOptions(*run, o->form);
  AddThinkingOptions(*run, o->prompt.thinking);
  run->add_option(
         "--prune", o->prune,
         "none, auto (the setting that coppice tune found for this model, else none), or methods joined "
         "by + (coppice methods lists them)")
      ->capture_default_str();
  run->add_option("--trace", o->trace,
                  "write what happened to every token to this file (coppice trace draws it)");
  run->add_option("--doc-cache", o->doc_cache,
                  "a folder that keeps the computed beginnings of prompts for later prompts, up to 16 GiB");
  AddPruneWhen(*run, o->only_if_it_pays);
  run->add_flag("-q,--quiet", o->quiet, "nothing on stderr but warnings and errors");
  run->add_flag("--json", o->json, "print one JSON object with the text and the run's figures");
  run->footer(
      "Examples:\n  coppice run -m model.gguf -p \"Once upon a time\" -n 64 --temp 0\n"
      "  coppice run -m model.gguf -f report.txt --prune auto\n"
      "  coppice run -m model.gguf -f report.txt --prune sliminfer+ftp:dense=4 --json\n"
      "  coppice run -m model.gguf -f report.txt --prune lazyllm --trace run.jsonl\n"
      "  coppice run -m model.gguf --chat -p \"Name a town.\" --json-schema '{\"properties\": {\"town\": "
      "{\"type\": "
      "\"string\"}}, \"required\": [\"town\"]}'");
  run->callback([o] {
    InstallInterruptHandler();
    Run(*o);
  });
}

}  // namespace coppice::cli
