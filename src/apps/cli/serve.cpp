// coppice serve: the model over HTTP.
#include <fmt/core.h>
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ranges>
#include <string>
#include <thread>
#include <utility>

#include "apps/cli/auto_lines.h"
#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/cli/serve_options.h"
#include "apps/cli/serve_report.h"
#include "apps/cli/several_models.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "comm/comm.h"
#include "engine/open_model.h"
#include "server/model_host.h"

namespace coppice::cli {

namespace {

// Several processes read one prompt at a time, and only process 0 would have the states of earlier prompts.
void FitToProcesses(ServeOptions& o) {
  const int processes = World().size();
  if (processes == 1) return;
  if (!o.doc_cache.empty())
    throw Error("--doc-cache {}: does not go with {} processes", o.doc_cache, processes);
  if (!o.events.endpoint.empty())
    throw Error("--kv-events {}: does not go with {} processes, which have no document cache",
                o.events.endpoint, processes);
  o.server.scheduler.slots = 1;
  o.cache_mib = 0;
  if (!o.packed_mib) o.packed_mib = 0;  // processes may share a machine, and each keeps all weights
  fmt::print(stderr, "note: {} processes read one prompt at a time (--parallel 1), without --cache-ram\n",
             processes);
}

// Blocks of this size get pages of their own, which go back to the system when a request ends. By default
// glibc raises the limit to that of the largest block freed, up to 32 MiB; keys, values and hidden states
// then share pages with what stays. In an hour of load memory grew to 784 MiB; with a fixed limit it stayed
// below 361.
void GiveBackLargeBlocks() {
  constexpr int kOwnPages = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kOwnPages);
}

// A calibration that cannot be used fails requests, not the server, which can answer others.
std::string WhatAutoDoes(Engine& engine, const std::string& prune) {
  try {
    const bool kept = engine.documents() != nullptr;
    return AutoLines(engine, prune, kept ? PromptStates::kKept : PromptStates::kDiscarded);
  } catch (const Error& error) {
    return fmt::format("auto: {}\n", error.what());
  }
}

void SayListening(const std::string& host, int port) {
  if (!UnixSocketPath(host).empty()) {
    fmt::print("listening on {}\n", host);
  } else {
    fmt::print("listening on http://{}:{}\n", host.find(':') == std::string::npos ? host : "[" + host + "]",
               port);
  }
  std::fflush(stdout);
}

// Until Ctrl-C. `server` is a Server or a ModelHost.
template <typename Host>
void ServeUntilInterrupted(Host& server, const ServeOptions& o) {
  while (!Interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.Drain(std::chrono::milliseconds(static_cast<int64_t>(o.drain_seconds * 1000)));
  const bool ended = server.Stop();
  const bool written =
      server.WriteDocuments(std::chrono::milliseconds(static_cast<int64_t>(o.write_seconds * 1000)));
  if (ended && written) return;
  if (!written)
    fmt::print(stderr, "warning: some of the document cache was not written in time and is lost\n");
  // A request goes on although it was cancelled, a model is being loaded, or a file is still being written;
  // these threads use the server, so nothing of it may be freed.
  std::fflush(nullptr);
  std::_Exit(0);
}

void ServeOne(ServeOptions o) {
  FitToProcesses(o);
  const std::shared_ptr<KvEvents> events = MakeKvEvents(o);
  CheckModelFiles(o.model.model);  // before the port is open, and before anybody waits for the model
  Server server(MakeServerOptions(o, events));
  server.Listen(o.server.http.port);
  SayListening(o.server.http.host, server.port());
  const EngineOptions engine_options = MakeEngineOptions(o, events);
  std::unique_ptr<Engine> engine = LoadEngine(o.model.model, engine_options);
  const bool has_template = engine->tokenizer() == nullptr || !engine->tokenizer()->chat_template().empty();
  const bool head_is_absent = HeadIsAbsent(*engine);
  const std::string auto_lines = WhatAutoDoes(*engine, o.prune);
  const std::string ready_text = ReadyText(*engine, o, engine_options.packed_bytes);
  server.Serve(std::move(engine));
  fmt::print("ready: {}\n", o.model.model);
  if (events) fmt::print("KV events on {}\n", events->endpoint());
  fmt::print("{}", ready_text);
  fmt::print("{}", auto_lines);
  std::fflush(stdout);
  if (head_is_absent) fmt::print(stderr, "note: {}\n", kHeadIsAbsent);
  if (!has_template)
    fmt::print(stderr, "note: the model has no chat template, so chats are written in ChatML\n");
  ServeUntilInterrupted(server, o);
}

void ServeSeveral(const ServeOptions& o, const SeveralModels& several) {
  ServerOptions options = MakeServerOptions(o, nullptr);
  options.limits = LimitsOf(options);
  std::vector<ShelvedModel> models = ShelvedModels(several, o, options);
  const bool loads_first = !several.paths.empty();
  const std::string first = loads_first ? models.front().name : several.folder;
  std::string others;
  for (const ShelvedModel& model : models | std::views::drop(loads_first ? 1 : 0))
    others += ", " + model.name;
  const ShelfLimits limits = LimitsOf(several);
  ModelHost host(std::move(options), std::move(models), limits);
  host.Listen(o.server.http.port);
  SayListening(o.server.http.host, host.port());
  if (loads_first) host.Start();
  fmt::print("ready: {}\n", first);
  if (!others.empty()) fmt::print("loaded when a request names them: {}\n", others.substr(2));
  fmt::print("at most {} at once{}\n", limits.models,
             limits.bytes > 0 ? fmt::format(", in {} MiB", limits.bytes >> 20) : "");
  std::fflush(stdout);
  ServeUntilInterrupted(host, o);
}

}  // namespace

void AddServe(CLI::App& app) {
  auto o = std::make_shared<ServeOptions>();
  auto several = std::make_shared<SeveralModels>();
  CLI::App* serve = app.add_subcommand("serve", "answer requests over HTTP, as OpenAI's clients send them");
  AddSeveralModels(*serve, *several);
  AddServeOptions(*serve, *o);
  serve->footer(
      "Sampling options are defaults for requests that do not set them. docs/server.md describes the "
      "routes.\n"
      "Examples:\n  coppice serve -m model.gguf\n"
      "  coppice serve -m large.gguf -m small.gguf --alias large --alias small\n"
      "  coppice serve --models-dir models --models-max 1 --models-idle 600\n"
      "  coppice serve -m model.gguf --port 9000 --prune sliminfer+ftp:dense=4\n"
      "  coppice serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
      "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": "
      "32}'");
  serve->callback([o, several] {
    InstallInterruptHandler();
    GiveBackLargeBlocks();
    if (AreSeveral(*several, *o))
      ServeSeveral(*o, *several);
    else
      ServeOne(*o);
  });
}

}  // namespace coppice::cli
