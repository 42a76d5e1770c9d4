// coppice inspect, tokenize, methods and synth: a model's facts, a text's tokens, the list of methods, and
// random models.
#include <fmt/core.h>
#include <algorithm>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/report.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "engine/open_model.h"
#include "formats/gguf.h"
#include "formats/printable.h"
#include "model/sequence.h"
#include "model/synthetic.h"
#include "policies/registry.h"

namespace coppice::cli {

namespace {

std::string RopeText(const ModelConfig& c) {
  if (c.shape.alibi) return "ALiBi";
  if (c.ropes.empty()) return "none";
  const char* const scaling[] = {"none", "linear", "yarn", "llama3", "longrope"};
  const RopeConfig& first = c.ropes.front();
  std::string text = fmt::format("RoPE, base {:g}, {} dimensions", first.base, first.dims);
  if (first.scaling != RopeConfig::Scaling::kNone) {
    text += fmt::format(", {} scaling by {:g}", scaling[static_cast<int>(first.scaling)], first.factor);
  }
  for (size_t r = 1; r < c.ropes.size(); ++r) {
    const RopeConfig& rope = c.ropes[r];
    const bool of_window = std::ranges::all_of(c.shape.layers, [&](const LayerShape& l) {
      return !l.attends() || (l.window > 0) == (l.rope == static_cast<int>(r));
    });
    text += fmt::format("; base {:g}{} in {}", rope.base,
                        rope.dims == first.dims ? "" : fmt::format(", {} dimensions", rope.dims),
                        of_window ? "layers with a window" : "some layers");
  }
  const auto without = std::ranges::count_if(
      c.shape.layers, [](const LayerShape& l) { return l.attends() && l.rope == kNoRope; });
  if (without > 0) text += fmt::format("; none in {} layer{}", without, without == 1 ? "" : "s");
  return text;
}

// A size of all layers, "8", or "2 to 8" if they differ.
template <typename Size>
std::string SizeText(const ModelShape& s, Size&& size) {
  const auto [least, most] = std::ranges::minmax(s.layers, {}, size);
  const auto from = std::invoke(size, least);
  const auto to = std::invoke(size, most);
  return from == to ? fmt::format("{}", from) : fmt::format("{} to {}", from, to);
}

std::string WindowText(const ModelShape& s) {
  ModelShape windowed = s;
  std::erase_if(windowed.layers, [](const LayerShape& layer) { return layer.window == 0; });
  if (windowed.layers.empty()) return "";
  const std::string window = SizeText(windowed, &LayerShape::window);
  if (windowed.layers.size() == s.layers.size()) return fmt::format(", sliding window {}", window);
  return fmt::format(", sliding window {} in {} layers", window, windowed.layers.size());
}

const char* FfnText(FfnKind kind) {
  switch (kind) {
    case FfnKind::kSwiGlu:
      return "SwiGLU";
    case FfnKind::kGeGlu:
      return "GeGLU";
    case FfnKind::kSwiGluOai:
      return "clamped SwiGLU";
    case FfnKind::kReluSquared:
      return "squared ReLU";
    case FfnKind::kGelu:
      break;
  }
  return "GELU";
}

// The FFNs of the layers without a mixture, and the mixtures.
std::string FfnsText(const ModelConfig& c) {
  ModelShape dense = c.shape;
  std::erase_if(dense.layers, [](const LayerShape& l) { return l.ffn == 0; });
  ModelShape sparse = c.shape;
  std::erase_if(sparse.layers, [](const LayerShape& l) { return l.mixture.experts == 0; });
  const std::string kind = FfnText(c.ffn);
  const std::string of_dense = dense.layers.empty() ? "" : SizeText(dense, &LayerShape::ffn);
  const auto lacking =
      std::ranges::count_if(c.shape.layers, [](const LayerShape& l) { return !l.has_ffn(); });
  const std::string none = lacking == 0 ? "" : fmt::format("; none in {} layers", lacking);
  if (sparse.layers.empty()) return fmt::format("{} ({}){}", of_dense, kind, none);
  const auto size = [&](auto member) {
    return SizeText(sparse, [member](const LayerShape& l) { return l.mixture.*member; });
  };
  std::string text = fmt::format("{} experts of {}, {} of them for a token", size(&MixtureShape::experts),
                                 size(&MixtureShape::width), size(&MixtureShape::used));
  if (std::ranges::any_of(sparse.layers, [](const LayerShape& l) { return l.mixture.shared_width > 0; }))
    text += fmt::format(", and one of {} for all", size(&MixtureShape::shared_width));
  if (!dense.layers.empty())
    text += fmt::format("; in {} layers one FFN of {}", dense.layers.size(), of_dense);
  return fmt::format("{} ({}){}", text, kind, none);
}

std::string LayersText(const ModelShape& s) {
  std::string text = fmt::format("{} of hidden size {}", s.AllLayers().size(), s.hidden);
  if (!s.tail.empty()) text += fmt::format("; the last {} attend the keys of earlier ones", s.tail.size());
  if (s.layer_embedding > 0) text += fmt::format("; each with embeddings of {}", s.layer_embedding);
  return text;
}

std::string OutputText(const ModelConfig& c) {
  const std::string matrix = c.tied_head ? "tied to the embedding" : "a matrix of its own";
  return c.logit_cap == 0 ? matrix : fmt::format("{}, logits capped at {:g}", matrix, c.logit_cap);
}

std::string ParametersText(const Weights& weights, size_t tensors) {
  const auto millions = [](int64_t count) { return static_cast<double>(count) / 1e6; };
  std::string text = fmt::format("{:.2f} M in {} tensors", millions(weights.parameters), tensors);
  if (weights.active_parameters < weights.parameters)
    text += fmt::format(", {:.2f} M for a token", millions(weights.active_parameters));
  return text;
}

const char* TemplatesText(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr || tokenizer->chat_template().empty()) return "no";
  return tokenizer->tool_template().empty() ? "yes" : "yes, and one for tools";
}

std::string AttentionText(const ModelShape& shape) {
  ModelShape s = shape;  // the layers that attend
  std::erase_if(s.layers, [](const LayerShape& layer) { return !layer.attends(); });
  if (s.layers.empty()) return "none";
  return fmt::format("{} heads, {} key/value heads of {}{}{}", SizeText(s, &LayerShape::heads),
                     SizeText(s, &LayerShape::kv_heads), SizeText(s, &LayerShape::head_dim), WindowText(s),
                     s.layer(0).output_gate ? ", output gate" : "");
}

// What the layers with a state do.
std::string StatesText(const ModelShape& s) {
  const auto count = std::ranges::count_if(s.layers, &LayerShape::has_state);
  const LayerShape& layer = *std::ranges::find_if(s.layers, &LayerShape::has_state);
  const RecurrentShape& r = layer.recurrent;
  std::string text = fmt::format("in {} of {} layers a ", count, s.layer_count());
  if (layer.mixer == MixerKind::kShortConv) {
    text += fmt::format("convolution of {} rows", r.taps);
  } else {
    text += fmt::format("{} of {} heads of {}, {} of {}, and a convolution of {} rows",
                        layer.mixer == MixerKind::kMamba2 ? "Mamba-2 scan" : "gated delta rule", r.key_heads,
                        r.key_dim, r.value_heads, r.value_dim, r.taps);
  }
  return text + fmt::format("; {} per sequence", BytesText(s.StateBytes()));
}

struct InspectOptions {
  std::string model;
  bool tensors = false;
  bool check = false;
  bool json = false;
};

void Inspect(const InspectOptions& o) {
  OpenedModel m = OpenModel(o.model);
  const std::shared_ptr<const Weights> weights = Weights::Load(m.store, m.config);
  ModelConfig shown = m.config;  // with the tail among the layers
  shown.shape.layers = m.config.shape.AllLayers();
  const ModelShape& s = shown.shape;
  std::map<std::string, int64_t> bytes_by_type;
  for (const StoredTensor& t : m.store->tensors()) {
    bytes_by_type[std::string(Info(t.view.dtype).name)] += t.view.rows * BytesOf(t.view.dtype, t.view.cols);
  }
  std::string types;
  for (const auto& [type, bytes] : bytes_by_type) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", type, BytesText(bytes));
  }
  std::vector<std::pair<std::string, std::string>> lines = {
      {"file", fmt::format("{} ({})", o.model, m.format)},
      {"architecture", s.architecture + (s.name.empty() ? "" : " (" + Printable(s.name) + ")")},
      {"parameters", ParametersText(*weights, m.store->tensors().size())},
      {"types", types},
      {"layers", LayersText(m.config.shape)},
      {"attention", AttentionText(s)},
      {"FFN", FfnsText(shown)},
      {"output", OutputText(shown)},
      {"positions", RopeText(shown)},
      {"context", fmt::format("{}", m.config.context)},
      {"vocabulary", fmt::format("{}, {}", s.vocab, m.tokenizer ? m.tokenizer->kind() : "no tokenizer")},
      {"chat template", TemplatesText(m.tokenizer.get())},
      {"KV cache",
       fmt::format("{} per token at 2 bytes a value", BytesText(TokenBytes(m.config.shape, DType::kBF16)))}};
  if (s.HasStates()) lines.insert(lines.begin() + 6, {"state", StatesText(s)});
  if (m.tokenizer && !m.tokenizer->note().empty()) lines.emplace_back("note", m.tokenizer->note());
  TellNote(m.tokenizer.get());
  if (o.json) {
    nlohmann::ordered_json json;
    for (const auto& [key, value] : lines) json[key] = value;
    fmt::print("{}\n", Dump(json, 1));
  } else {
    for (const auto& [key, value] : lines) fmt::print("{:<14} {}\n", key, value);
  }
  if (o.tensors) {
    Table table({"tensor", "shape", "type", "bytes"}, {false, true, false, true});
    for (const StoredTensor& t : m.store->tensors()) {
      std::string shape;
      for (const int64_t d : t.shape) shape += fmt::format("{}{}", shape.empty() ? "" : " x ", d);
      table.Add({Printable(t.name), shape, std::string(Info(t.view.dtype).name),
                 fmt::format("{}", t.view.rows * BytesOf(t.view.dtype, t.view.cols))});
    }
    fmt::print("\n{}", table.Text());
  }
  if (o.check) {
    bool finite = true;
    for (const TensorFinding& finding : CheckTensors(*m.store)) {
      fmt::print("{}\n", finding.text);
      finite = finite && finding.finite;
    }
    if (!finite) throw Error("{}: not all weights are finite", o.model);
    fmt::print("all tensors are finite\n");
  }
}

