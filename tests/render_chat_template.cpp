// Renders chat templates for chat_templates_test.py. Reads a JSON array from standard input, each element
// with a "context" and either a "template" or the "file" of a GGUF model that has one; writes an array of the
// templates with their "text" or "error".
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/gguf.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace {

using Json = nlohmann::ordered_json;

std::string SourceOf(const Json& request) {
  if (request.contains("template")) return request["template"].get<std::string>();
  const auto model = coppice::GgufFile::Open(request["file"].get<std::string>());
  return coppice::Tokenizer::FromGguf(model->metadata())->chat_template();
}

}  // namespace

int main() {
  Json answers = Json::array();
  for (const Json& request : Json::parse(std::cin)) {
    Json answer = {{"template", SourceOf(request)}};
    try {
      answer["text"] =
          coppice::ChatTemplate(answer["template"].get<std::string>()).Render(request["context"]);
    } catch (const coppice::Error& error) {
      answer["error"] = error.what();
    }
    answers.push_back(std::move(answer));
  }
  fmt::print("{}\n", answers.dump());
}
