// The form that a request wants its answers in, as a grammar.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "grammar/token_filter.h"
#include "server/parameters.h"
#include "server/tool_calls.h"

namespace coppice {

struct CompiledForm {
  std::shared_ptr<const Automaton> automaton = nullptr;  // null if any answer will do
  // What the functions' parameters say and the automaton does not, as "tools.NAME: KEYWORD, ...".
  std::vector<std::string> not_enforced = {};
};

// Grammars by what asked for them, so that requests with the same schema compile it once. Thread-safe.
class AnswerForms {
 public:
  // The compiled form: of response_format, json_schema, grammar and their kin, and of calls in the form
  // `tools`, whose arguments must fit the functions' parameters. Throws HttpError, naming the field.
  CompiledForm Compiled(const Parameters& p, std::optional<ToolFormat> tools);

 private:
  struct Entry {
    std::string key;
    CompiledForm form;
  };
  static size_t SizeOf(const Entry& entry);

  std::mutex mutex_;
  std::vector<Entry> entries_;  // the one that was used last comes last
};

}  // namespace coppice
