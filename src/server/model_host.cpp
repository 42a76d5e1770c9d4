#include "server/model_host.h"

#include <fmt/core.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/local_exchange.h"
#include "server/merged_metrics.h"
#include "server/named_model.h"
#include "server/request_json.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr std::chrono::milliseconds kReplyGrace{500};
constexpr std::string_view kModels = "/v1/models/";

ServerOptions Front(ServerOptions options) {
  options.is_front = true;
  options.slot_save_path.clear();
  return options;
}

const char* NameOf(ShelfState state) {
  if (state == ShelfState::kLoading) return "loading";
  return state == ShelfState::kLoaded ? "loaded" : "unloaded";
}

HttpReply Json(const ordered_json& body) { return {.status = 200, .body = DumpJson(body)}; }

}  // namespace

ModelHost::ModelHost(ServerOptions options, std::vector<ShelvedModel> models, const ShelfLimits& limits)
    : front_options_(Front(std::move(options))),
      started_(std::time(nullptr)),
      front_(front_options_),
      shelf_(std::move(models), limits) {}

ModelHost::~ModelHost() { Stop(); }

void ModelHost::Listen(int port) {
  HttpOptions http = front_options_.http;
  http.port = port;
  CheckAddress(front_options_);
  http_ = std::make_unique<HttpServer>(http, *this);
  listening_ = http_.get();
}

void ModelHost::Start() { shelf_.LoadNow(0); }

void ModelHost::Drain(std::chrono::milliseconds limit) {
  if (limit.count() <= 0) return;
  front_.RefuseNew();
  if (http_) http_->WaitForReplies(limit);
}

bool ModelHost::Stop() {
  const bool models_ended = shelf_.Stop();
  return (!http_ || http_->Stop(kReplyGrace)) && models_ended;
}

size_t ModelHost::Named(const std::string& name) const {
  std::string names;
  for (size_t i = 0; i < shelf_.size(); ++i) {
    if (shelf_.name(i) == name) return i;
    names += (names.empty() ? "" : ", ") + shelf_.name(i);
  }
  throw HttpError({.status = 404,
                   .type = "not_found_error",
                   .message = fmt::format("model: there is no {} here, but {}", name, names),
                   .param = "model",
                   .more = {{"code", "model_not_found"}}});
}

// Without a name, the model that was used last.
size_t ModelHost::ModelOf(const HttpRequest& request) const {
  const std::string name = NamedModel(request);
  return name.empty() ? shelf_.last_used() : Named(name);
}

// What the model's server says of it while it is loaded, and in each case its state (llama-server's
// "status").
ordered_json ModelHost::Describe(size_t model, const HttpRequest& request) {
  const std::string& name = shelf_.name(model);
  ordered_json json = {{"id", name}, {"object", "model"}, {"created", started_}, {"owned_by", "coppice"}};
  HttpRequest ask = request;
  ask.path = std::string(kModels) + name;
  const auto exchange = std::make_shared<LocalExchange>();
  if (shelf_.AskIfLoaded(model, std::move(ask), exchange)) {
    const std::string body = exchange->Take(std::chrono::milliseconds(0)).bytes;
    if (exchange->status() == 200) json = ordered_json::parse(body);
  } else if (ErrorFormFor(request).api == ErrorApi::kAnthropic) {
    json.update({{"type", "model"}, {"display_name", name}});
  }
  const ModelOnShelf seen = shelf_.Look(model);
  json["status"] = {{"value", NameOf(seen.state)}};
  if (!seen.error.empty()) json["status"].update({{"failed", true}, {"error", seen.error}});
  return json;
}

HttpReply ModelHost::List(const HttpRequest& request) {
  if (request.path.starts_with(kModels))
    return Json(Describe(Named(request.path.substr(kModels.size())), request));
  ordered_json data = ordered_json::array();
  for (size_t i = 0; i < shelf_.size(); ++i) data.push_back(Describe(i, request));
  ordered_json list = {{"object", "list"}, {"data", std::move(data)}};
  if (ErrorFormFor(request).api == ErrorApi::kAnthropic) {
    list.update(
        {{"has_more", false}, {"first_id", shelf_.name(0)}, {"last_id", shelf_.name(shelf_.size() - 1)}});
  }
  return Json(list);
}

// POST /models/load and /models/unload, as llama-server has them: they answer at once, and GET /models shows
// when it is done.
HttpReply ModelHost::Change(const HttpRequest& request) {
  const std::string name = TextMember(ParseRequestObject(request.body), "model");
  if (name.empty()) throw BadField("model", "is missing: the name of a model");
  const size_t model = Named(name);
  if (request.path == "/models/load")
    shelf_.Load(model);
  else
    shelf_.Unload(model);
  return Json({{"success", true}});
}

// Of the models that are loaded, each sample with its model's name.
HttpReply ModelHost::MetricsOfAll(const HttpRequest& request) {
  MergedMetrics merged;
  HttpReply reply{.status = 503, .body = "no model is loaded\n", .type = kMetricsType};
  for (size_t i = 0; i < shelf_.size(); ++i) {
    const auto exchange = std::make_shared<LocalExchange>();
    if (!shelf_.AskIfLoaded(i, request, exchange)) continue;
    const std::string text = exchange->Take(std::chrono::milliseconds(0)).bytes;
    if (exchange->status() != 200) return {.status = exchange->status(), .body = text};
    merged.Add(shelf_.name(i), text);
    reply.status = 200;
  }
  const HttpServer* http = listening_;
  merged.Replace("coppice_connections", http != nullptr ? http->connections() : 0);
  if (reply.status == 200) reply.body = merged.Text();
  return reply;
}

void ModelHost::Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  try {
    const bool is_post = request.method == "POST";
    if (request.path.starts_with("/models") || request.path.starts_with("/v1/models"))
      return exchange->Reply(is_post ? Change(request) : List(request));
    if (request.path == "/metrics") return exchange->Reply(MetricsOfAll(request));
    if (!Server::NeedsModel(request)) return front_.Handle(std::move(request), std::move(exchange));
    const size_t model = ModelOf(request);
    exchange->Note(LogNote::Of("model", shelf_.name(model)));
    if (is_post) return shelf_.Ask(model, std::move(request), exchange);
    // To look at a model does not load it: pages and monitors look all the time.
    const ErrorForm form = ErrorFormFor(request);
    if (shelf_.AskIfLoaded(model, std::move(request), exchange)) return;
    exchange->Reply(ErrorReply({503, "unavailable_error",
                                fmt::format("the model {} is not loaded: a request to it, or POST "
                                            "/models/load, loads it",
                                            shelf_.name(model))},
                               form));
  } catch (const HttpError& error) {
    exchange->Reply(ErrorReply(error.fault(), ErrorFormFor(request)));
  } catch (const std::bad_alloc&) {
    exchange->Reply(ErrorReply({503, "unavailable_error", "out of memory"}, ErrorFormFor(request)));
  }
}

}  // namespace coppice
