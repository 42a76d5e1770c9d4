// A request's body, for each route.
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "server/errors.h"
#include "server/parameters.h"

namespace coppice {
namespace {

std::vector<std::string> Seeds() {
  return {
      R"({"prompt":["a",[1,2]],"max_tokens":4,"temperature":0.5,"top_p":0.9,"stop":["x"],"seed":1,"n":2,)"
      R"("stream":true,"stream_options":{"include_usage":true},"logprobs":3,"echo":true,"cache_salt":"s"})",
      R"({"messages":[{"role":"system","content":"be brief","protect":true},{"role":"user","content":)"
      R"([{"type":"text","text":"Who?"}],"question":true}],"chat_template_kwargs":{"a":{"b":[1]}},"logprobs":)"
      R"(true,"top_logprobs":2,"prune":{"method":"lazyllm","confidence":true,"protect_first":4}})",
      R"({"content":"text","with_pieces":true,"add_special":true,"parse_special":false})",
      R"({"tokens":[1,2,3]})"};
}

bool Run(std::string_view input) {
  bool accepted = false;
  for (const Route route : {kCompletions, kChat, kTokenize, kDetokenize, kApplyTemplate}) {
    try {
      ParseParameters(input, route, {});
      accepted = true;
    } catch (const HttpError& error) {
      // 4xx: a body must not be able to make an error of the server.
      if (error.fault().status < 400 || error.fault().status > 499 ||
          ErrorBody(error.fault()).find('\n') != std::string::npos)
        abort();
    }
  }
  return accepted;
}

}  // namespace

FuzzTarget ParametersTarget() {
  FuzzTarget target{"parameters", Seeds, {"null", "true", "-1", "1e308", "[[", "{}", "\"\\u0000\""}, Run};
  for (const Field& field : Fields()) {
    const std::string_view names = field.names;
    target.words.push_back("\"" + std::string(names.substr(0, names.find(' '))) + "\":");
  }
  return target;
}

}  // namespace coppice
