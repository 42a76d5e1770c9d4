#include "server/answer_form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "engine/chat_tools.h"
#include "engine/thinking_rules.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "grammar/regex_rules.h"
#include "server/call_rules.h"
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
      return AddJsonSchema(*p.form_value, rules, budget);
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

// The answer of a model that has functions: calls, if it must call; else calls or the form; else text,
// behind which calls may come. Null if calls cannot be told from text.
std::optional<Expr> WithCalls(const Parameters& p, const CallRules& calls, Expr form) {
  if (p.tool_choice == ToolChoice::kAny || p.tool_choice == ToolChoice::kOne) return calls.Calls();
  if (p.form != AnswerForm::kFree) return Choice({calls.Calls(), std::move(form)});
  if (calls.Mark().empty()) return std::nullopt;
  return Choice({Without(calls.Mark()), Sequence({Until(calls.Mark()), calls.CallsBehindMark()})});
}

// The same where each message has a header: calls, the form, or a text.
MessageForms MessagesWithCalls(const Parameters& p, const CallRules& calls, Expr form) {
  MessageForms messages{.answer = std::nullopt, .other = calls.Calls()};
  if (p.tool_choice == ToolChoice::kAny || p.tool_choice == ToolChoice::kOne) return messages;
  messages.answer = p.form == AnswerForm::kFree ? Without("<|start|>") : std::move(form);
  return messages;
}

CompiledForm CompileFitting(const Parameters& p, std::optional<ToolFormat> tools,
                            const std::optional<Thinking>& thinking, Fitting fitting, WorkBudget budget) {
  Rules rules;
  CompiledForm form;
  Expr answer = FormOf(p, rules, budget);
  const bool has_channels = thinking && thinking->form.channels;
  std::optional<Expr> root;
  if (tools && CallsAreMessages(*tools) && has_channels && thinking->start != ThinkingStart::kAnswer) {
    CallRules calls(p, *tools, fitting, rules, budget);
    form.not_enforced = calls.TakeNotes();
    root = WithThinking(*thinking, MessagesWithCalls(p, calls, std::move(answer)));
  } else {
    root = std::move(answer);
    if (tools) {
      CallRules calls(p, *tools, fitting, rules, budget);
      form.not_enforced = calls.TakeNotes();
      root = WithCalls(p, calls, std::move(*root));
    }
    if (root && thinking) root = WithThinking(*thinking, {.answer = std::move(*root)});
  }
  if (!root) return form;
  rules.root = rules.Add(std::move(*root));
  form.automaton = std::make_shared<const Automaton>(Compile(rules, budget));
  return form;
}

// Parameters of functions that are too large, all together, are no reason to refuse the request, unless one
// is strict.
CompiledForm CompileForm(const Parameters& p, std::optional<ToolFormat> tools,
                         const std::optional<Thinking>& thinking, const std::function<WorkBudget()>& budget) {
  const std::string field = p.form == AnswerForm::kFree ? "tools" : p.form_field;
  for (const Fitting fitting : {Fitting::kFull, Fitting::kSmall}) {
    if (!tools) break;
    try {
      return CompileFitting(p, tools, thinking, fitting, budget());
    } catch (const HttpError&) {
      throw;
    } catch (const Error&) {  // with less it may fit
    }
  }
  try {
    return CompileFitting(p, tools, thinking, Fitting::kObjects, budget());
  } catch (const HttpError&) {
    throw;
  } catch (const Error& error) {
    throw BadField(field, error.what());
  }
}

std::string KeyOf(const Parameters& p, std::optional<ToolFormat> tools,
                  const std::optional<Thinking>& thinking) {
  std::string key = fmt::format("{}\n{}\n{}\n", static_cast<int>(p.form), p.form_text, p.form_value->dump());
  if (tools) {
    key += fmt::format("{} {} {} {}\n{}", static_cast<int>(*tools), static_cast<int>(p.tool_choice),
                       p.tool_name, p.parallel_tool_calls, p.tools->dump());
  }
  if (thinking)
    key += fmt::format("\n{} {} {} {}", static_cast<int>(thinking->start), thinking->form.has_switch,
                       thinking->form.open, thinking->form.force);
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

CompiledForm AnswerForms::Compiled(const Parameters& p, std::optional<ToolFormat> tools,
                                   const std::atomic<bool>* cancelled,
                                   const std::optional<Thinking>& thinking) {
  if (p.form == AnswerForm::kFree && !tools) return {};
  std::string key = KeyOf(p, tools, thinking);
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return entry.owner == p.owner && entry.key == key; });
    if (found != entries_.end()) {
      std::rotate(found, found + 1, entries_.end());
      return entries_.back().form;
    }
  }
  CompiledForm form;
  {
    LargeTurn turn(large_, cancelled);
    if (key.size() > kLargeKey) turn.Take();
    form = CompileForm(p, tools, thinking, [&] { return WorkBudget(cancelled, [&] { turn.Take(); }); });
  }
  const std::lock_guard lock(mutex_);
  entries_.push_back({p.owner, std::move(key), form});
  MakeRoom();
  return form;
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
  if (const Automaton* a = entry.form.automaton.get()) {
    size += a->states.size() * sizeof(Automaton::State) + a->bytes.size() * sizeof(Automaton::Bytes) +
            a->calls.size() * sizeof(Automaton::Call);
  }
  return size;
}

}  // namespace coppice
