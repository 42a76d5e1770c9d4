// Prints, for each method, what must not depend on the number of processes: hashes of the logits and of the
// trace, and the ledger. tests/mpi/mpi_test.py compares the lines of 1 to 4 processes.
//
//   split_bits MODEL PROMPT_FILE TOKENS SPEC...
#include <fmt/core.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "base/fnv.h"
#include "comm/comm.h"
#include "engine/engine.h"
#include "engine/follow.h"

namespace coppice {
namespace {

uint64_t HashOf(std::span<const float> values, uint64_t hash) {
  return Fnv1a({reinterpret_cast<const char*>(values.data()), values.size_bytes()}, hash);
}

template <typename T>
uint64_t HashOf(const std::vector<T>& list, uint64_t hash) {
  return Fnv1a({reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T)}, hash);
}

uint64_t HashOf(const Trace& trace) {
  uint64_t hash = kFnvBasis;
  for (const TraceLayer& layer : trace.prefill) hash = HashOf(layer.ffn, HashOf(layer.kept, hash));
  for (const TraceStep& step : trace.steps) {
    hash = HashOf(step.attended, hash);
    for (const TraceEvent& event : step.events) hash = HashOf(event.positions, hash);
  }
  return hash;
}

void Run(Engine& engine, const std::vector<int32_t>& tokens, const std::string& spec) {
  uint64_t logits = kFnvBasis;
  TraceRecorder trace;
  Request request;
  request.tokens = tokens;
  request.max_tokens = 4;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  request.prune = spec;
  request.evidence = {{200, 300}};  // for drop
  request.trace = &trace;
  request.on_logits = [&](std::span<const float> row) { logits = HashOf(row, logits); };
  try {
    const Answer answer = engine.Generate(request);
    const Ledger& ledger = answer.ledger;
    fmt::print(
        "{}: logits {:016x} trace {:016x} token-layers {} flops {:.0f} kv {} aux {} peak {} tokens {}\n",
        spec, logits, HashOf(trace.trace()), ledger.token_layers(), ledger.flops(), ledger.kv_bytes,
        ledger.aux_bytes, ledger.peak_held_bytes, HashOf(answer.tokens, kFnvBasis));
    // Not on stdout, because it depends on the number of processes.
    for (const ProcessWork& work : ledger.processes) {
      fmt::print(stderr, "{}: rows {} {} {} sent {}\n", spec, work.rows.kv, work.rows.query, work.rows.ffn,
                 work.bytes_sent);
    }
  } catch (const std::exception& error) {
    fmt::print("{}: {}\n", spec, error.what());
  }
}

void Lead(int argc, char** argv) {
  std::ifstream file(argv[2]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EngineOptions options;
  options.threads = 1;
  options.tile_rows = 256;
  options.comm = &World();
  const std::unique_ptr<Engine> engine = Engine::Load(argv[1], options);
  std::vector<int32_t> tokens = engine->tokenizer()->Encode(text);
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(std::atoi(argv[3]))));
  for (int i = 4; i < argc; ++i) Run(*engine, tokens, argv[i]);
}

}  // namespace
}  // namespace coppice

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  try {
    coppice::Comm& world = coppice::World();
    if (!world.leads()) {
      coppice::Follow(world);
      return 0;
    }
    coppice::Lead(argc, argv);
    if (world.size() > 1) coppice::SendEnd(world);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "split_bits: {}\n", error.what());
    return 1;
  }
}
