#include "apps/library/served_model.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "apps/cli/options.h"
#include "apps/cli/serve_options.h"
#include "base/error.h"
#include "server/local_exchange.h"

namespace coppice {

namespace {

constexpr std::chrono::milliseconds kLook{50};  // how often a caller may cancel while nothing comes

cli::ServeOptions ParseOptions(std::span<const std::string> options) {
  cli::ServeOptions parsed;
  CLI::App app("coppice", "coppice");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.set_help_flag();  // `--help` is for the program
  cli::AddOneModel(app, parsed);
  cli::AddServeOptions(app, parsed);
  std::vector<const char*> words = {"coppice"};
  for (const std::string& option : options) words.push_back(option.c_str());
  std::vector<std::string> rewritten = cli::RewriteAliases(static_cast<int>(words.size()), words.data());
  std::reverse(rewritten.begin(), rewritten.end());  // CLI11 takes them from the back
  try {
    app.parse(rewritten);
  } catch (const CLI::ParseError& error) {
    throw Error("{}", error.what());
  }
  return parsed;
}

}  // namespace

ServedModel::ServedModel(std::span<const std::string> options) : owner_(getpid()) {
  const cli::ServeOptions parsed = ParseOptions(options);
  events_ = cli::MakeKvEvents(parsed);
  server_ = std::make_unique<Server>(cli::MakeServerOptions(parsed, events_));
  server_->Serve(cli::LoadEngine(parsed.model.model, cli::MakeEngineOptions(parsed, events_)));
}

ServedModel::~ServedModel() {
  // The threads that the server would wait for are the parent's.
  if (getpid() != owner_) static_cast<void>(server_.release());
}

int ServedModel::Call(const std::string& method, const std::string& path, std::string body,
                      const Receive& receive) {
  if (getpid() != owner_)
    throw Error("the model belongs to process {}, from which this one was forked: load it in this process",
                owner_);
  const auto exchange = std::make_shared<LocalExchange>();
  const size_t question = path.find('?');
  HttpRequest request{.method = method,
                      .path = path.substr(0, question),
                      .query = question == std::string::npos ? "" : path.substr(question + 1),
                      .headers = {},
                      .body = std::move(body),
                      .arrived = std::chrono::steady_clock::now(),
                      .cancelled = exchange->cancelled()};
  // A thread of its own: until a handler has a prompt's tokens, `receive` must be able to cancel it.
  std::jthread handler([this, &exchange, &request] { server_->Handle(std::move(request), exchange); });
  for (;;) {
    const LocalExchange::Piece piece = exchange->Take(kLook);
    if (piece.ended && piece.bytes.empty()) break;
    bool goes_on = false;
    try {
      goes_on = receive(piece.bytes);
    } catch (...) {
      exchange->Cancel();
      throw;
    }
    if (piece.ended) break;
    if (!goes_on) exchange->Cancel();
  }
  return exchange->status();
}

int ServedModel::Listen(int port) {
  const std::lock_guard lock(listen_mutex_);
  if (port_ == 0) {
    server_->Listen(port);
    port_ = server_->port();
  }
  return port_;
}

}  // namespace coppice
