#include "server/answer_form.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "engine/chat_tools.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "grammar/regex_rules.h"
#include "server/errors.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxKeptBytes = size_t{16} << 20;  // of all entries

// A regular expression that fits the whole answer.
Expr WholeMatch(const std::string& regex) {
  return ParseRegex("^(?:" + regex + ")$", [](const CharSet& set) { return Chars(set); });
}

// What the answer is if it calls no function. Adds to `rules`; GBNF brings its own.
Expr FormOf(const Parameters& p, Rules& rules, WorkBudget& budget) {
  switch (p.form) {
    case AnswerForm::kGrammar:
      rules = ParseGbnf(p.form_text, budget);
      return Rule(rules.root);
    case AnswerForm::kRegex:
      return WholeMatch(p.form_text);
    case AnswerForm::kObject:
      return AddJsonObject(rules);
    case AnswerForm::kSchema:
      return AddJsonSchema(*p.form_value, rules);
    case AnswerForm::kChoice: {
      std::vector<Expr> choices;
      if (p.form_value->size() > limits::kMaxGrammarParts)
        throw Error("the grammar is too large: more than {} texts", limits::kMaxGrammarParts);
      for (const ordered_json& text : *p.form_value)
        choices.push_back(Text(text.get_ref<const std::string&>()));
      return Choice(std::move(choices));
    }
    default:
      return Sequence({});
  }
}

// The calls that answers may consist of.
class CallRules {
 public:
  // `fitting`: arguments fit the functions' parameters; else they are any objects.
  CallRules(const Parameters& p, ToolFormat format, bool fitting, Rules& rules)
      : p_(p), format_(format), fitting_(fitting), rules_(rules), space_(Rule(rules.Add(JsonSpace()))) {
    std::vector<Expr> objects;
    std::vector<Expr> named;  // Mistral's later form
    for (const ordered_json& tool : *p.tools) {
      const ordered_json& function = tool["function"];
      const std::string name = function["name"];
      if (p.tool_choice == ToolChoice::kOne && name != p.tool_name) continue;
      const Expr arguments = Rule(rules_.Add(Arguments(function)));
      const char* key = format == ToolFormat::kLlama ? "parameters" : "arguments";
      objects.push_back(Sequence({Text(ordered_json(name).dump()), Text(","), space_,
                                  Text(fmt::format("\"{}\":", key)), space_, arguments}));
      named.push_back(Sequence({Text(name + "[ARGS]"), arguments}));
    }
    object_ = rules_.Add(Sequence(
        {Text("{"), space_, Text("\"name\":"), space_, Choice(std::move(objects)), space_, Text("}")}));
    named_ = rules_.Add(Choice(std::move(named)));
  }

  // What begins calls behind text; empty if nothing does.
  std::string Mark() const {
    return format_ == ToolFormat::kHermes    ? "<tool_call>"
           : format_ == ToolFormat::kMistral ? "[TOOL_CALLS]"
                                             : "";
  }

  // One call, or several where the request allows that, behind the mark.
  Expr CallsBehindMark() const {
    const Expr object = Rule(object_);
    const auto more = [&](std::vector<Expr> parts) {
      return p_.parallel_tool_calls ? Repeat(Sequence(std::move(parts)), 0) : Sequence({});
    };
    switch (format_) {
      case ToolFormat::kHermes: {
        const Expr call = Sequence({space_, object, space_, Text("</tool_call>")});
        return Sequence({call, more({space_, Text("<tool_call>"), call})});
      }
      case ToolFormat::kLlama:
        return Sequence({object, more({Text(";"), space_, object})});
      case ToolFormat::kMistral: {
        const Expr list = Sequence({space_, Text("["), object, more({Text(","), space_, object}), Text("]")});
        const Expr call = Rule(named_);
        return Choice({list, Sequence({call, more({Text("[TOOL_CALLS]"), call})})});
      }
    }
    return object;
  }

  Expr Calls() const { return Sequence({Text(Mark()), CallsBehindMark()}); }

 private:
  // A schema that a grammar cannot keep is an error if the function is strict; otherwise any object will do.
  Expr Arguments(const ordered_json& function) {
    const ordered_json parameters = function.value("parameters", ordered_json());
    if (!fitting_ || !parameters.is_object() || parameters.empty()) return AddJsonObject(rules_);
    const size_t before = rules_.rules.size();
    try {
      return AddJsonSchema(parameters, rules_);
    } catch (const Error& error) {
      if (IsStrict(function))
        throw BadField("tools", fmt::format("{}: {}", function["name"].get<std::string>(), error.what()));
      rules_.rules.resize(before);
      return AddJsonObject(rules_);
    }
  }

 public:
  static bool IsStrict(const ordered_json& function) {
    return function.contains("strict") && function["strict"] == true;
  }

 private:
  const Parameters& p_;
  const ToolFormat format_;
  const bool fitting_;
  Rules& rules_;
  const Expr space_;
  int32_t object_ = 0;
  int32_t named_ = 0;
};

