// Bodies of /v1/messages and /v1/responses, made to those of /v1/chat/completions. Fields also change
// their types: the bytes behind the last line break of an input say which value becomes what.
#include <nlohmann/json.hpp>

#include "formats/json.h"
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "server/errors.h"
#include "server/messages_form.h"
#include "server/parameters.h"
#include "server/responses_form.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

std::vector<std::string> Seeds() {
  return {
      R"({"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":)"
      R"([{"type":"text","text":"a"},{"type":"document","source":{"type":"text","data":"d"}}]},{"role":"assistant",)"
      R"("content":[{"type":"tool_use","id":"1","name":"f","input":{"x":1}}]},{"role":"user","content":[{"type":)"
      R"("tool_result","tool_use_id":"1","content":"y"}]}],"tools":[{"name":"f","input_schema":{"type":"object"}}],)"
      R"("tool_choice":{"type":"auto"},"stop_sequences":["x"],"stream":true})",
      R"({"model":"m","instructions":"i","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},)"
      R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output",)"
      R"("call_id":"1","output":"y"}],"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],)"
      R"("tool_choice":"auto","max_output_tokens":9,"text":{"format":{"type":"json_object"}}})",
      R"({"input":"a","previous_response_id":null,"stream":false})"};
}

// Every value of the text, in its order.
void Collect(ordered_json& value, std::vector<ordered_json*>& values) {
  values.push_back(&value);
  if (!value.is_structured()) return;
  for (ordered_json& item : value) Collect(item, values);
}

std::string WithOtherTypes(std::string_view input) {
  const size_t cut = input.rfind('\n');
  if (cut == std::string_view::npos) return std::string(input);
  try {
    OwnedJson<ordered_json> owned = ParseOrderedJson(input.substr(0, cut), "x.json", 10'000);
    ordered_json body = *owned;
    const std::string_view changes = input.substr(cut + 1, 16);
    for (size_t i = 0; i + 1 < changes.size(); i += 2) {
      std::vector<ordered_json*> values;
      Collect(body, values);
      const ordered_json others[] = {nullptr,
                                     true,
                                     -1,
                                     1e300,
                                     "",
                                     "text",
                                     ordered_json::array(),
                                     ordered_json::object(),
                                     ordered_json::array({1}),
                                     ordered_json::array({nullptr}),
                                     {{"type", 3}}};
      *values[static_cast<uint8_t>(changes[i]) % values.size()] =
          others[static_cast<uint8_t>(changes[i + 1]) % std::size(others)];
    }
    return body.dump();
  } catch (const std::exception&) {
    return std::string(input);
  }
}

bool Run(std::string_view input) {
  const std::string body = WithOtherTypes(input);
  bool accepted = false;
  for (const bool messages : {true, false}) {
    try {
      const std::string chat = (messages ? ChatOfMessages(body) : ChatOfResponses(body)).body;
      ParseParameters(chat, kChat, {});
      accepted = true;
    } catch (const HttpError& error) {
      if (error.fault().status < 400 || error.fault().status > 499 ||
          ErrorBody(error.fault()).find('\n') != std::string::npos)
        abort();  // a body must not be able to make an error of the server
    }
  }
  return accepted;
}

}  // namespace

FuzzTarget ChatFormsTarget() {
  return {"chat_forms",
          Seeds,
          {"null",
           "true",
           "-1",
           "1e308",
           "{}",
           "[]",
           "\"\"",
           "\n\x01\x02",
           "\n\x07\x06\x0c\x03",
           "\"role\":",
           "\"content\":",
           "\"type\":",
           "\"text\":",
           "\"input_text\"",
           "\"output_text\"",
           "\"function_call\"",
           "\"function_call_output\"",
           "\"reasoning\"",
           "\"tool_use\"",
           "\"tool_result\"",
           "\"thinking\"",
           "\"image\"",
           "\"input\":",
           "\"tools\":",
           "\"tool_choice\":",
           "\"max_tokens\":"},
          Run};
}

}  // namespace coppice
