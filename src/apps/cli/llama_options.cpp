// llama.cpp's options that people type from habit: read as what they mean here, or explained.
#include <fmt/core.h>

#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "apps/cli/options.h"
#include "base/error.h"

namespace coppice::cli {

namespace {

constexpr const char* kGroup = "llama.cpp's options";

void Explain(const std::string& option, const char* what) {
  fmt::print(stderr, "note: {} {}\n", option, what);
}

void SetCacheType(const std::string& option, const std::string& name, ModelOptions& o) {
  const bool is_half = name == "f16";
  if (!is_half && name != "bf16" && name != "q8_0" && name != "f32")
    throw CLI::ValidationError(option, name + " is none of bf16, q8_0, f32");
  if (is_half) Explain(option, "f16: keys and values are kept in bf16, which takes the same memory");
  const DType type = CacheType(is_half ? "bf16" : name);
  if (o.engine.cache_type && *o.engine.cache_type != type)
    throw CLI::ValidationError(option, "keys and values have one type, --cache-type");
  o.engine.cache_type = type;
}

// A template's text, or the name of one that is built in.
std::string TemplateOf(const std::string& text) {
  if (std::string built_in = BuiltInTemplate(text); !built_in.empty()) return built_in;
  const bool is_name = text.find_first_of(" {%\n") == text.npos;
  if (!is_name) return text;
  throw CLI::ValidationError("--chat-template",
                             text +
                                 " is neither a Jinja template nor one that is built in: chatml, llama3, "
                                 "command-r, gemma");
}

std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) throw CLI::ValidationError("--chat-template-file", path + ": cannot read");
  return text;
}

void AddNotes(CLI::App& app) {
  app.add_option_function<std::string>(
         "--n-gpu-layers,--gpu-layers",
         [](const std::string& layers) {
           if (layers != "0") Explain("--n-gpu-layers", "has no effect: every layer runs on the CPU");
         },
         "no effect (-ngl)")
      ->group(kGroup);
  app.add_option_function<int64_t>(
         "--batch-size", [](int64_t) { Explain("--batch-size", "has no effect: see --ubatch-size"); },
         "no effect (-b): --ubatch-size sets the tile")
      ->group(kGroup);
  app.add_option_function<std::string>(
         "--flash-attn",
         [](const std::string& state) {
           if (state == "off" || state == "0")
             Explain("--flash-attn off", "has no effect: attention never stores its scores");
         },
         "always on (-fa)")
      ->group(kGroup);
  app.add_flag_function(
         "--jinja", [](int64_t) {}, "always on")
      ->group(kGroup);
  app.add_flag_function(
         "--no-mmap", [](int64_t) { Explain("--no-mmap", "has no effect: model files are always mapped"); },
         "no effect")
      ->group(kGroup);
  app.add_flag_function(
         "--mlock",
         [](int64_t) { Explain("--mlock", "has no effect: the system may move weights out of memory"); },
         "no effect")
      ->group(kGroup);
  app.add_option_function<std::string>(
         "--hf-repo",
         [](const std::string&) {
           throw CLI::ValidationError(
               "--hf-repo", "coppice downloads nothing: fetch the model's files, and name them with --model");
         },
         "refused (-hf): coppice downloads nothing")
      ->group(kGroup);
}

}  // namespace

DType CacheType(const std::string& name) {
  return name == "q8_0" ? DType::kQ8_0 : name == "f32" ? DType::kF32 : DType::kBF16;
}

void AddLlamaOptions(CLI::App& app, ModelOptions& o) {
  for (const std::string option : {"--cache-type-k", "--cache-type-v"}) {
    app.add_option_function<std::string>(
           option, [&o, option](const std::string& name) { SetCacheType(option, name, o); },
           "as --cache-type (-ctk, -ctv)")
        ->group(kGroup);
  }
  CLI::Option* text = app.add_option_function<std::string>(
      "--chat-template", [&o](const std::string& t) { o.engine.chat_template = TemplateOf(t); },
      "Jinja, or chatml, llama3, command-r, gemma: instead of the model's chat template");
  app.add_option_function<std::string>(
         "--chat-template-file", [&o](const std::string& path) { o.engine.chat_template = FileText(path); },
         "the same from a file")
      ->excludes(text);
  AddNotes(app);
}

std::vector<std::string> RewriteAliases(int argc, const char* const* argv) {
  static const std::map<std::string, std::string> aliases = {
      {"-ub", "--ubatch-size"},      {"-np", "--parallel"},      {"-cram", "--cache-ram"},
      {"-jf", "--json-schema-file"}, {"-ngl", "--n-gpu-layers"}, {"-b", "--batch-size"},
      {"-ctk", "--cache-type-k"},    {"-ctv", "--cache-type-v"}, {"-hf", "--hf-repo"}};
  static const std::set<std::string> states = {"on", "off", "auto"};
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "-fa" || word == "--flash-attn") {  // its value may be absent
      const bool has_state = i + 1 < argc && states.contains(argv[i + 1]);
      words.push_back(std::string("--flash-attn=") + (has_state ? argv[++i] : "on"));
      continue;
    }
    const auto alias = aliases.find(word);
    const auto letter = [&](size_t at) { return std::isalpha(static_cast<unsigned char>(word[at])) != 0; };
    // The parser would read "-xyz 0" as "-x yz 0".
    if (alias == aliases.end() && word.size() > 2 && word[0] == '-' && letter(1) && letter(2) &&
        word.find(' ') == std::string::npos) {
      throw CLI::ExtrasError({word});
    }
    words.push_back(alias == aliases.end() ? word : alias->second);
  }
  return words;
}

}  // namespace coppice::cli