struct TokenizeOptions {
  std::string model;
  PromptOptions prompt;
  bool ids = false;
  bool no_special = false;
};

void TokenizeText(const TokenizeOptions& o) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (LooksLikeGguf(o.model)) {
    tokenizer =
        Tokenizer::FromGguf(GgufFile::Open(o.model)->metadata());  // vocabulary-only files have no tensors
  } else {
    tokenizer = Tokenizer::FromHfFolder(o.model);
  }
  TellNote(tokenizer.get());
  TellChat(o.prompt, tokenizer.get(), o.model);
  const std::vector<int32_t> tokens =
      TokenizePrompt(o.prompt, tokenizer.get(), o.model, !o.no_special).tokens;
  if (o.ids) {
    fmt::print("{}\n", Dump(nlohmann::ordered_json(tokens)));
    return;
  }
  for (const int32_t id : tokens) {
    fmt::print("{:>7}  {}\n", id, Dump(nlohmann::ordered_json(tokenizer->Piece(id, true))));
  }
  fmt::print("{} tokens\n", tokens.size());
}

void PrintMethod(const MethodInfo& method) {
  fmt::print("{}: {}\n  {}\n", method.name, method.summary, method.paper);
  Table table({"  key", "default", "range", "meaning"}, {false, false, false, false});
  for (const MethodKey& key : method.keys) {
    table.Add({fmt::format("  {}", key.name), std::string(key.fallback), std::string(key.range),
               std::string(key.meaning)});
  }
  fmt::print("{}", table.Text());
}

