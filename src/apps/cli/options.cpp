#include "apps/cli/options.h"

#include <fmt/core.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>

#include "apps/checks.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "comm/comm.h"
#include "engine/answer_judge.h"
#include "engine/thinking_rules.h"
#include "formats/json.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "kernels/gpu/gpu_backend.h"

namespace coppice::cli {

namespace {

std::vector<ChatMessage> WithAsked(std::vector<ChatMessage> messages, const PromptOptions& o) {
  if (!o.question.asks.empty())
    messages.push_back({.role = "user", .content = o.question.asks.front(), .is_question = true});
  return messages;
}

std::vector<ChatMessage> ReadChat(const PromptOptions& o) {
  if (o.messages) {
    if (o.file || o.system) throw Error("--messages takes the place of --file and --system");
    return WithAsked(ReadMessages(*o.messages), o);
  }
  std::vector<ChatMessage> messages;
  if (o.system) messages.push_back({"system", *o.system, true});
  std::string text = ReadPrompt(o);
  if (!text.empty() || o.question.asks.empty()) messages.push_back({"user", std::move(text)});
  return WithAsked(std::move(messages), o);
}

// The prompt and, behind a blank line, the question of --ask.
std::string PlainText(const PromptOptions& o) {
  std::string text = ReadPrompt(o);
  if (o.question.asks.empty()) return text;
  text.resize(text.find_last_not_of("\r\n") + 1);  // npos + 1 is 0
  return text + (text.empty() ? "" : "\n\n") + o.question.asks.front();
}

}  // namespace

std::unique_ptr<Engine> LoadEngine(const std::string& path, const EngineOptions& options) {
  std::unique_ptr<Engine> engine = Engine::Load(path, options);
  TellNote(engine->tokenizer());
  const int64_t trained = engine->model().config().context;
  if (trained > 0 && options.context > trained) {
    fmt::print(stderr,
               "warning: --ctx-size {}: {} was trained for {} positions, and what it says beyond them may be "
               "worthless\n",
               options.context, path, trained);
  }
  return engine;
}

void TellNote(const Tokenizer* tokenizer) {
  if (tokenizer != nullptr && !tokenizer->note().empty())
    fmt::print(stderr, "warning: {}\n", tokenizer->note());
}

void AddModelOptions(CLI::App& app, ModelOptions& o, bool required) {
  CLI::Option* model = app.add_option("-m,--model,model", o.model, "GGUF file, or Hugging Face folder");
  if (required) model->required();
  AddEngineOptions(app, o);
}

void AddEngineOptions(CLI::App& app, ModelOptions& o) {
  o.engine.comm = &World();
  app.add_option("-c,--ctx-size", o.engine.context,
                 "the most positions of a sequence; 0: as many as the model was trained for")
      ->check(ZeroOrMore());
  app.add_option("-t,--threads", o.engine.threads, "threads; 0: all usable cores")
      ->check(CLI::Range(0, 1024));
  app.add_option("--ubatch-size", o.engine.tile_rows,
                 "-ub: prompt tokens per tile inside a layer (memory, not results)")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  const std::string gpu = HasGpuKernels() ? "a CUDA device" : "a CUDA device (built without kernels)";
  app.add_option("--backend", o.engine.backend, "cpu; gpu: " + gpu + "; or reference: plain fp32 loops")
      ->check(CLI::IsMember({"cpu", "gpu", "reference"}))
      ->capture_default_str();
  CLI::Option* exact = app.add_flag("--exact", o.engine.exact, "fp32 products and cache instead of bf16");
  app.add_flag("--fast", o.engine.fast,
               "prompts of quantised models about a tenth sooner, at about twice the rounding error")
      ->excludes(exact);
  app.add_option_function<std::string>(
         "--cache-type", [&o](const std::string& type) { o.engine.cache_type = CacheType(type); },
         "format of cached keys and values: bf16, q8_0 (8 bits and a scale per 32), f32; default bf16, f32 "
         "with --exact")
      ->check(CLI::IsMember({"bf16", "q8_0", "f32"}));
  app.add_option(
      "--cold-dir", o.engine.cold.folder,
      "folder for keys and values that do not stay in memory; default $TMPDIR, else /var/tmp; on a GPU "
      "host memory");
  app.add_option_function<std::string>(
         "--cold-io",
         [&o](const std::string& io) {
           o.engine.cold.io = io == "uring"     ? ColdIo::kUring
                              : io == "threads" ? ColdIo::kThreads
                              : io == "sync"    ? ColdIo::kSync
                                                : ColdIo::kAuto;
         },
         "how that folder is written and read: auto, uring, threads, sync")
      ->check(CLI::IsMember({"auto", "uring", "threads", "sync"}));
  app.add_flag("--check-tensors", o.engine.check_tensors, "read every weight first, refuse NaN and Inf");
  AddLlamaOptions(app, o);
}

void AddPromptOptions(CLI::App& app, PromptOptions& o) {
  CLI::Option* text = app.add_option("-p,--prompt", o.text, "the prompt");
  app.add_option("-f,--file", o.file,
                 "a file that holds the prompt; - is stdin, which also counts without -p and -f")
      ->excludes(text);
  app.add_flag("--chat", o.chat, "the prompt is a user's message: apply the model's chat template");
  app.add_option("--system", o.system, "with --chat: a system message, which no method may prune");
  app.add_option(
         "--messages", o.messages,
         "a JSON file of chat messages as the prompt: [{\"role\", \"content\"}, ...], with \"protect\": true "
         "for those that no method may prune, \"question\": true for those that ask")
      ->excludes(text);
}

void AddThinkingOptions(CLI::App& app, ThinkingWish& wish) {
  app.add_option_function<std::string>(
         "--reasoning",
         [&wish](const std::string& word) {
           wish.on = word == "auto" ? std::nullopt : std::optional(word == "on");
         },
         "whether models that can think do so: on, off, or auto (default): as the chat template has it")
      ->check(CLI::IsMember({"on", "off", "auto"}));
  app.add_option_function<int64_t>(
         "--reasoning-budget",
         [&wish](int64_t tokens) { wish.budget = tokens < 0 ? std::nullopt : std::optional(tokens); },
         "tokens that an answer may think; 0: none, -1 (default): no limit")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 30));
}

