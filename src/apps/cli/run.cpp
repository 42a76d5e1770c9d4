// coppice run: one prompt, one answer.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "apps/cli/answer_writer.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/report.h"
#include "apps/cli/terminal.h"
#include "apps/cli/watch.h"
#include "base/error.h"
#include "base/new_file.h"
#include "comm/comm.h"
#include "engine/answer_reader.h"
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
  bool verbose = false;
  bool only_if_it_pays = true;
};

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

// What stderr gets after an answer; a pipe gets the same, for who reads it later.
void TellAfter(const RunOptions& o, const Answer& answer, const Engine& engine) {
  if (StderrIsTerminal()) fmt::print(stderr, "\n");
  if (StderrIsTerminal() && HeadIsAbsent(engine)) fmt::print(stderr, "note: {}\n", kHeadIsAbsent);
  fmt::print(stderr, "{}\n", AnswerLine(answer, o.generate.predict));
  const std::string pruned = PruneLine(answer);
  if (!pruned.empty() && (o.verbose || answer.fell_back)) fmt::print(stderr, "{}\n", pruned);
}

// Answers one prompt; with --json returns what to print.
nlohmann::ordered_json AnswerPrompt(const RunOptions& o, const PromptOptions& asked, Engine& engine) {
  const ChatPrompt prompt = TokenizePrompt(asked, engine.tokenizer(), o.model.model);
  Request request = MakeRequest(o.generate, prompt, engine.tokenizer());
  request.prune = o.prune;
  const Tokenizer& tokenizer = *engine.tokenizer();
  const std::optional<Thinking> thinking =
      IsChat(asked, tokenizer) ? ThinkingOf(tokenizer, ChatTemplateOf(tokenizer), prompt.tokens)
                               : std::nullopt;
  request.grammar = FormGrammar(o.form, engine, thinking);
  request.cancelled = &Interrupted();
  request.confidence = o.json;
  request.only_if_it_pays = o.only_if_it_pays;
  const bool says = !o.json && !o.quiet;  // JSON holds what these lines say
  if (says)
    request.on_choice = [](const ChosenRun& chosen) { fmt::print(stderr, "{}", LinesBefore(chosen)); };
  std::optional<Watch> watch;
  if (!o.quiet) watch.emplace("prefill", engine.model().config().shape.layer_count(), request);
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
  const Answer answer = engine.Generate(request);
  if (!o.trace.empty()) WriteTrace(recorder.Take(), o.trace);
  clear();
  nlohmann::ordered_json json;
  if (o.json) {
    json = AnswerJson(answer, AnswerText(answer, engine), prompt, engine);
    if (thinking) TellThinking(answer, reader, json);
  } else {
    writer.Write(reader.Flush());
    writer.End();
    if (says) TellAfter(o, answer, engine);
  }
  return json;
}

// Answers several questions about one prompt, each under its question.
void AnswerAll(const RunOptions& o, PromptOptions prompt, Engine& engine) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string& question : o.prompt.question.asks) {
    prompt.question.asks = {question};
    if (!o.json) WriteOut((list.empty() ? "" : "\n") + Shown(question) + "\n");
    nlohmann::ordered_json json = {{"ask", question}};
    const nlohmann::ordered_json answered = AnswerPrompt(o, prompt, engine);
    if (o.json) json.update(answered);
    list.push_back(std::move(json));
  }
  if (o.json) WriteOut(Dump(list) + "\n");
}

void Run(const RunOptions& o) {
  const bool several = o.prompt.question.asks.size() > 1;
  if (several && !o.trace.empty()) throw Error("--trace holds one run: give one --ask with it");
  // A trace file that cannot be written is an error before the work, not after.
  if (!o.trace.empty()) {
    const NewFile probe(o.trace, "trace");
  }
  PromptOptions prompt = o.prompt;
  if (!prompt.messages) {  // stdin can be read once
    prompt.text = ReadPrompt(prompt);
    prompt.file.reset();
  }
  EngineOptions options = o.model.engine;
  if (!o.doc_cache.empty()) {
    options.documents = DocumentCacheOptions{.folder = o.doc_cache};
  } else if (several && World().size() == 1) {
    options.documents = DocumentCacheOptions{};
  }
  const std::unique_ptr<Engine> engine = LoadEngine(o.model.model, options);
  TellChat(prompt, engine->tokenizer(), o.model.model);
  if (several) {
    AnswerAll(o, std::move(prompt), *engine);
  } else {
    const nlohmann::ordered_json json = AnswerPrompt(o, prompt, *engine);
    if (o.json) WriteOut(Dump(json) + "\n");
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
  AddAskOption(*run, o->prompt.question);
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
  run->add_flag("-v,--verbose", o->verbose, "also the method's whole setting and what it kept");
  run->add_flag(
      "--json", o->json,
      "print one JSON object with the text and the run's figures; with several --ask a list of them");
  run->footer(
      "Examples:\n  coppice run -m model.gguf -p \"Once upon a time\" -n 64 --temp 0\n"
      "  coppice run -m model.gguf -f report.txt --ask \"Who signed it?\" --ask \"When?\" --prune auto\n"
      "  git log | coppice run -m model.gguf --ask \"What changed?\"\n"
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
