#include "apps/cli/serve_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "apps/cli/api_keys.h"
#include "apps/cli/build_facts.h"
#include "base/available_memory.h"
#include "base/error.h"
#include "server/prune_parameter.h"

namespace coppice::cli {

namespace {

void AddHttpOptions(CLI::App& app, ServeOptions& o) {
  HttpOptions& http = o.server.http;
  app.add_option("--host", http.host,
                 "address to listen on, or unix:PATH; an address that others can reach needs a key")
      ->capture_default_str();
  app.add_option("--port", http.port, "0: any free port")->check(CLI::Range(0, 65535))->capture_default_str();
  app.add_option("--api-key", o.keys, "requests need this key (or one of several, separated by commas)");
  app.add_option("--api-key-file", o.key_file,
                 "a file of such keys, one per line, each with limits behind it: concurrent=N per_minute=N "
                 "tokens_per_day=N; all_metrics: may see the metrics of all keys");
  app.add_option(
         "--allowed-hosts", o.server.allowed_hosts,
         "further names, separated by commas, that requests without a key may use for this machine; *: any")
      ->delimiter(',');
  app.add_option("--cors-origins", o.server.cors_origins,
                 "sites, separated by commas, whose pages may send requests and read answers "
                 "(https://app.example); localhost: of this machine; *: any")
      ->delimiter(',');
  app.add_option("--timeout", o.timeout,
                 "seconds to receive a request's body, and for a client to read anything")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  app.add_option("--threads-http", http.threads, "threads that read and write")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--max-connections", http.max_connections, "further connections are refused")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-connections-per-address", http.max_connections_per_address,
                 "of one client; addresses of this machine have no limit")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-body", o.max_body_mib, "the most MiB of a request's body")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--max-queue", o.server.scheduler.max_waiting,
                 "the most answers that wait; further requests get 503")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--parallel", o.server.scheduler.slots,
                 "answers in progress at once, which take turns; each holds its keys and values (-np)")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

void AddCacheOptions(CLI::App& app, ServeOptions& o) {
  app.add_option("--cache-ram", o.cache_mib,
                 "MiB for the computed beginnings of prompts, reused by later prompts; 0: none (-cram)")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--packed-ram", o.packed_mib,
                 "MiB for packed weights, which later prompts reuse; 0: every prompt packs them anew; "
                 "default: a quarter of the available memory that --cache-ram leaves")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--doc-cache", o.doc_cache,
                 "a folder for what does not fit in memory; the next server reuses it");
  app.add_option("--doc-cache-size", o.disk_mib, "the most MiB of files in that folder")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--doc-cache-exit", o.write_seconds,
                 "seconds that a server which ends may write to that folder; the rest is lost")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_flag("--verbatim-prompts", o.server.defaults.verbatim_prompts,
               "read lines that change with each request, such as a billing header, as they are");
  app.add_flag("--cache-prompt,!--no-cache-prompt", o.server.defaults.cache_prompt,
               "use the cache (default), for requests that do not set cache_prompt");
  app.add_flag(
      "--complete,!--no-complete", o.server.defaults.complete,
      "while idle, compute what pruned answers left out of their prompts; later questions about them "
      "are then answered densely");
  app.add_flag("--next-turn,!--no-next-turn", o.server.next_turn,
               "while idle, read what the next turns of chats begin with (default): the answers, as the "
               "template writes them back");
  app.add_option("--slot-save-path", o.server.slot_save_path,
                 "the folder for POST /slots/ID?action=save and restore");
  app.add_option("--slot-save-size", o.saved_mib, "the most MiB of files in that folder")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
}

void AddReasoningOptions(CLI::App& app, Parameters& defaults) {
  AddThinkingOptions(app, defaults.thinking);
  app.add_option_function<std::string>(
         "--reasoning-format",
         [&defaults](const std::string& form) { defaults.splits_thinking = form != "none"; },
         "what replies do with thinking: auto (default), deepseek: tell it from the answer; none: leave it "
         "in the text")
      ->check(CLI::IsMember({"auto", "deepseek", "deepseek-legacy", "none"}));
}