namespace {

double LeastConfidence(const std::string& text) {
  if (text == "dense") return kDefaultLeastConfidence;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 1))
    throw CLI::ValidationError("--fallback", text + " is neither dense nor a probability from 0 to 1");
  return value;
}

}  // namespace

namespace {

void AddSamplingOptions(CLI::App& app, GenerateOptions& o) {
  app.add_option("--temp,--temperature", o.sampling.temperature, "0: always the likeliest token")
      ->capture_default_str();
  app.add_option("--top-k", o.sampling.top_k, "0: no limit")->capture_default_str();
  app.add_option("--top-p", o.sampling.top_p, "1: no limit")->capture_default_str();
  app.add_option("--min-p", o.sampling.min_p, "0: no limit")->capture_default_str();
  app.add_option("--repeat-penalty", o.sampling.repeat_penalty, "1: none")->capture_default_str();
  app.add_option("--repeat-last-n", o.sampling.repeat_last_n, "tokens it looks back; -1: all")
      ->capture_default_str();
  app.add_option("--presence-penalty", o.sampling.presence_penalty,
                 "lowers the logits of tokens that were generated before; 0: none")
      ->capture_default_str();
  app.add_option("--frequency-penalty", o.sampling.frequency_penalty,
                 "the same, times how often each was; 0: none")
      ->capture_default_str();
  app.add_option("--typical,--typical-p", o.sampling.typical_p, "locally typical sampling; 1: no limit")
      ->capture_default_str();
  app.add_option("--top-nsigma,--top-n-sigma", o.sampling.top_n_sigma,
                 "only logits within so many standard deviations of the best; -1: no limit")
      ->capture_default_str();
  app.add_option("--xtc-probability", o.sampling.xtc_probability,
                 "the chance that the likeliest tokens are excluded, down to the last above the threshold")
      ->capture_default_str();
  app.add_option("--xtc-threshold", o.sampling.xtc_threshold, "the probability from which on they are")
      ->capture_default_str();
  app.add_option("--dry-multiplier", o.sampling.dry.multiplier,
                 "penalty on tokens that would continue a repetition (DRY); 0: none")
      ->capture_default_str();
  app.add_option("--dry-base", o.sampling.dry.base, "its growth for each token of the repetition")
      ->capture_default_str();
  app.add_option("--dry-allowed-length", o.sampling.dry.allowed_length, "repetitions up to one less are free")
      ->capture_default_str();
  app.add_option("--dry-penalty-last-n", o.sampling.dry.last_n, "tokens it looks back; -1: all")
      ->capture_default_str();
  app.add_option("-s,--seed", o.seed, "-1: a new one each run")
      ->check(CLI::Range(int64_t{-1}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
}

}  // namespace

void AddGenerateOptions(CLI::App& app, GenerateOptions& o) {
  app.add_option("-n,--predict,--n-predict", o.predict, "tokens to generate; -1: until the model stops");
  app.add_flag("--ignore-eos", o.ignore_eos, "go on after the end token");
  app.add_option(
         "--prompt-lookup", o.prompt_lookup,
         "compute up to N tokens ahead where the answer repeats the prompt; the answer stays the same; "
         "0: none")
      ->check(CLI::Range(int64_t{0}, kMostLookup))
      ->capture_default_str();
  AddSamplingOptions(app, o);
  app.add_option("--protect-first", o.protection.first,
                 "prompt tokens at the start that no method may prune, kept beyond its budget")
      ->check(ZeroOrMore());
  app.add_option("--protect-last", o.protection.last,
                 "prompt tokens at the end that no method may prune, kept beyond its budget")
      ->check(ZeroOrMore());
  app.add_option_function<std::string>(
         "--fallback", [&o](const std::string& text) { o.least_confidence = LeastConfidence(text); },
         "dense, or a probability: hold back a pruned answer until its first sentence has ended, and answer "
         "densely if the model gives its likeliest tokens less than this on average, over any 4 tokens in a "
         "row (dense: 0.65)")
      ->type_name("dense|P");
}

void AddPruneWhen(CLI::App& app, bool& only_if_it_pays) {
  app.add_option_function<std::string>(
         "--prune-when", [&only_if_it_pays](const std::string& when) { only_if_it_pays = when == "pays"; },
         "pays (default): run densely where that costs no more, because of what the cache of prompts holds; "
         "always: prune all the same")
      ->check(CLI::IsMember({"pays", "always"}));
}

std::string ReadTextFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw Error("{}: is a folder, not a text", path);
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) throw Error("{}: cannot read: {}", path, std::strerror(errno));
  return text;
}

