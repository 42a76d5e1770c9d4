// coppice chat: a session at the terminal: a document, questions, answers that know the earlier ones.
#include <fmt/core.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/answer_writer.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/report.h"
#include "apps/cli/terminal.h"
#include "apps/cli/watch.h"
#include "base/error.h"
#include "comm/comm.h"
#include "engine/answer_reader.h"

namespace coppice::cli {

namespace {

struct SessionOptions {
  ModelOptions model;
  std::optional<std::string> file;
  std::optional<std::string> system;
  ThinkingWish thinking;
  GenerateOptions generate;
  std::string prune = "none";
  bool only_if_it_pays = true;
  bool quiet = false;
  bool verbose = false;
};

class Session {
 public:
  Session(const SessionOptions& o, Engine& engine) : o_(o), engine_(engine) {
    if (o.system) messages_.push_back({"system", *o.system, true});
    if (!o.file) return;
    messages_.push_back({.role = "user", .content = ReadTextFile(*o.file)});
  }

  // Answers, and keeps question and answer for later ones; neither if the answer was cancelled or failed.
  void Ask(const std::string& question) {
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({.role = "user", .content = question, .is_question = true});
    std::string said;
    try {
      said = Reply(messages);
    } catch (const Cancelled&) {
      if (!o_.quiet) fmt::print(stderr, "cancelled\n");
      return;
    } catch (const Error& error) {
      fmt::print(stderr, "coppice: {}\n", error.what());
      return;
    }
    messages.back().is_question = false;  // the next one is the question then
    messages.push_back({.role = "assistant", .content = std::move(said)});
    messages_ = std::move(messages);
  }

 private:
  std::string Reply(const std::vector<ChatMessage>& messages) {
    const Tokenizer& tokenizer = *engine_.tokenizer();
    const std::string& chat_template = ChatTemplateOf(tokenizer);
    ChatOptions options{.cancelled = &Interrupted()};
    ThinkingWish wish = o_.thinking;
    if (wish.budget == 0) wish.on = false;
    options.variables = ThinkingVariables(chat_template, wish);
    const ChatPrompt prompt = EncodeChat(messages, tokenizer, options);
    const std::optional<Thinking> thinking = ThinkingOf(tokenizer, chat_template, prompt.tokens);
    Request request = MakeRequest(o_.generate, prompt, &tokenizer);
    request.prune = o_.prune;
    request.only_if_it_pays = o_.only_if_it_pays;
    request.cancelled = &Interrupted();
    LimitThinking(wish, tokenizer, thinking, request);
    if (!o_.quiet)
      request.on_choice = [](const ChosenRun& chosen) { fmt::print(stderr, "{}", LinesBefore(chosen)); };
    std::optional<Watch> watch;
    if (!o_.quiet) watch.emplace("prefill", engine_.model().config().shape.layer_count(), request);
    AnswerReader reader(tokenizer, thinking);
    AnswerWriter writer;
    std::string said;
    const auto take = [&](const AnswerReader::Piece& piece) {
      said += piece.text;
      writer.Write(piece);
    };
    request.on_token = [&](int32_t id) {
      if (watch) watch->Clear();
      take(reader.Push(id));
      return true;
    };
    Answer answer;
    try {
      answer = engine_.Generate(request);
    } catch (const Cancelled&) {
      writer.End();
      throw;
    }
    if (watch) watch->Clear();
    take(reader.Flush());
    writer.End();
    if (!o_.quiet) TellAnswer(answer);
    return said;
  }

  void TellAnswer(const Answer& answer) const {
    fmt::print(stderr, "{}\n", AnswerLine(answer, o_.generate.predict));
    const std::string pruned = PruneLine(answer);
    if (!pruned.empty() && (o_.verbose || answer.fell_back)) fmt::print(stderr, "{}\n", pruned);
  }

  const SessionOptions& o_;
  Engine& engine_;
  std::vector<ChatMessage> messages_;
};

bool IsBlankLine(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

void Chat(const SessionOptions& o) {
  if (o.file == "-") throw Error("-f -: chat reads the questions from stdin; name a file of the document");
  EngineOptions options = o.model.engine;
  if (World().size() == 1) options.documents = DocumentCacheOptions{};  // later questions share the read
  const std::unique_ptr<Engine> engine = LoadEngine(o.model.model, options);
  if (engine->tokenizer() == nullptr) throw Error("{}: has no tokenizer", o.model.model);
  TellChat({.chat = true}, engine->tokenizer(), o.model.model);
  engine->CheckSetting(o.prune);
  Session session(o, *engine);
  const bool at_terminal = StdinIsTerminal();
  if (at_terminal && !o.quiet)
    fmt::print(stderr, "A question a line. Ctrl-C stops an answer; Ctrl-D or /exit ends the session.\n");
  LineReader lines;
  while (true) {
    if (at_terminal) WriteOut("> ");
    const std::optional<std::string> line = lines.Next();
    if (!line || *line == "/exit") break;
    if (IsBlankLine(*line)) continue;
    if (!at_terminal) WriteOut("> " + Shown(*line) + "\n");
    session.Ask(*line);
    ForgetInterrupt();  // it was for this answer
  }
  if (at_terminal) WriteOut("\n");
}

}  // namespace

void AddChat(CLI::App& app) {
  auto o = std::make_shared<SessionOptions>();
  CLI::App* chat = app.add_subcommand("chat", "ask questions one after the other, perhaps about a document");
  AddModelOptions(*chat, o->model);
  chat->add_option("-f,--file", o->file, "a document that the questions are about");
  chat->add_option("--system", o->system, "a system message, which no method may prune");
  AddGenerateOptions(*chat, o->generate);
  AddThinkingOptions(*chat, o->thinking);
  chat->add_option("--prune", o->prune, "none, auto, or methods joined by +, as in coppice run")
      ->capture_default_str();
  AddPruneWhen(*chat, o->only_if_it_pays);
  chat->add_flag("-q,--quiet", o->quiet, "nothing on stderr but warnings and errors");
  chat->add_flag("-v,--verbose", o->verbose, "also the method's whole setting and what it kept");
  chat->footer(
      "Questions come from stdin, a line each, and the answers know the earlier ones. Ctrl-C stops an "
      "answer,\n"
      "Ctrl-D or /exit ends the session. Where stdin is no terminal, each question is written before its "
      "answer.\n"
      "Example:\n  coppice chat -m model.gguf -f report.txt --prune coppice");
  chat->callback([o] {
    InstallInterruptHandler(AfterInterrupt::kGoOn);
    Chat(*o);
  });
}

}  // namespace coppice::cli
