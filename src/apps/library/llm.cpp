// The C++ library: each function is a request to one of the server's routes.
#include <coppice/llm.h>

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/library/served_model.h"
#include "base/error.h"

namespace coppice {

namespace {

using Json = nlohmann::ordered_json;
using Receive = ServedModel::Receive;

// Calls `function`, whose exceptions become LlmError. Those of a caller's callbacks stay as they are.
template <typename Function>
auto Translated(Function&& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw LlmError(LlmError::Kind::kFailed, error.what());
  } catch (const nlohmann::json::exception& error) {
    throw LlmError(LlmError::Kind::kFailed, error.what());
  }
}

LlmError ErrorOf(int status, const Json& reply) {
  using Kind = LlmError::Kind;
  const Json error = reply.contains("error") ? reply["error"] : Json::object();
  const auto text = [&error](const char* name) {
    return error.contains(name) && error[name].is_string() ? error[name].get<std::string>() : std::string();
  };
  const Kind kind = text("code") == "context_length_exceeded" ? Kind::kTooLong
                    : status == 429 || status == 503          ? Kind::kBusy
                    : status == 499                           ? Kind::kCancelled
                    : status >= 500                           ? Kind::kFailed
                                                              : Kind::kInvalid;
  return {kind, text("message"), text("param")};
}

void ThrowIfError(int status, const std::string& reply) {
  if (status == 499) throw LlmError(LlmError::Kind::kCancelled, "a callback ended the request");
  if (status >= 400) throw ErrorOf(status, Json::parse(reply, nullptr, false));
}

Json BodyOf(const LlmRequest& request) {
  Json body = request.more.empty() ? Json::object() : Json::parse(request.more, nullptr, false);
  if (!body.is_object())
    throw LlmError(LlmError::Kind::kInvalid, "LlmRequest::more is no JSON object", "more");
  body.update({{"stream", true}, {"return_tokens", true}, {"max_tokens", request.max_tokens}});
  if (request.temperature) body["temperature"] = *request.temperature;
  if (request.top_p) body["top_p"] = *request.top_p;
  if (request.top_k) body["top_k"] = *request.top_k;
  if (request.seed) body["seed"] = *request.seed;
  if (!request.stop.empty()) body["stop"] = request.stop;
  if (request.on_progress) body["return_progress"] = true;
  if (!request.json_schema.empty()) {
    body["json_schema"] = Json::parse(request.json_schema, nullptr, false);
    if (body["json_schema"].is_discarded())
      throw LlmError(LlmError::Kind::kInvalid, "LlmRequest::json_schema is no JSON", "json_schema");
  }
  if (!request.protect.empty()) {
    Json spans = Json::array();
    for (const LlmSpan& span : request.protect) spans.push_back({span.begin, span.end});
    body["prune"] = {{"spec", request.prune.value_or("default")}, {"protect", std::move(spans)}};
  } else if (request.prune) {
    body["prune"] = *request.prune;
  }
  return body;
}

// Puts the events of a stream together.
class AnswerStream {
 public:
  explicit AnswerStream(const LlmRequest& request) : request_(request) {}

  // Returns false to end the request.
  bool Push(std::string_view bytes) {
    pending_ += bytes;
    for (size_t end; (end = pending_.find("\n\n")) != std::string::npos; pending_.erase(0, end + 2)) {
      const std::string_view event = std::string_view(pending_).substr(0, end);
      constexpr std::string_view kData = "data: ";
      if (event.starts_with(kData) && event != "data: [DONE]" &&
          !Read(Json::parse(event.substr(kData.size()))))
        return false;
    }
    return true;
  }
  // What is no event: the reply of a request that was refused.
  const std::string& rest() const { return pending_; }
  LlmAnswer Take() { return std::move(answer_); }

 private:
  bool Read(const Json& event) {
    if (event.contains("error")) throw ErrorOf(500, event);
    if (event.contains("prompt_progress") && request_.on_progress) {
      const Json& progress = event["prompt_progress"];
      if (!request_.on_progress(progress.at("processed"), progress.at("total"))) return false;
    }
    // /completion has its members in the event, a chat in its choice.
    const Json& choice = event.contains("choices") && !event["choices"].empty() ? event["choices"][0] : event;
    const Json& delta = choice.contains("delta") ? choice["delta"] : choice;
    answer_.reasoning += Text(delta, "reasoning_content");
    if (choice.contains("tokens"))
      for (const Json& token : choice["tokens"]) answer_.tokens.push_back(token);
    const std::string text = Text(delta, "content");
    answer_.text += text;
    if (event.contains("timings")) End(event, choice);
    return text.empty() || !request_.on_text || request_.on_text(text);
  }