std::string ReadPrompt(const PromptOptions& o) {
  if (o.text) return *o.text;
  if (o.file && *o.file != "-") return ReadTextFile(*o.file);
  std::string text = o.file || !StdinIsTerminal() ? ReadStdin() : "";
  if (text.empty() && o.question.asks.empty())
    throw Error("no prompt: give -p TEXT or -f FILE, or write the text to stdin");
  return text;
}

void AddFormOptions(CLI::App& app, FormOptions& o) {
  CLI::Option* grammar = app.add_option("--grammar", o.grammar, "the answer follows this grammar, in GBNF");
  CLI::Option* file =
      app.add_option("--grammar-file", o.grammar_file, "the same from a file")->excludes(grammar);
  CLI::Option* schema =
      app.add_option("-j,--json-schema", o.schema, "the answer is JSON that fits this schema ({}: any JSON)")
          ->excludes(grammar)
          ->excludes(file);
  app.add_option("--json-schema-file", o.schema_file, "the same from a file")
      ->excludes(grammar)
      ->excludes(file)
      ->excludes(schema);
}

std::shared_ptr<const TokenGrammar> FormGrammar(const FormOptions& o, Engine& engine,
                                                const std::optional<Thinking>& thinking) {
  const bool is_gbnf = o.grammar || o.grammar_file;
  if (!is_gbnf && !o.schema && !o.schema_file) return nullptr;
  const std::string source = o.grammar        ? "--grammar"
                             : o.grammar_file ? *o.grammar_file
                             : o.schema       ? "--json-schema"
                                              : *o.schema_file;
  const std::string text = o.grammar ? *o.grammar : o.schema ? *o.schema : ReadTextFile(source);
  grammar::Rules rules;
  Automaton automaton;
  try {
    if (is_gbnf) {
      rules = ParseGbnf(text);
    } else {
      grammar::Expr value = AddJsonSchema(ParseOrderedJson(text, "JSON"), rules);
      rules.root = rules.Add(std::move(value));
    }
    if (thinking) rules.root = rules.Add(WithThinking(*thinking, {.answer = grammar::Rule(rules.root)}));
    automaton = Compile(rules);
  } catch (const Error& error) {
    throw Error("{}: {}", source, error.what());
  }
  TokenGrammar grammar{std::make_shared<const Automaton>(std::move(automaton)), engine.token_texts(), {}};
  if (thinking) grammar.marks = ThinkingGrammarMarks(*engine.tokenizer(), *thinking);
  return std::make_shared<const TokenGrammar>(std::move(grammar));
}

