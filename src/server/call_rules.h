// The calls of functions that answers may consist of, as a grammar.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/rules.h"
#include "grammar/work_budget.h"
#include "server/parameters.h"
#include "server/tool_calls.h"

namespace coppice {

// How much of the functions' parameters the grammar keeps: all that it can, no large lengths and counts, or
// that arguments are objects.
enum class Fitting { kFull, kSmall, kObjects };

class CallRules {
 public:
  // `fitting`: how far arguments fit the functions' parameters. All references must outlive this object.
  // Throws HttpError for parameters of a strict function that a grammar cannot keep, and Error if the rules
  // are too many.
  CallRules(const Parameters& p, ToolFormat format, Fitting fitting, grammar::Rules& rules,
            WorkBudget& budget);

  // What begins calls behind text; empty if nothing does.
  std::string Mark() const;
  // One call, or several where the request allows that: behind the mark, and with it. With kChannels and
  // kAtem one, from its header on.
  grammar::Expr CallsBehindMark() const;
  grammar::Expr Calls() const { return grammar::Sequence({grammar::Text(Mark()), CallsBehindMark()}); }
  // What the functions' parameters say and the rules do not.
  std::vector<std::string> TakeNotes() { return std::move(not_enforced_); }

 private:
  grammar::Expr Call(const nlohmann::ordered_json& function);
  // The arguments as one JSON object.
  grammar::Expr Arguments(const nlohmann::ordered_json& function);
  // Each argument for itself, in the order of the properties.
  grammar::Expr TaggedArguments(const nlohmann::ordered_json& function);
  // What stands in front of an argument's value, in forms with tags.
  grammar::Expr TagOf(grammar::Expr name) const;
  grammar::Expr PythonArguments(const nlohmann::ordered_json& function);
  grammar::Expr GemmaArguments(const nlohmann::ordered_json& function);
  // The value of an argument as JSON.
  grammar::Expr JsonValue(const nlohmann::ordered_json& function, nlohmann::ordered_json schema);
  // A schema that a grammar cannot keep is an error if the function is strict; otherwise the keywords that it
  // cannot keep are noted. nullopt: only objects are kept. `add`: AddArguments or AddArgument.
  using Adder = grammar::Expr(const nlohmann::ordered_json& schema, grammar::Rules& rules,
                              std::vector<std::string>& not_enforced, WorkBudget& budget,
                              int64_t most_repeats);
  std::optional<grammar::Expr> Kept(const nlohmann::ordered_json& function,
                                    const nlohmann::ordered_json& schema, Adder* add);
  grammar::Expr GemmaValue(const nlohmann::ordered_json& function, const nlohmann::ordered_json& schema,
                           int depth);
  grammar::Expr GemmaList(const nlohmann::ordered_json& function, const nlohmann::ordered_json& schema,
                          int depth);
  grammar::Expr GemmaObject(const nlohmann::ordered_json& function, const nlohmann::ordered_json& schema,
                            int depth);
  grammar::Expr GemmaAny();
  void Drop(const nlohmann::ordered_json& function, const nlohmann::ordered_json& schema,
            const std::function<bool(std::string_view)>& keeps);
  void Note(const std::string& name, const std::vector<std::string>& keywords);

  const Parameters& p_;
  const ToolFormat format_;
  const Fitting fitting_;
  grammar::Rules& rules_;
  WorkBudget& budget_;
  const grammar::Expr space_;
  int32_t call_ = 0;
  int32_t named_ = 0;       // Mistral's later form
  int32_t gemma_any_ = -1;  // any value in Gemma 4's notation
  std::vector<std::string> not_enforced_;
};

}  // namespace coppice
