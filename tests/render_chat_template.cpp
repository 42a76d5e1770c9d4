// Renders chat templates for chat_templates_test.py and chat_prompts_test.py. Reads a JSON array from
// standard input, each element with either a "template" or the "file" of a GGUF model that has one, and with
// a "context", which the template gets as it is, or the "body" of a request to /apply-template. Writes an
// array of the templates with their "text" or "error".
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "byte_tokenizer.h"
#include "engine/chat_prompt.h"
#include "formats/gguf.h"
#include "server/chat_options.h"
#include "server/errors.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using Json = nlohmann::ordered_json;

std::string SourceOf(const Json& request) {
  if (request.contains("template")) return request["template"].get<std::string>();
  const auto model = coppice::GgufFile::Open(request["file"].get<std::string>());
  return coppice::Tokenizer::FromGguf(model->metadata())->chat_template();
}

// As the server's route does it.
std::string Applied(const std::string& chat_template, const std::string& body) {
  const coppice::ByteTokenizer tokenizer(chat_template);
  const coppice::Parameters p = coppice::ParseParameters(body, coppice::kApplyTemplate, {});
  const auto messages = coppice::ParseMessages(*p.messages, "messages");
  return coppice::RenderChat(messages, tokenizer, coppice::ChatOptionsOf(p, messages, tokenizer, nullptr));
}

std::string Rendered(const std::string& chat_template, const Json& request) {
  if (request.contains("body")) return Applied(chat_template, request["body"].get<std::string>());
  return coppice::ChatTemplate(chat_template).Render(request["context"]);
}

}  // namespace

int main() {
  Json answers = Json::array();
  for (const Json& request : Json::parse(std::cin)) {
    Json answer = {{"template", SourceOf(request)}};
    try {
      answer["text"] = Rendered(answer["template"].get<std::string>(), request);
    } catch (const coppice::HttpError& error) {
      answer["error"] = error.what();
    } catch (const coppice::Error& error) {
      answer["error"] = error.what();
    }
    answers.push_back(std::move(answer));
  }
  fmt::print("{}\n", answers.dump());
}