void AddRouterOptions(CLI::App& app, ServeOptions& o) {
  app.add_option(
      "--kv-events", o.events.endpoint,
      "tell routers which prompts the cache holds: tcp://HOST:PORT or ipc://PATH to publish on (ZeroMQ, "
      "vLLM's KV events); an address of this machine");
  app.add_option("--kv-events-topic", o.events.topic, "the topic of these messages; default: empty");
  app.add_option("--kv-events-replay", o.events.replay,
                 "an address where routers ask for messages that they missed");
  app.add_flag("--kv-events-open", o.events.open,
               "let other machines connect to these addresses; they can then read the tokens of all prompts");
}

void AddReportOptions(CLI::App& app, ServeOptions& o) {
  app.add_option("--sse-ping-interval", o.ping, "seconds between comments in an idle stream; 0: none")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--access-log", o.server.access_log,
                 "a file that gets a line for each request, without its content; -: stderr");
  app.add_option_function<std::string>(
         "--access-log-format",
         [&o](const std::string& name) {
           o.server.log_format = name == "json" ? LogFormat::kJson : LogFormat::kText;
         },
         "of these lines: text (default), or json: an object each, with more of each answer")
      ->check(CLI::IsMember({"text", "json"}));
  app.add_option("--drain", o.drain_seconds,
                 "seconds that a server which ends lets requests go on that have begun; new ones get 503")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--pooling",
         [&o](const std::string& name) {
           o.server.defaults.pooling = name == "last"   ? Pooling::kLast
                                       : name == "none" ? Pooling::kNone
                                                        : Pooling::kMean;
         },
         "of embeddings, for requests that do not choose: mean (default), last, or none (/embeddings only)")
      ->check(CLI::IsMember({"mean", "last", "none"}));
  app.add_flag("-v,--verbose", o.server.defaults.verbose,
               "replies to chats show the prompt as the model read it, under __verbose");
  app.add_flag(
      "--documents,!--no-documents", o.server.documents,
      "read PDF and DOCX files for clients (default), by pdftotext and unzip where they are installed");
  app.add_flag("--slots,!--no-slots", o.server.slots, "serve GET /slots (default)");
  app.add_flag("--metrics,!--no-metrics", o.server.metrics, "serve GET /metrics (default)");
}

}  // namespace

// By default a quarter of the available memory that documents leave: the model's file, sequences and other
// programs need memory, too. If all packed weights need less, the engine takes only that; if they need more,
// it keeps what fits, because each weight that is kept saves its share of the time. Engines on a device keep
// none.
int64_t PackedBytes(const ServeOptions& o) {
  if (o.packed_mib) return *o.packed_mib << 20;
  if (o.model.engine.backend == "gpu") return 0;
  return std::max<int64_t>(0, AvailableMemoryBytes() - (o.cache_mib << 20)) / 4;
}

std::string AliasOf(const ServeOptions& o) {
  return !o.alias.empty() ? o.alias : std::filesystem::path(o.model.model).stem().string();
}

ServerOptions MakeServerOptions(const ServeOptions& o, std::shared_ptr<KvEvents> events) {
  if (o.generate.predict < -1) throw Error("--predict {}: not a whole number from -1", o.generate.predict);
  ServerOptions server = o.server;
  server.kv_events = std::move(events);
  server.api_keys = ReadKeys(o.keys, o.key_file, server.key_limits);
  server.alias = AliasOf(o);
  server.facts = FactsOfBuild();
  server.build = fmt::format("coppice {}", server.facts.version);
  server.http.timeout = std::chrono::milliseconds(static_cast<int64_t>(o.timeout * 1000));
  server.http.idle = std::min(server.http.idle, server.http.timeout);
  server.http.max_body_bytes = o.max_body_mib << 20;
  server.http.max_bodies_bytes = std::max(server.http.max_bodies_bytes, 2 * server.http.max_body_bytes);
  server.slot_save_bytes = o.saved_mib << 20;
  server.ping = std::chrono::milliseconds(static_cast<int64_t>(o.ping * 1000));
  Validate(o.generate.sampling);
  Parameters& defaults = server.defaults;
  defaults.sampling = o.generate.sampling;
  defaults.ignore_eos = o.generate.ignore_eos;
  defaults.protection = o.generate.protection;
  if (o.generate.predict != -1) defaults.max_tokens = o.generate.predict;
  if (o.generate.seed >= 0) defaults.seed = static_cast<uint64_t>(o.generate.seed);
  defaults.prompt_lookup = o.generate.prompt_lookup;
  defaults.least_confidence = o.generate.least_confidence;
  defaults.prune = o.prune;
  return server;
}

