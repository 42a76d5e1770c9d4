// What the server says of its model.
#include <fmt/chrono.h>

#include <filesystem>

#include "server/native_reply.h"
#include "server/server.h"

namespace coppice {

using nlohmann::ordered_json;

void Server::Models(const HttpRequest& request, const ExchangePtr& exchange) {
  const ModelConfig& config = engine_->model().config();
  ordered_json model = {{"id", options_.alias},
                        {"object", "model"},
                        {"created", started_},
                        {"owned_by", "coppice"},
                        {"max_model_len", engine_->context()},
                        {"context_length", engine_->context()},
                        {"meta",
                         {{"architecture", config.shape.architecture},
                          {"n_vocab", config.shape.vocab},
                          {"n_ctx", engine_->context()},
                          {"n_ctx_train", config.context},
                          {"n_embd", config.shape.hidden},
                          {"n_layer", config.shape.layer_count()}}}};
  const bool is_anthropics = ErrorFormFor(request).api == ErrorApi::kAnthropic;
  if (is_anthropics) {
    model.update({{"type", "model"},
                  {"display_name", options_.alias},
                  {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(started_))},
                  {"lifecycle", "active"},
                  {"max_input_tokens", engine_->context()},
                  {"max_tokens", engine_->context()}});
  }
  if (request.path.ends_with("/models")) {
    ordered_json list = {{"object", "list"}, {"data", ordered_json::array({model})}};
    if (is_anthropics)
      list.update({{"has_more", false}, {"first_id", options_.alias}, {"last_id", options_.alias}});
    return Answer(exchange, list);
  }
  if (request.path != "/v1/models/" + options_.alias) {
    throw HttpError({404, "not_found_error", fmt::format("the model here is {}", options_.alias)});
  }
  Answer(exchange, model);
}

// ModelHost answers these.
void Server::ChangeModel(const HttpRequest&, const ExchangePtr&) {
  throw HttpError(
      {501, "not_supported_error", "this server has one model; docs/server.md says how to serve several"});
}

void Server::Props(const HttpRequest&, const ExchangePtr& exchange) {
  const Parameters& d = options_.defaults;
  const auto control = [&](const std::optional<int32_t>& id) {
    return id ? tokenizer().Piece(*id, true) : std::string();
  };
  Answer(
      exchange,
      {{"default_generation_settings", {{"n_ctx", engine_->context()}, {"params", SettingsJson(d)}}},
       {"total_slots", options_.scheduler.slots},
       {"model_alias", options_.alias},
       {"model_path", std::filesystem::path(engine_->store().path()).filename().string()},  // not its folder
       {"chat_template", tokenizer().chat_template()},
       {"bos_token", control(tokenizer().bos())},
       {"eos_token", control(tokenizer().eos())},
       {"modalities", {{"vision", false}, {"audio", false}}},
       {"build_info", options_.build}});
}

void Server::TokenizerInfo(const HttpRequest&, const ExchangePtr& exchange) {
  const auto control = [&](const std::optional<int32_t>& id) {
    return id ? ordered_json(tokenizer().Piece(*id, true)) : ordered_json();
  };
  ordered_json info = {{"tokenizer_class", std::string(tokenizer().kind())},
                       {"vocab_size", tokenizer().vocab_size()},
                       {"bos_token", control(tokenizer().bos())},
                       {"eos_token", control(tokenizer().eos())},
                       {"pad_token", control(tokenizer().eos())},
                       {"model_max_length", engine_->context()}};
  if (!tokenizer().chat_template().empty()) info["chat_template"] = tokenizer().chat_template();
  Answer(exchange, info);
}

}  // namespace coppice