bool IsChat(const PromptOptions& o, const Tokenizer& tokenizer) {
  return o.is_chat() || (!o.question.asks.empty() && !tokenizer.chat_template().empty());
}

void TellChat(const PromptOptions& o, const Tokenizer* tokenizer, const std::string& model) {
  if (tokenizer != nullptr && o.is_chat() && tokenizer->chat_template().empty())
    fmt::print(
        stderr,
        "warning: {} has no chat template, so the chat is written in ChatML; a base model goes on with a "
        "text, and does not answer\n",
        model);
}

ChatPrompt TokenizePrompt(const PromptOptions& o, const Tokenizer* tokenizer, const std::string& model,
                          bool add_special) {
  if (tokenizer == nullptr) throw Error("{}: has no tokenizer", model);
  const bool is_chat = IsChat(o, *tokenizer);
  if (o.system && !is_chat) throw Error("--system goes with --chat");
  ChatPrompt prompt;
  if (is_chat) {
    const std::vector<ChatMessage> messages = ReadChat(o);
    ChatOptions options{.add_special = add_special};
    ThinkingWish wish = o.thinking;
    if (wish.budget == 0) wish.on = false;
    options.variables = ThinkingVariables(ChatTemplateOf(*tokenizer), wish);
    prompt = EncodeChat(messages, *tokenizer, options);
    if (o.question.text) {
      const EncodedText text = EncodeChatText(messages, *tokenizer, options);
      prompt.question = {FindQuestion(*o.question.text, text)};
    }
  } else {
    const EncodedText text(PlainText(o), *tokenizer, {.add_special = add_special, .parse_special = true});
    prompt.tokens = text.tokens();
    const std::optional<std::string> question =
        o.question.asks.empty() ? o.question.text : o.question.asks.front();
    if (question) prompt.question = {FindQuestion(*question, text)};
  }
  if (!o.question.spans.empty())
    prompt.question = QuerySpans(o.question.spans, static_cast<int64_t>(prompt.tokens.size()));
  return prompt;
}

Request MakeRequest(const GenerateOptions& o, ChatPrompt prompt, const Tokenizer* tokenizer) {
  Request request;
  request.tokens = std::move(prompt.tokens);
  request.max_tokens = o.predict;
  request.ignore_eos = o.ignore_eos;
  request.sampling = o.sampling;
  if (o.sampling.dry.multiplier > 0 && tokenizer != nullptr)
    request.sampling.dry.breakers = TokensWith(*tokenizer, DefaultDryBreakers());
  request.sampling.seed = o.seed < 0 ? std::random_device()() : static_cast<uint64_t>(o.seed);
  request.protection = o.protection;
  request.protection.spans = std::move(prompt.protected_spans);
  request.question = std::move(prompt.question);
  request.least_confidence = o.least_confidence;
  request.prompt_lookup = o.prompt_lookup;
  return request;
}

}  // namespace coppice::cli
