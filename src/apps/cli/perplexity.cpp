// coppice perplexity: a model's perplexity on a text, and the divergence of its distributions from another
// model's.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/checks.h"
#include "apps/cli/commands.h"
#include "apps/cli/options.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "base/mmap.h"
#include "eval/arm.h"
#include "eval/divergence.h"

namespace coppice::cli {

namespace {

constexpr int64_t kDefaultChunk = 512;  // llama.cpp's, so that figures compare

struct PerplexityCommand {
  ModelOptions model;
  std::string file;
  std::string prune = "none";
  std::string base;
  bool divergence = false;
  bool decode = false;
  int64_t chunks = 0;
  bool json = false;
};

// Logits [vocab] of one position, and the token that the text has there.
using PositionVisitor = std::function<void(std::span<const float> logits, int32_t token)>;

// Scores the second half of a chunk after a prefill of the first. The second half is prefilled too, or
// decoded token by token, which measures what a method does in decode and how the decode products round.
class Scorer {
 public:
  Scorer(Engine& engine, bool decodes, std::string prune)
      : engine_(engine), decodes_(decodes), prune_(std::move(prune)) {}

  void operator()(std::span<const int32_t> chunk, const PositionVisitor& visit) const {
    decodes_ ? Decode(chunk, visit) : Prefill(chunk, visit);
  }

 private:
  void Prefill(std::span<const int32_t> chunk, const PositionVisitor& visit) const {
    const auto from = static_cast<int64_t>(chunk.size() / 2);
    engine_.Score(
        chunk,
        [&](int64_t first, const TensorView& logits) {
          for (int64_t row = std::max<int64_t>(from - first, 0); row < logits.rows; ++row) {
            visit(logits.Row<float>(row), chunk[static_cast<size_t>(first + row + 1)]);
          }
        },
        &Interrupted());
  }

  void Decode(std::span<const int32_t> chunk, const PositionVisitor& visit) const {
    const size_t half = chunk.size() / 2;
    Request request;
    request.tokens.assign(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(half));
    request.forced.assign(chunk.begin() + static_cast<std::ptrdiff_t>(half), chunk.end());
    request.max_tokens = static_cast<int64_t>(request.forced.size());
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    request.prune = prune_;
    request.cancelled = &Interrupted();
    size_t next = 0;
    request.on_token = [](int32_t) { return !Interrupted(); };
    request.on_logits = [&](std::span<const float> logits) { visit(logits, request.forced[next++]); };
    engine_.Generate(request);
    if (Interrupted()) throw Cancelled();
  }