  void End(const Json& event, const Json& choice) {
    const Json& timings = event["timings"];
    answer_.finish_reason = Text(choice, "finish_reason");
    if (const std::string type = Text(event, "stop_type"); !type.empty())
      answer_.finish_reason = type == "limit" ? "length" : "stop";
    answer_.cached_tokens = timings.at("cache_n");
    answer_.prompt_tokens = answer_.cached_tokens + timings.at("prompt_n").get<int64_t>();
    answer_.ttft_ms = timings.at("prompt_ms");
    answer_.tokens_per_second = timings.at("predicted_per_second");
    if (event.contains("prune")) {
      const Json& prune = event["prune"];
      answer_.prune_spec = Text(prune, "spec");
      answer_.prune_active = prune.value("active", false);
      answer_.prune_reason = Text(prune, "reason");
      answer_.flops = prune.value("flops", 0.0);
      answer_.flops_dense = prune.value("flops_dense", 0.0);
    }
    answer_.json = event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  static std::string Text(const Json& object, const char* name) {
    return object.contains(name) && object[name].is_string() ? object[name].get<std::string>()
                                                             : std::string();
  }

  const LlmRequest& request_;
  std::string pending_;
  LlmAnswer answer_;
};

std::vector<std::string> WordsOf(const std::string& path, const LlmOptions& options) {
  std::vector<std::string> words = {"--model",     path,
                                    "--prune",     options.prune,
                                    "--ctx-size",  fmt::format("{}", options.context),
                                    "--threads",   fmt::format("{}", options.threads),
                                    "--cache-ram", fmt::format("{}", options.cache_mib)};
  words.insert(words.end(), options.more.begin(), options.more.end());
  return words;
}

Json MessagesOf(std::string_view document, std::string_view question) {
  return {{{"role", "user"}, {"content", document}},
          {{"role", "user"}, {"content", question}, {"question", true}}};
}

}  // namespace

LlmError::LlmError(Kind kind, const std::string& message, std::string field)
    : std::runtime_error(message), kind_(kind), field_(std::move(field)) {}
LlmError::~LlmError() = default;

struct Llm::Impl {
  explicit Impl(const std::vector<std::string>& words) : model(words) {}

  std::string Call(const std::string& method, const std::string& path, std::string body,
                   const Receive& receive) {
    std::string reply;
    const int status = model.Call(method, path, std::move(body), [&](std::string_view bytes) {
      reply += bytes;
      return !receive || receive(bytes);
    });
    ThrowIfError(status, reply);
    return reply;
  }
  Json Post(const std::string& path, const Json& body) {
    return Json::parse(Call("POST", path, body.dump(-1, ' ', false, Json::error_handler_t::replace), {}));
  }
  LlmAnswer Stream(const std::string& path, const Json& body, const LlmRequest& request) {
    AnswerStream stream(request);
    const int status = model.Call("POST", path, body.dump(-1, ' ', false, Json::error_handler_t::replace),
                                  [&stream](std::string_view bytes) { return stream.Push(bytes); });
    ThrowIfError(status, stream.rest());
    return stream.Take();
  }
  LlmAnswer Chat(Json messages, const LlmRequest& request) {
    Json body = BodyOf(request);
    body["messages"] = std::move(messages);
    return Stream("/v1/chat/completions", body, request);
  }
  LlmAnswer Generate(Json prompt, const LlmRequest& request) {
    Json body = BodyOf(request);
    body["prompt"] = std::move(prompt);
    return Stream("/completion", body, request);
  }

  ServedModel model;
};

Llm::Llm(const std::string& path, const LlmOptions& options)
    : impl_(Translated([&] { return std::make_unique<Impl>(WordsOf(path, options)); })) {}
Llm::~Llm() = default;
Llm::Llm(Llm&&) noexcept = default;
Llm& Llm::operator=(Llm&&) noexcept = default;

LlmAnswer Llm::Ask(std::string_view document, std::string_view question, const LlmRequest& request) {
  return Translated([&] { return impl_->Chat(MessagesOf(document, question), request); });
}

LlmAnswer Llm::Chat(const std::vector<LlmMessage>& messages, const LlmRequest& request) {
  return Translated([&] {
    Json list = Json::array();
    for (const LlmMessage& message : messages) {
      list.push_back({{"role", message.role}, {"content", message.content}});
      if (message.is_question) list.back()["question"] = true;
    }
    return impl_->Chat(std::move(list), request);
  });
}

LlmDocument Llm::Read(std::string document, const LlmRequest& request) {
  LlmRequest reading = request;
  reading.max_tokens = 0;
  Translated([&] { return impl_->Chat({{{"role", "user"}, {"content", document}}}, reading); });
  return {*this, std::move(document)};
}

LlmAnswer LlmDocument::Ask(std::string_view question, const LlmRequest& request) const {
  return llm_->Ask(text_, question, request);
}

LlmAnswer Llm::Generate(std::string_view prompt, const LlmRequest& request) {
  return Translated([&] { return impl_->Generate(Json(prompt), request); });
}

LlmAnswer Llm::Generate(const std::vector<int32_t>& tokens, const LlmRequest& request) {
  return Translated([&] { return impl_->Generate(Json(tokens), request); });
}

std::vector<double> Llm::Score(const std::vector<int32_t>& tokens) {
  return Translated([&] {
    const Json reply = impl_->Post("/v1/completions",
                                   {{"prompt", tokens}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}});
    std::vector<double> scores;
    for (const Json& score : reply.at("choices").at(0).at("logprobs").at("token_logprobs"))
      if (!score.is_null()) scores.push_back(score);
    return scores;
  });
}

std::vector<float> Llm::Embed(std::string_view text) {
  return Translated([&] {
    const Json reply = impl_->Post("/v1/embeddings", {{"input", text}});
    return reply.at("data").at(0).at("embedding").get<std::vector<float>>();
  });
}

std::vector<int32_t> Llm::Tokenize(std::string_view text, bool add_bos) {
  return Translated([&] {
    const Json reply = impl_->Post("/tokenize", {{"content", text}, {"add_special", add_bos}});
    return reply.at("tokens").get<std::vector<int32_t>>();
  });
}

std::string Llm::Detokenize(const std::vector<int32_t>& tokens) {
  return Translated([&] {
    return impl_->Post("/detokenize", {{"tokens", tokens}}).at("content").get<std::string>();
  });
}

std::string Llm::Call(const std::string& method, const std::string& path, const std::string& json,
                      const std::function<bool(std::string_view bytes)>& on_bytes) {
  return Translated([&] { return impl_->Call(method, path, json, on_bytes); });
}

int Llm::Listen(int port) {
  return Translated([&] { return impl_->model.Listen(port); });
}

}  // namespace coppice
