// The options that commands share, parsed in one place so that they mean the same in each. Names are
// llama.cpp's if it has the option.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/question.h"
#include "engine/chat_prompt.h"
#include "engine/engine.h"
#include "engine/thinking.h"
#include "grammar/token_filter.h"

namespace coppice::cli {

struct ModelOptions {
  std::string model;
  EngineOptions engine;
};

struct PromptOptions {
  std::optional<std::string> text;
  std::optional<std::string> file;
  bool chat = false;
  std::optional<std::string> system;    // with --chat: the system message, protected
  std::optional<std::string> messages;  // a file of messages instead of text
  ThinkingWish thinking;                // of a chat
  bool is_chat() const { return chat || messages; }
  QuestionOptions question;
};

struct GenerateOptions {
  int64_t predict = -1;
  bool ignore_eos = false;
  SamplingOptions sampling;
  int64_t seed = -1;  // -1: a new one each run
  Protection protection;
  double least_confidence = 0;
  int64_t prompt_lookup = kDefaultLookup;
};

// The form of the answer; at most one of them.
struct FormOptions {
  std::optional<std::string> grammar;
  std::optional<std::string> grammar_file;
  std::optional<std::string> schema;
  std::optional<std::string> schema_file;
};

void AddFormOptions(CLI::App& app, FormOptions& options);
// Null if no option was given. Throws Error that names the option or the file.
// `thinking`: as the answer may have it in front of the form.
std::shared_ptr<const TokenGrammar> FormGrammar(const FormOptions& options, Engine& engine,
                                                const std::optional<Thinking>& thinking = {});

void AddModelOptions(CLI::App& app, ModelOptions& options, bool required = true);
// Those of them that say how a model is run, without --model.
void AddEngineOptions(CLI::App& app, ModelOptions& options);
void AddPromptOptions(CLI::App& app, PromptOptions& options);
void AddGenerateOptions(CLI::App& app, GenerateOptions& options);
// --reasoning and --reasoning-budget. 0 tokens: no thinking.
void AddThinkingOptions(CLI::App& app, ThinkingWish& wish);
// --prune-when, for commands that may have a document cache.
void AddPruneWhen(CLI::App& app, bool& only_if_it_pays);

// Engine::Load(), and TellNote() of its tokenizer.
std::unique_ptr<Engine> LoadEngine(const std::string& path, const EngineOptions& options);
// Says on stderr what a user should know about how the tokenizer's files were read, if anything.
void TellNote(const Tokenizer* tokenizer);

// A file as a text. Throws Error if it cannot be read.
std::string ReadTextFile(const std::string& path);

// The prompt's text: -p, or the file of -f, or stdin, which "-f -" names and which counts without both if it
// is no terminal. Throws Error if there is no text, except with --ask, or the file is unreadable.
std::string ReadPrompt(const PromptOptions& options);

// Whether the prompt becomes a chat: --chat, --messages, or --ask for a model with a chat template.
bool IsChat(const PromptOptions& options, const Tokenizer& tokenizer);
// Warns on stderr of a chat with a model that has no chat template.
void TellChat(const PromptOptions& options, const Tokenizer* tokenizer, const std::string& model);

// The prompt's tokens, with BOS, and with the chat template if IsChat(); and the question's place in it. Of
// QuestionOptions::asks the first follows the prompt. Throws Error if the model has no tokenizer or no
// template, or the question is not in the prompt.
ChatPrompt TokenizePrompt(const PromptOptions& options, const Tokenizer* tokenizer, const std::string& model,
                          bool add_special = true);

// A request with everything but the method set.
Request MakeRequest(const GenerateOptions& options, ChatPrompt prompt, const Tokenizer* tokenizer);

// Of "bf16", "q8_0" or "f32".
DType CacheType(const std::string& name);

// llama.cpp's options that mean something else or nothing here (llama_options.cpp).
void AddLlamaOptions(CLI::App& app, ModelOptions& options);

// llama.cpp's single-dash long names ("-ub 512") as the parser reads them ("--ubatch-size 512").
std::vector<std::string> RewriteAliases(int argc, const char* const* argv);

}  // namespace coppice::cli