std::shared_ptr<KvEvents> MakeKvEvents(const ServeOptions& o) {
  const KvEventsOptions& events = o.events;
  if (events.endpoint.empty()) {
    if (!events.replay.empty() || !events.topic.empty() || events.open)
      throw Error("--kv-events-replay, --kv-events-topic, --kv-events-open: go with --kv-events");
    return nullptr;
  }
  if (o.cache_mib == 0) throw Error("--kv-events {}: goes with a --cache-ram above 0", events.endpoint);
  KvEventsOptions options = events;
  options.on_error = [](const std::string& error) { fmt::print(stderr, "{}\n", error); };
  return std::make_shared<KvEvents>(std::move(options));
}

EngineOptions MakeEngineOptions(const ServeOptions& o, std::shared_ptr<DocumentListener> listener) {
  EngineOptions engine = o.model.engine;
  engine.packed_bytes = PackedBytes(o);
  if (o.cache_mib > 0) {
    engine.documents =
        DocumentCacheOptions{.memory_bytes = o.cache_mib << 20,
                             .folder = o.doc_cache,
                             .disk_bytes = o.disk_mib << 20,
                             .write_when_idle = std::chrono::seconds(2),
                             .on_error = [](const std::string& error) { fmt::print(stderr, "{}\n", error); },
                             .listener = std::move(listener)};
  } else if (!o.doc_cache.empty()) {
    throw Error("--doc-cache {}: goes with a --cache-ram above 0", o.doc_cache);
  }
  const std::string& saved = o.server.slot_save_path;
  if (!saved.empty() && !std::filesystem::is_directory(saved))
    throw Error("--slot-save-path {}: is no folder", saved);
  return engine;
}

void AddServeOptions(CLI::App& app, ServeOptions& o) {
  AddEngineOptions(app, o.model);
  AddHttpOptions(app, o);
  AddCacheOptions(app, o);
  AddRouterOptions(app, o);
  AddReportOptions(app, o);
  AddGenerateOptions(app, o.generate);
  AddReasoningOptions(app, o.server.defaults);
  app.add_option("--prune", o.prune, "for requests that do not choose: none, auto, or methods joined by +")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--prune-scope",
         [&o](const std::string& scope) {
           o.server.defaults.prune_scope = PruneScopeOf(scope).value_or(PruneScope::kAuto);
         },
         "what of a chat may be pruned, for requests that do not choose: all; new: results of tools and "
         "long "
         "user messages behind the last answer; auto (default): new in chats with tools")
      ->check(CLI::IsMember({"auto", "all", "new"}));
  AddPruneWhen(app, o.server.defaults.only_if_it_pays);
}

void AddOneModel(CLI::App& app, ServeOptions& o) {
  app.add_option("-m,--model,model", o.model.model, "GGUF file, or Hugging Face folder")->required();
  app.add_option("-a,--alias", o.alias, "the model's name in answers; default: its file's name");
}

void AddSeveralModels(CLI::App& app, SeveralModels& several) {
  app.add_option("-m,--model,model", several.paths,
                 "GGUF file, or Hugging Face folder; several are loaded when requests name them")
      ->take_all();
  app.add_option("-a,--alias", several.aliases,
                 "the model's name in answers; default: its file's name; of several, in the order of --model")
      ->take_all();
  app.add_option("--models-dir", several.folder,
                 "a folder of GGUF files and Hugging Face folders, loaded when requests name them");
  app.add_option(
         "--models-max", several.most,
         "of several models: the most that are loaded at once; they share --cache-ram and --packed-ram")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--models-memory", several.memory_mib,
                 "of several models: the most MiB for all that are loaded; 0: no limit; default: three "
                 "quarters of the available memory")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--models-idle", several.idle_seconds,
                 "of several models: seconds without a request after which one is put away; 0: none is")
      ->check(CLI::Range(0.0, 1e7))
      ->capture_default_str();
}

}  // namespace coppice::cli
