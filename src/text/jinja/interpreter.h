// Runs a parsed template with a context.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "text/jinja/ast.h"
#include "text/jinja/operators.h"

namespace coppice::jinja {

// The names of one block. Names that are not found are looked up in the enclosing block.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}
  const Value* Find(const std::string& name) const;
  void Set(const std::string& name, Value value) { values_[name] = std::move(value); }

 private:
  std::shared_ptr<Scope> parent_;
  std::unordered_map<std::string, Value> values_;
};

class Interpreter {
 public:
  // `cancelled` may be null; once it is set, Run() throws Cancelled.
  explicit Interpreter(const std::atomic<bool>* cancelled);
  // Throws Fault; line() is then the line of the template where it occurred.
  std::string Run(const Body& body, const nlohmann::ordered_json& context);
  int line() const { return line_; }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class NewScope;
  class Level;    // one more frame on the native stack
  class Capture;  // redirects output into a string

  // Statements.
  Flow RunBody(const Body& body);
  Flow RunStatement(const Statement& statement);
  Flow RunIf(const If& node);
  Flow RunFor(const For& node);
  Value LoopItems(const For& node);
  void RunCallBlock(const CallBlock& node);
  void RunSetBlock(const SetBlock& node);
  Flow RunWith(const With& node);
  void Assign(const Target& target, const Value& value);
  void Emit(std::string_view text);
  std::string CaptureBody(const Body& body);
  Value Filtered(const Expression* filters, Value value);

  // Expressions.
  Value Evaluate(const Expression& expression);
  Value Node(const Literal& node) { return node.value; }
  Value Node(const NameUse& node);
  Value Node(const ListDisplay& node);
  Value Node(const DictDisplay& node);
  Value Node(const Unary& node);
  Value Node(const Arithmetic& node);
  Value Node(const CompareChain& node);
  Value Node(const Logic& node);
  Value Node(const Conditional& node);
  Value Node(const Postfix& node);
  Value ApplySuffix(const Value& value, const Suffix& suffix);
  CallArguments Evaluated(const Arguments& arguments);
  Value Call(const Value& callee, CallArguments arguments);
  Value CallFunction(const std::string& name, const CallArguments& arguments);
  Value CallMacro(const CallableObject& macro, CallArguments arguments);
  void BindParameters(const Macro& macro, CallArguments& arguments);
  Value MakeNamespace(const CallArguments& arguments);
  Value MakeDict(const CallArguments& arguments);
  Value MakeCallable(CallableObject::Kind kind, const std::string& name, const Macro* macro = nullptr);

  // Destroyed in reverse order: values must return their share of the budget before the budget is destroyed.
  Budget budget_;
  std::deque<NamespaceObject> namespaces_;
  std::shared_ptr<Scope> globals_;
  std::shared_ptr<Scope> scope_;
  Value filter_input_;
  ChargedText output_{budget_};
  ChargedText* sink_ = &output_;
  size_t pending_output_ = 0;  // bytes in all unfinished strings
  int line_ = 1;
  int level_ = 0;
  int calls_ = 0;
};

}  // namespace coppice::jinja