// The answer of a model that has functions: calls, if it must call; else calls or the form; else text,
// behind which calls may come. Null if calls cannot be told from text.
std::optional<Expr> WithCalls(const Parameters& p, const CallRules& calls, Expr form) {
  if (p.tool_choice == ToolChoice::kAny || p.tool_choice == ToolChoice::kOne) return calls.Calls();
  if (p.form != AnswerForm::kFree) return Choice({calls.Calls(), std::move(form)});
  if (calls.Mark().empty()) return std::nullopt;
  return Choice({Without(calls.Mark()), Sequence({Until(calls.Mark()), calls.CallsBehindMark()})});
}

std::shared_ptr<const Automaton> CompiledForm(const Parameters& p, std::optional<ToolFormat> tools,
                                              bool fitting, WorkBudget& budget) {
  Rules rules;
  std::optional<Expr> root = FormOf(p, rules, budget);
  if (tools) root = WithCalls(p, CallRules(p, *tools, fitting, rules), std::move(*root));
  if (!root) return nullptr;
  rules.root = rules.Add(std::move(*root));
  return std::make_shared<const Automaton>(Compile(rules, budget));
}

// Parameters of functions that are too large, all together, are no reason to refuse the request, unless one
// is strict.
std::shared_ptr<const Automaton> CompiledForm(const Parameters& p, std::optional<ToolFormat> tools,
                                              const std::function<WorkBudget()>& budget) {
  const std::string field = p.form == AnswerForm::kFree ? "tools" : p.form_field;
  try {
    WorkBudget fitting = budget();
    return CompiledForm(p, tools, true, fitting);
  } catch (const HttpError&) {
    throw;
  } catch (const Error& error) {
    const auto is_strict = [](const ordered_json& tool) { return CallRules::IsStrict(tool["function"]); };
    if (!tools || std::ranges::any_of(*p.tools, is_strict)) throw BadField(field, error.what());
  }
  try {
    WorkBudget any = budget();
    return CompiledForm(p, tools, false, any);
  } catch (const Error& error) {
    throw BadField(field, error.what());
  }
}

std::string KeyOf(const Parameters& p, std::optional<ToolFormat> tools) {
  std::string key = fmt::format("{}\n{}\n{}\n", static_cast<int>(p.form), p.form_text, p.form_value->dump());
  if (tools) {
    key += fmt::format("{} {} {} {}\n{}", static_cast<int>(*tools), static_cast<int>(p.tool_choice),
                       p.tool_name, p.parallel_tool_calls, p.tools->dump());
  }
  return key;
}

// The turn of a large compilation. The C library would keep what it used, some tens of megabytes for each of
// its arenas: each handler's thread has one.
class LargeTurn {
 public:
  LargeTurn(std::timed_mutex& mutex, const std::atomic<bool>* cancelled)
      : lock_(mutex, std::defer_lock), cancelled_(cancelled) {}
  ~LargeTurn() {
    if (lock_.owns_lock()) malloc_trim(0);
  }
  LargeTurn(const LargeTurn&) = delete;
  LargeTurn& operator=(const LargeTurn&) = delete;

  void Take() {
    while (!lock_.owns_lock() && !lock_.try_lock_for(std::chrono::milliseconds(10)))
      ThrowIfCancelled(cancelled_);
  }

 private:
  std::unique_lock<std::timed_mutex> lock_;
  const std::atomic<bool>* const cancelled_;
};

constexpr size_t kLargeKey = size_t{64} << 10;

}  // namespace

std::shared_ptr<const Automaton> AnswerForms::Compiled(const Parameters& p, std::optional<ToolFormat> tools,
                                                       const std::atomic<bool>* cancelled) {
  if (p.form == AnswerForm::kFree && !tools) return nullptr;
  std::string key = KeyOf(p, tools);
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return entry.owner == p.owner && entry.key == key; });
    if (found != entries_.end()) {
      std::rotate(found, found + 1, entries_.end());
      return entries_.back().automaton;
    }
  }
  std::shared_ptr<const Automaton> automaton;
  {
    LargeTurn turn(large_, cancelled);
    if (key.size() > kLargeKey) turn.Take();
    automaton = CompiledForm(p, tools, [&] { return WorkBudget(cancelled, [&] { turn.Take(); }); });
  }
  const std::lock_guard lock(mutex_);
  entries_.push_back({p.owner, std::move(key), automaton});
  MakeRoom();
  return automaton;
}

void AnswerForms::MakeRoom() {
  std::map<uint64_t, size_t> bytes;  // by API key: a client chooses its salts
  size_t all = 0;
  for (const Entry& entry : entries_) {
    bytes[entry.owner.key] += SizeOf(entry);
    all += SizeOf(entry);
  }
  while (all > kMaxKeptBytes) {
    const auto most = std::ranges::max_element(bytes, {}, [](const auto& one) { return one.second; });
    const auto oldest =
        std::ranges::find_if(entries_, [&](const Entry& e) { return e.owner.key == most->first; });
    const size_t size = SizeOf(*oldest);
    all -= size;
    most->second -= size;
    entries_.erase(oldest);
  }
}

size_t AnswerForms::SizeOf(const Entry& entry) {
  size_t size = sizeof(Entry) + entry.key.size();
  if (const Automaton* a = entry.automaton.get()) {
    size += a->states.size() * sizeof(Automaton::State) + a->bytes.size() * sizeof(Automaton::Bytes) +
            a->calls.size() * sizeof(Automaton::Call);
  }
  return size;
}

}  // namespace coppice
