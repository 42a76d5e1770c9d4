#include "text/jinja/interpreter.h"

#include <algorithm>

namespace coppice::jinja {
namespace {

// Limit on the nesting of Evaluate and RunBody together. A template nests at most 64 levels; the rest allows
// for macros that call each other. A level takes less than 4 KiB, including sanitizers, so this is far below
// a thread's stack size.
constexpr int kMaxLevels = 8 * limits::kMaxTemplateDepth;

}  // namespace

const Value* Scope::Find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
    const auto found = scope->values_.find(name);
    if (found != scope->values_.end()) return &found->second;
  }
  return nullptr;
}

class Interpreter::NewScope {
 public:
  NewScope(Interpreter& owner, std::shared_ptr<Scope> parent) : owner_(owner), outer_(owner.scope_) {
    owner_.scope_ = std::make_shared<Scope>(std::move(parent));
  }
  explicit NewScope(Interpreter& owner) : NewScope(owner, owner.scope_) {}
  ~NewScope() { owner_.scope_ = std::move(outer_); }
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;

 private:
  Interpreter& owner_;
  std::shared_ptr<Scope> outer_;
};

class Interpreter::Level {
 public:
  explicit Level(Interpreter& owner) : owner_(owner) {
    if (owner_.level_ >= kMaxLevels)
      throw Fault("the template nests deeper than {} while it runs", kMaxLevels);
    ++owner_.level_;
  }
  ~Level() { --owner_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& owner_;
};

class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& owner)
      : owner_(owner), outer_(std::exchange(owner.sink_, &text_)), text_(owner.budget_) {}
  ~Capture() {
    owner_.sink_ = outer_;
    owner_.pending_output_ -= text_.size();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  std::string Take() {
    owner_.pending_output_ -= text_.size();
    return text_.Take();
  }

 private:
  Interpreter& owner_;
  ChargedText* outer_;
  ChargedText text_;
};

Interpreter::Interpreter(const std::atomic<bool>* cancelled)
    : budget_(cancelled), globals_(std::make_shared<Scope>(nullptr)), scope_(globals_) {
  for (const char* name : {"range", "namespace", "dict", "raise_exception", "strftime_now"}) {
    globals_->Set(name, MakeCallable(CallableObject::Kind::kFunction, name));
  }
}

std::string Interpreter::Run(const Body& body, const nlohmann::ordered_json& context) {
  for (const auto& [name, value] : context.items()) globals_->Set(name, Value::FromJson(budget_, value));
  RunBody(body);
  return output_.Take();
}

void Interpreter::Emit(std::string_view text) {
  budget_.Work(text.size());
  if (text.size() > static_cast<size_t>(limits::kMaxTemplateOutputBytes) - pending_output_) {
    throw LimitFault("the output is longer than {} bytes", limits::kMaxTemplateOutputBytes);
  }
  pending_output_ += text.size();
  sink_->Append(text);
}

std::string Interpreter::CaptureBody(const Body& body) {
  Capture capture(*this);
  RunBody(body);
  return capture.Take();
}

