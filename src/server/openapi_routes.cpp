// What each route is, in a line. openapi_test.cpp holds the table against the server's own.
#include "server/openapi.h"

namespace coppice {

namespace {

constexpr RouteText Page(std::string_view path, std::string_view shown, std::string_view summary,
                         std::string_view type) {
  return {.method = "GET", .path = path, .shown = shown, .summary = summary, .is_open = true, .type = type};
}

constexpr RouteText Get(std::string_view path, std::string_view shown, std::string_view summary) {
  return {.method = "GET", .path = path, .shown = shown, .summary = summary};
}

constexpr RouteText Health(std::string_view path) {
  return {.method = "GET",
          .path = path,
          .shown = path,
          .summary = "200 once the model is loaded; 503 before, and while the server ends",
          .is_open = true};
}

constexpr RouteText Post(std::string_view path, Route fields, std::string_view summary) {
  return {.method = "POST",
          .path = path,
          .shown = path,
          .summary = summary,
          .body = BodyForm::kFields,
          .fields = fields};
}

constexpr RouteText PostForm(std::string_view path, std::string_view shown, BodyForm body,
                             std::string_view summary) {
  return {.method = "POST", .path = path, .shown = shown, .summary = summary, .body = body};
}

constexpr RouteText Streams(RouteText text) {
  text.streams = true;
  return text;
}

constexpr std::string_view kHtml = "text/html";

constexpr RouteText kTexts[] = {
    Page("/", "/", "The page, to ask in a browser", kHtml),
    Page("/web/", "/web/{file}", "The page's files", "text/javascript"),
    Page("/docs", "/docs", "A page that lists the routes", kHtml),
    Get("/openapi.json", "/openapi.json", "This document"),
    Get("/version", "/version", "The program's version, commit, build and instruction set"),
    Health("/health"),
    Health("/v1/health"),
    Get("/models", "/models", "The models"),
    Get("/v1/models", "/v1/models", "The models"),
    Get("/v1/models/", "/v1/models/{model}", "A model, by its name"),
    Get("/props", "/props", "The server's settings, in llama.cpp's form"),
    Get("/methods", "/methods", "The pruning methods with their keys"),
    Get("/slots", "/slots", "What is being computed, and how far it is"),
    PostForm("/slots/", "/slots/{id}", BodyForm::kSlot,
             "Saves what is kept of a slot's last prompt to a file, reads it back, or forgets it"),
    {.method = "GET",
     .path = "/metrics",
     .shown = "/metrics",
     .summary = "Counters, gauges and histograms in Prometheus' form",
     .type = "text/plain"},
    Get("/tokenizer_info", "/tokenizer_info", "Special tokens and the chat template"),
    PostForm("/models/load", "/models/load", BodyForm::kModel, "Loads one of several models"),
    PostForm("/models/unload", "/models/unload", BodyForm::kModel, "Puts one of several models away"),
    PostForm("/v1/documents/text", "/v1/documents/text", BodyForm::kFile, "The text of a PDF or DOCX file"),
    PostForm("/plan", "/plan", BodyForm::kPlan,
             "What a prune setting would do to a prompt of a given length"),
    Post("/tokenize", kTokenize, "A text's tokens"),
    Post("/detokenize", kDetokenize, "The text of tokens"),
    Post("/apply-template", kApplyTemplate, "A chat as the model's template writes it"),
    Post("/v1/completions/render", kCompletions, "The tokens of a request's prompts"),
    Post("/v1/chat/completions/render", kChat, "The tokens of a chat"),
    Streams(Post("/completion", kNative, "Continues a text, in llama.cpp's form")),
    Streams(Post("/completions", kNative, "Continues a text, in llama.cpp's form")),
    Streams(Post("/v1/completions", kCompletions, "Continues a text, in OpenAI's form")),
    Streams(Post("/chat/completions", kChat, "Answers a chat, in OpenAI's form")),
    Streams(Post("/v1/chat/completions", kChat, "Answers a chat, in OpenAI's form")),
    Post("/chat/completions/input_tokens", kChat, "A chat's number of tokens"),
    Post("/v1/chat/completions/input_tokens", kChat, "A chat's number of tokens"),
    Post("/embedding", kEmbeddings, "Vectors of texts, in llama.cpp's form"),
    Post("/embeddings", kEmbeddings, "Vectors of texts, in llama.cpp's form"),
    Post("/v1/embeddings", kEmbeddings, "Vectors of texts, in OpenAI's form"),
    Streams(
        PostForm("/v1/messages", "/v1/messages", BodyForm::kMessages, "Answers a chat, in Anthropic's form")),
    PostForm("/v1/messages/count_tokens", "/v1/messages/count_tokens", BodyForm::kMessages,
             "The number of tokens of a chat in Anthropic's form"),
    Streams(PostForm("/v1/responses", "/v1/responses", BodyForm::kResponses,
                     "Answers a chat, in OpenAI's newer form")),
};

}  // namespace

std::span<const RouteText> RouteTexts() { return kTexts; }

}  // namespace coppice
