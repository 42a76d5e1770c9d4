// Several models behind one address. A request's field "model" says which it is for (a GET's query may), and
// the model's own server answers it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/model_shelf.h"
#include "server/server.h"

namespace coppice {

class ModelHost final : public HttpService {
 public:
  // `options` are those of the address: keys, hosts, limits, log. `models` are one or more, each with a name
  // of its own.
  ModelHost(ServerOptions options, std::vector<ShelvedModel> models, const ShelfLimits& limits);
  ~ModelHost() override;

  // As of Server.
  void Listen(int port);
  int port() const { return http_->port(); }
  // Loads the first model. Throws Error if it cannot be loaded.
  void Start();
  void Drain(std::chrono::milliseconds limit);
  bool Stop();
  bool WriteDocuments(std::chrono::milliseconds limit) { return shelf_.WriteDocuments(limit); }

  HttpHeaders HeadersFor(const HttpRequest& head) override { return front_.HeadersFor(head); }
  std::optional<HttpReply> Refuse(const HttpRequest& head) override { return front_.Refuse(head); }
  bool IsQuick(const HttpRequest& head) override { return front_.IsQuick(head); }
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  void Log(const HttpLogEntry& entry) override { front_.Log(entry); }

 private:
  size_t Named(const std::string& name) const;
  size_t ModelOf(const HttpRequest& request) const;
  nlohmann::ordered_json Describe(size_t model, const HttpRequest& request);
  HttpReply List(const HttpRequest& request);
  HttpReply Change(const HttpRequest& request);
  HttpReply MetricsOfAll(const HttpRequest& request);

  const ServerOptions front_options_;
  const int64_t started_;  // Unix time
  Server front_;           // access, the log, and what needs no model
  ModelShelf shelf_;
  std::unique_ptr<HttpServer> http_;                   // last but one: its threads use all of the above
  std::atomic<const HttpServer*> listening_{nullptr};  // http_, which its own threads must not read
};

}  // namespace coppice