Interpreter::Flow Interpreter::RunBody(const Body& body) {
  const Level level(*this);
  for (const Statement& statement : body) {
    budget_.Step();
    const Flow flow = RunStatement(statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunStatement(const Statement& statement) {
  line_ = statement.line;
  if (const auto* text = std::get_if<TextStatement>(&statement.node)) {
    Emit(text->text);
  } else if (const auto* output = std::get_if<Output>(&statement.node)) {
    const Value value = Evaluate(*output->value);
    value.IsString() ? Emit(value.text()) : Emit(ToText(budget_, value));
  } else if (const auto* branch = std::get_if<If>(&statement.node)) {
    return RunIf(*branch);
  } else if (const auto* loop = std::get_if<For>(&statement.node)) {
    return RunFor(*loop);
  } else if (const auto* set = std::get_if<Set>(&statement.node)) {
    Assign(set->target, Evaluate(*set->value));
  } else if (const auto* block = std::get_if<SetBlock>(&statement.node)) {
    RunSetBlock(*block);
  } else if (const auto* filter = std::get_if<FilterBlock>(&statement.node)) {
    const NewScope inner(*this);
    const Value text_value = Value::String(&budget_, CaptureBody(filter->body));
    Emit(ToText(budget_, Filtered(filter->filters.get(), text_value)));
  } else if (const auto* macro = std::get_if<MacroDefinition>(&statement.node)) {
    scope_->Set(macro->macro->name,
                MakeCallable(CallableObject::Kind::kMacro, macro->macro->name, macro->macro.get()));
  } else if (const auto* call = std::get_if<CallBlock>(&statement.node)) {
    RunCallBlock(*call);
  } else if (const auto* with = std::get_if<With>(&statement.node)) {
    return RunWith(*with);
  } else {
    return std::holds_alternative<Break>(statement.node) ? Flow::kBreak : Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunIf(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    if (Evaluate(*condition).Truth()) return RunBody(body);
  }
  return RunBody(node.otherwise);
}

// The items that pass the loop's own condition.
Value Interpreter::LoopItems(const For& node) {
  const Value iterable = Evaluate(*node.iterable);
  Value items = Elements(budget_, iterable);
  if (!node.filter) return items;
  std::vector<Value> kept;
  for (const Value& item : items.items()) {
    budget_.Step();
    const NewScope inner(*this);
    Assign(node.target, item);
    if (Evaluate(*node.filter).Truth()) kept.push_back(item);
  }
  return Value::List(budget_, std::move(kept));
}

Interpreter::Flow Interpreter::RunFor(const For& node) {
  const Value items = LoopItems(node);
  const size_t count = items.items().size();
  if (count == 0) {
    const NewScope inner(*this);
    return RunBody(node.otherwise);
  }
  const auto state = std::make_shared<LoopObject>(items);
  const Value loop{std::shared_ptr<const LoopObject>(state)};
  for (size_t i = 0; i < count; ++i) {
    budget_.Step();
    state->index0 = i;
    const NewScope inner(*this);  // each iteration discards the names that it sets
    scope_->Set("loop", loop);
    Assign(node.target, items.items()[i]);
    if (RunBody(node.body) == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void Interpreter::RunSetBlock(const SetBlock& node) {
  Value value;
  {
    const NewScope inner(*this);
    value = Filtered(node.filters.get(), Value::String(&budget_, CaptureBody(node.body)));
  }
  Assign(node.target, value);
}

Interpreter::Flow Interpreter::RunWith(const With& node) {
  std::vector<Value> values;
  for (const auto& assignment : node.assignments) values.push_back(Evaluate(*assignment.second));
  const NewScope inner(*this);
  for (size_t i = 0; i < values.size(); ++i) Assign(node.assignments[i].first, values[i]);
  return RunBody(node.body);
}

void Interpreter::RunCallBlock(const CallBlock& node) {
  const auto& postfix = std::get<Postfix>(node.call->node);
  Value callee = Evaluate(*postfix.base);
  for (size_t i = 0; i + 1 < postfix.suffixes.size(); ++i) callee = ApplySuffix(callee, postfix.suffixes[i]);
  CallArguments arguments = Evaluated(postfix.suffixes.back().arguments);
  arguments.named.emplace_back("caller",
                               MakeCallable(CallableObject::Kind::kMacro, "caller", node.caller.get()));
  Emit(ToText(budget_, Call(callee, std::move(arguments))));
}

void Interpreter::Assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value* space = scope_->Find(target.name);
    if (space == nullptr || space->type() != Type::kNamespace) {
      throw Fault("cannot assign attribute on non-namespace object '{}'", target.name);
    }
    space->space().attributes[target.attribute] = value;
  } else if (target.parts.empty()) {
    scope_->Set(target.name, value);
  } else {
    const Value items = Elements(budget_, value);
    if (items.items().size() != target.parts.size()) {
      throw Fault("expected {} values to unpack, got {}", target.parts.size(), items.items().size());
    }
    for (size_t i = 0; i < target.parts.size(); ++i) Assign(target.parts[i], items.items()[i]);
  }
}

Value Interpreter::Filtered(const Expression* filters, Value value) {
  if (filters == nullptr) return value;
  filter_input_ = std::move(value);
  return Evaluate(*filters);
}

Value Interpreter::Evaluate(const Expression& expression) {
  const Level level(*this);
  budget_.Work(Budget::kUnitsPerItem);
  line_ = expression.line;
  return std::visit([this](const auto& node) { return Node(node); }, expression.node);
}

Value Interpreter::MakeCallable(CallableObject::Kind kind, const std::string& name, const Macro* macro) {
  auto callable = std::make_shared<CallableObject>(&budget_, kind, name);
  callable->macro = macro;
  callable->scope = scope_;
  return Value(std::shared_ptr<const CallableObject>(std::move(callable)));
}

Value Interpreter::CallMacro(const CallableObject& callable, CallArguments arguments) {
  if (calls_ >= limits::kMaxTemplateDepth)
    throw Fault("macros call each other deeper than {}", limits::kMaxTemplateDepth);
  std::shared_ptr<Scope> definition = callable.scope.lock();
  const NewScope inner(*this, definition ? std::move(definition) : globals_);
  ++calls_;
  BindParameters(*callable.macro, arguments);
  Value result = Value::String(&budget_, CaptureBody(callable.macro->body));
  --calls_;
  return result;
}

}  // namespace coppice::jinja
