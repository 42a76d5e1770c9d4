// The options of `coppice serve`, and what they describe: for the command, and for the library, which has the
// same server without a socket.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/options.h"
#include "server/kv_events.h"
#include "server/server.h"

namespace coppice::cli {

struct ServeOptions {
  ModelOptions model;
  GenerateOptions generate;
  ServerOptions server;
  std::string prune = "none";
  std::string keys;
  std::string key_file;
  std::string alias;
  double timeout = 600;
  double ping = 30;
  double write_seconds = 1;
  double drain_seconds = 0;
  int64_t max_body_mib = 16;
  int64_t cache_mib = 4096;
  std::optional<int64_t> packed_mib;
  std::string doc_cache;
  int64_t disk_mib = 16384;
  int64_t saved_mib = 16384;
  KvEventsOptions events;
};

// `coppice serve` with several models.
struct SeveralModels {
  std::vector<std::string> paths;
  std::vector<std::string> aliases;  // of `paths`, in their order
  std::string folder;
  int64_t most = 2;  // loaded at once
  std::optional<int64_t> memory_mib;
  double idle_seconds = 0;
};

void AddServeOptions(CLI::App& app, ServeOptions& options);
// What to serve, which AddServeOptions does not say: one model, or several.
void AddOneModel(CLI::App& app, ServeOptions& options);
void AddSeveralModels(CLI::App& app, SeveralModels& models);

// The model's name in answers.
std::string AliasOf(const ServeOptions& options);

// These throw Error, naming the option. Null if no router is told.
std::shared_ptr<KvEvents> MakeKvEvents(const ServeOptions& options);
ServerOptions MakeServerOptions(const ServeOptions& options, std::shared_ptr<KvEvents> events);
// For packed weights: --packed-ram, or its default.
int64_t PackedBytes(const ServeOptions& options);
EngineOptions MakeEngineOptions(const ServeOptions& options, std::shared_ptr<DocumentListener> listener);

}  // namespace coppice::cli
