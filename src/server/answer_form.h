// The form that a request wants its answers in, as a grammar.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/thinking.h"
#include "grammar/token_filter.h"
#include "server/parameters.h"
#include "server/tool_calls.h"

namespace coppice {

struct CompiledForm {
  std::shared_ptr<const Automaton> automaton = nullptr;  // null if any answer will do
  // What the functions' parameters say and the automaton does not, as "tools.NAME: KEYWORD, ...".
  std::vector<std::string> not_enforced = {};
};

// Grammars by what asked for them and whose request it was (Parameters::owner), so that requests with the
// same schema compile it once. No owner is served from another's: the time would tell what the other one
// asked for. Of more than 16 MiB the key that has the most gives up its oldest ones. Thread-safe.
class AnswerForms {
 public:
  // The compiled form: of response_format, json_schema, grammar and their kin, and of calls in the form
  // `tools`, whose arguments must fit the functions' parameters. What the model thinks before, marked as
  // `thinking` says, may be anything. Throws HttpError, naming the field, and
  // Cancelled soon after the flag, which may be null, is set. Large compilations wait for each other, so that
  // their memory is that of one, and give it back to the system.
  CompiledForm Compiled(const Parameters& p, std::optional<ToolFormat> tools,
                        const std::atomic<bool>* cancelled = nullptr,
                        const std::optional<Thinking>& thinking = {});

 private:
  struct Entry {
    PrefixOwner owner;
    std::string key;
    CompiledForm form;
  };
  static size_t SizeOf(const Entry& entry);
  void MakeRoom();

  std::timed_mutex large_;      // held by a large compilation
  std::mutex mutex_;            // guards the entries
  std::vector<Entry> entries_;  // the one that was used last comes last
};

}  // namespace coppice