constexpr const char* kAboutAuto =
    "auto is the setting that coppice tune found for the model, with at most the allowed loss:\n"
    "  --prune auto:loss=5%\n";

void ListMethods() {
  for (const MethodInfo& method : Methods()) {
    PrintMethod(method);
    fmt::print("\n");
  }
  fmt::print(
      "Join methods with +, keys with commas, lists with slashes:\n"
      "  --prune sliminfer:layers=5/10/14,keep=8192/4096/2048+ftp:dense=4,eta=0.9\n"
      "{}",
      kAboutAuto);
}

void TellMethod(const std::string& name) {
  if (name.empty()) return ListMethods();
  if (name == "auto") return fmt::print("{}", kAboutAuto);
  if (name == "none") return fmt::print("none: no pruning, the default\n");
  const MethodInfo* method = nullptr;
  try {
    method = &FindMethod(name);
  } catch (const PruneError& error) {
    throw Error("methods: {}", error.what());  // no option is wrong
  }
  PrintMethod(*method);
}

}  // namespace

void AddInspect(CLI::App& app) {
  auto o = std::make_shared<InspectOptions>();
  CLI::App* inspect = app.add_subcommand("inspect", "what a model file holds");
  inspect->add_option("-m,--model,model", o->model, "GGUF file, or Hugging Face folder")->required();
  CLI::Option* tensors = inspect->add_flag("--tensors", o->tensors, "list every tensor");
  CLI::Option* check = inspect->add_flag("--check-tensors", o->check,
                                         "read every weight, report NaN, Inf and all-zero tensors");
  inspect->add_flag("--json", o->json, "print JSON")->excludes(tensors)->excludes(check);
  inspect->callback([o] { Inspect(*o); });
}

void AddTokenize(CLI::App& app) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* tokenize = app.add_subcommand("tokenize", "what a text becomes");
  tokenize->add_option("-m,--model,model", o->model, "GGUF file, or Hugging Face folder")->required();
  AddPromptOptions(*tokenize, o->prompt);
  tokenize->add_flag("--ids", o->ids, "print only the ids, as a JSON list");
  tokenize->add_flag("--no-special", o->no_special, "leave out BOS and EOS");
  tokenize->callback([o] { TokenizeText(*o); });
}

void AddMethods(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  CLI::App* methods = app.add_subcommand("methods", "the pruning methods, their papers and settings");
  methods->add_option("name", *name, "this one alone");
  methods->callback([name] { TellMethod(*name); });
}

void AddSynth(CLI::App& app) {
  struct SynthOptions {
    std::string shape;
    std::string output;
  };
  auto o = std::make_shared<SynthOptions>();
  CLI::App* synth = app.add_subcommand("synth", "write random weights in a real model's shape, as GGUF");
  synth->add_option("--shape", o->shape, "NAME[/LAYERS][:TYPE], e.g. llama-3.2-1b:q8_0")->required();
  synth->add_option("-o,--output", o->output, "the file to write")->required();
  synth->callback([o] {
    InstallInterruptHandler();
    WriteSyntheticGguf(ParseShape(o->shape), o->output, &Interrupted());
  });
}

}  // namespace coppice::cli