  Engine& engine_;
  bool decodes_;
  std::string prune_;
};

std::vector<int32_t> ReadTokens(const PerplexityCommand& o, const Engine& engine) {
  if (engine.tokenizer() == nullptr) throw Error("{}: has no tokenizer", o.model.model);
  const MappedFile file(o.file);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.size());
  return engine.tokenizer()->Encode(text, {.add_special = true, .parse_special = false});
}

// Chunks of the text; each begins with BOS if the model has one.
std::vector<std::vector<int32_t>> ChunksOf(const std::vector<int32_t>& tokens, int64_t size, int64_t limit,
                                           const Tokenizer& tokenizer) {
  const std::vector<int32_t> special = tokenizer.Encode("", {.add_special = true, .parse_special = false});
  const bool begins = !special.empty() && special.front() == tokenizer.bos();
  std::vector<std::vector<int32_t>> chunks;
  for (size_t at = 0; at + static_cast<size_t>(size) <= tokens.size(); at += static_cast<size_t>(size)) {
    if (limit > 0 && static_cast<int64_t>(chunks.size()) == limit) break;
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    chunks.emplace_back(begin, begin + size);
    if (begins) chunks.back().front() = special.front();
  }
  return chunks;
}

void PrintResult(const PerplexityCommand& o, const PerplexitySum& ppl, const DivergenceSum& divergence) {
  const Estimate p = ppl.Perplexity();
  const bool compares = divergence.positions() > 0;
  if (o.json) {
    nlohmann::ordered_json json = {
        {"ppl", p.value}, {"ppl_error", p.error}, {"tokens", ppl.tokens()}, {"prune", o.prune}};
    if (compares) {
      json["kl"] = divergence.Mean().value;
      json["kl_error"] = divergence.Mean().error;
      json["kl_median"] = divergence.Quantile(0.5);
      json["kl_99"] = divergence.Quantile(0.99);
      json["kl_max"] = divergence.Quantile(1);
      json["same_top"] = divergence.same_top();
      json["rms_delta_p"] = divergence.DeltaP();
      json["ppl_ratio"] = divergence.Ratio().value;
    }
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("Final estimate: PPL = {:.4f} +/- {:.5f}\n", p.value, p.error);
  if (!compares) return;
  Table table({"against the base", ""}, {false, true});
  table.Add({"mean KL divergence",
             fmt::format("{:.6f} +/- {:.6f}", divergence.Mean().value, divergence.Mean().error)});
  table.Add({"median", fmt::format("{:.6f}", divergence.Quantile(0.5))});
  table.Add({"99 %", fmt::format("{:.6f}", divergence.Quantile(0.99))});
  table.Add({"maximum", fmt::format("{:.6f}", divergence.Quantile(1))});
  table.Add({"same likeliest token", fmt::format("{:.2f} %", 100 * divergence.same_top())});
  table.Add({"RMS difference of p", fmt::format("{:.3f} %", 100 * divergence.DeltaP())});
  table.Add({"PPL / PPL of the base",
             fmt::format("{:.5f} +/- {:.5f}", divergence.Ratio().value, divergence.Ratio().error)});
  fmt::print("\n{}", table.Text());
}

std::unique_ptr<Engine> OpenBase(const PerplexityCommand& o, const Engine& engine) {
  EngineOptions exact = o.model.engine;
  exact.exact = true;
  exact.fast = false;
  exact.cache_type.reset();
  std::unique_ptr<Engine> base = LoadEngine(o.base.empty() ? o.model.model : o.base, exact);
  if (base->model().config().shape.vocab != engine.model().config().shape.vocab) {
    throw Error("--base {}: has {} tokens in its vocabulary, {} has {}", o.base,
                base->model().config().shape.vocab, o.model.model, engine.model().config().shape.vocab);
  }
  return base;
}

void Perplexity(PerplexityCommand& o) {
  const int64_t size = o.model.engine.context > 0 ? o.model.engine.context : kDefaultChunk;
  if (size < 4) throw Error("--ctx-size {}: a chunk has at least 4 tokens", size);
  const std::unique_ptr<Engine> engine = LoadEngine(o.model.model, o.model.engine);
  const std::vector<std::vector<int32_t>> chunks =
      ChunksOf(ReadTokens(o, *engine), size, o.chunks, *engine->tokenizer());
  if (chunks.empty()) throw Error("{}: shorter than one chunk of {} tokens (--ctx-size)", o.file, size);

  const bool prunes = o.prune != "none";
  const bool has_base = !o.base.empty() || o.divergence;
  const std::unique_ptr<Engine> other = has_base ? OpenBase(o, *engine) : nullptr;
  const bool decodes = prunes || o.decode;
  const Scorer score(*engine, decodes, o.prune);
  const Scorer score_base(other ? *other : *engine, decodes, "none");

  PerplexitySum ppl;
  DivergenceSum divergence;
  ProgressLine line("perplexity", static_cast<double>(chunks.size()), "chunk");
  for (size_t c = 0; c < chunks.size(); ++c) {
    line.Update(static_cast<double>(c));
    std::vector<std::vector<float>> base;
    if (has_base || prunes) {
      score_base(chunks[c], [&](std::span<const float> logits, int32_t) {
        base.emplace_back(logits.begin(), logits.end());
      });
    }
    size_t position = 0;
    score(chunks[c], [&](std::span<const float> logits, int32_t token) {
      ppl.Add(-LogProbability(logits, token));
      if (!base.empty()) divergence.Add(base[position++], logits, token);
    });
    line.Clear();
    if (!o.json) {
      fmt::print("[{}]{:.4f},{}", c + 1, ppl.Perplexity().value, c + 1 == chunks.size() ? "\n" : "");
      std::fflush(stdout);
    }
  }
  PrintResult(o, ppl, divergence);
}

}  // namespace

void AddPerplexity(CLI::App& app) {
  auto o = std::make_shared<PerplexityCommand>();
  CLI::App* perplexity =
      app.add_subcommand("perplexity", "of a text, and the KL divergence from fp32, another model, or dense");
  AddModelOptions(*perplexity, o->model);
  perplexity->get_option("--ctx-size")
      ->description("tokens of a chunk, of which the second half is scored; 0: 512");
  perplexity->add_option("-f,--file", o->file, "the text")->required();
  perplexity->add_option("--chunks", o->chunks, "the number of chunks; 0: all")->check(ZeroOrMore());
  perplexity->add_option(
      "--prune", o->prune,
      "a method: it prunes the first half; the second half is then decoded, and compared with dense");
  perplexity->add_flag("--decode", o->decode,
                       "decode the second half token by token, as with --prune: the loss during generation");
  perplexity->add_flag("--kl-divergence", o->divergence, "compare with the same model in fp32 (--exact)");
  perplexity->add_option("--base", o->base,
                         "compare with this model in fp32 instead, such as the file before quantisation");
  perplexity->add_flag("--json", o->json, "one JSON object instead of text");
  perplexity->footer(
      "Examples:\n  coppice perplexity -m model.gguf -f wiki.test.raw\n"
      "  coppice perplexity -m model-q4_0.gguf --base model-f16.gguf -f wiki.test.raw --chunks 20\n"
      "  coppice perplexity -m model.gguf -f book.txt -c 8192 --chunks 4 --prune sliminfer:min=0");
  perplexity->callback([o] {
    InstallInterruptHandler();
    Perplexity(*o);
  });
}

}  // namespace coppice::cli
