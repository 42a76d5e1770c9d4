// Expressions and calls of the interpreter in jinja_interpreter.h.
#include <algorithm>
#include <ctime>

#include "text/jinja/interpreter.h"

namespace coppice::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in Jinja's sandbox

Value MakeRange(Budget& budget, const CallArguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty())
    throw Fault("range takes one to three integers");
  for (const Value& value : given) {
    if (value.IsUndefined()) throw Fault("{}", value.WhyUndefined());
    if (!value.IsIntegral()) throw Fault("range takes integers, not {}", value.TypeName());
  }
  const int64_t start = given.size() > 1 ? given[0].integer() : 0;
  const int64_t stop = given.size() > 1 ? given[1].integer() : given[0].integer();
  const int64_t step = given.size() > 2 ? given[2].integer() : 1;
  if (step == 0) throw Fault("the step of a range is zero");
  // Unsigned, so that the distance cannot overflow.
  const bool empty = step > 0 ? start >= stop : start <= stop;
  const auto from = static_cast<uint64_t>(step > 0 ? start : stop);
  const auto to = static_cast<uint64_t>(step > 0 ? stop : start);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (to - from - 1) / stride + 1;
  if (count > kMaxRange) throw Fault("a range of {} items is too big: at most {}", count, kMaxRange);
  std::vector<Value> items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    items.emplace_back(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step)));
  }
  return Value::List(budget, std::move(items));
}

// datetime.now().strftime(format), in local time.
Value FormatNow(Budget& budget, const CallArguments& arguments) {
  const Bound bound("strftime_now", arguments, {"format"});
  const std::string& format = bound.RequiredText(0);
  if (format.empty()) return Value::String(budget, "");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  char text[1024];
  if (localtime_r(&now, &local) == nullptr) throw Fault("strftime_now: there is no local time");
  const size_t bytes = std::strftime(text, sizeof(text), format.c_str(), &local);
  if (bytes == 0) throw Fault("strftime_now: the format gives nothing or more than {} bytes", sizeof(text));
  return Value::String(budget, std::string_view(text, bytes));
}

}  // namespace

Value Interpreter::Node(const NameUse& node) {
  const Value* found = scope_->Find(node.name);
  return found != nullptr ? *found
                          : Value::MakeUndefined(fmt::format("'{}' is undefined", node.name.substr(0, 64)));
}

Value Interpreter::Node(const ListDisplay& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) items.push_back(Evaluate(*item));
  return Value::List(budget_, std::move(items), node.kind);
}

Value Interpreter::Node(const DictDisplay& node) {
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(node.entries.size());
  for (const auto& [key, value] : node.entries) {
    Value key_value = Evaluate(*key);
    entries.emplace_back(std::move(key_value), Evaluate(*value));
  }
  return Value::Dict(budget_, std::move(entries));
}

Value Interpreter::Node(const Unary& node) {
  const Value operand = Evaluate(*node.operand);
  switch (node.operation) {
    case UnaryOperator::kNot:
      return Value(!operand.Truth());
    case UnaryOperator::kNegate:
      return Negate(operand);
    default:
      if (!operand.IsNumber()) throw Fault("bad operand for unary +: {}", operand.TypeName());
      return operand.IsBool() ? Value(operand.integer()) : operand;
  }
}

Value Interpreter::Node(const Arithmetic& node) {
  Value value = Evaluate(*node.first);
  for (const auto& [operation, operand] : node.rest) {
    const Value right = Evaluate(*operand);
    line_ = operand->line;
    value = Arithmetics(budget_, operation, value, right);
  }
  return value;
}

Value Interpreter::Node(const CompareChain& node) {
  Value left = Evaluate(*node.first);
  for (const auto& [operation, operand] : node.rest) {
    Value right = Evaluate(*operand);
    line_ = operand->line;
    if (!Compares(budget_, operation, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::Node(const Logic& node) {
  Value value;
  for (const ExpressionPtr& operand : node.operands) {
    value = Evaluate(*operand);
    if (value.Truth() != node.is_and) return value;
  }
  return value;
}

Value Interpreter::Node(const Conditional& node) {
  if (Evaluate(*node.condition).Truth()) return Evaluate(*node.then);
  if (node.otherwise) return Evaluate(*node.otherwise);
  return Value::MakeUndefined("the inline if has no else and its condition was false");
}

Value Interpreter::Node(const Postfix& node) {
  Value value = node.base ? Evaluate(*node.base) : std::exchange(filter_input_, Value());
  for (const Suffix& suffix : node.suffixes) value = ApplySuffix(value, suffix);
  return value;
}

Value Interpreter::ApplySuffix(const Value& value, const Suffix& suffix) {
  budget_.Work(Budget::kUnitsPerItem);
  line_ = suffix.line;
  if (suffix.kind == Suffix::Kind::kAttribute) return Attribute(budget_, value, suffix.name);
  if (suffix.kind == Suffix::Kind::kSlice) {
    Value parts[3];
    for (size_t i = 0; i < 3; ++i) {
      const ExpressionPtr& part = suffix.arguments.positional[i];
      parts[i] = part ? Evaluate(*part) : Value(None{});
    }
    line_ = suffix.line;
    return Slice(budget_, value, parts[0], parts[1], parts[2]);
  }
  CallArguments arguments = Evaluated(suffix.arguments);
  line_ = suffix.line;
  switch (suffix.kind) {
    case Suffix::Kind::kSubscript:
      return Subscript(budget_, value, arguments.positional[0]);
    case Suffix::Kind::kFilter:
      return ApplyFilter(budget_, suffix.name, value, arguments);
    case Suffix::Kind::kTest:
      return Value(ApplyTest(budget_, suffix.name, value, arguments) != suffix.negated);
    default:
      return Call(value, std::move(arguments));
  }
}

CallArguments Interpreter::Evaluated(const Arguments& arguments) {
  CallArguments values;
  for (const ExpressionPtr& argument : arguments.positional) values.positional.push_back(Evaluate(*argument));
  for (const auto& [name, argument] : arguments.named) values.named.emplace_back(name, Evaluate(*argument));
  return values;
}

Value Interpreter::Call(const Value& callee, CallArguments arguments) {
  budget_.Step();
  if (callee.IsUndefined()) throw Fault("{}", callee.WhyUndefined());
  if (callee.type() != Type::kCallable) throw Fault("{} is not callable", callee.TypeName());
  const Value keep = callee;  // a copy, because a macro may reassign its own name
  const CallableObject& callable = keep.callable();
  switch (callable.kind) {
    case CallableObject::Kind::kFunction:
      return CallFunction(callable.name, arguments);
    case CallableObject::Kind::kMethod:
      return CallMethod(budget_, callable.self, callable.name, arguments);
    default:
      return CallMacro(callable, std::move(arguments));
  }
}

Value Interpreter::CallFunction(const std::string& name, const CallArguments& arguments) {
  if (name == "range") return MakeRange(budget_, arguments);
  if (name == "namespace") return MakeNamespace(arguments);
  if (name == "dict") return MakeDict(arguments);
  if (name == "strftime_now") return FormatNow(budget_, arguments);
  const Bound bound("raise_exception", arguments, {"message"});
  throw Fault("{}", ToText(budget_, bound.Required(0)));
}

// The entries of an optional mapping or list of pairs, followed by the named arguments.
Value Interpreter::MakeDict(const CallArguments& arguments) {
  if (arguments.positional.size() > 1) throw Fault("dict takes at most one positional argument");
  std::vector<std::pair<Value, Value>> entries;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    const Value pairs =
        source.IsDict() ? CallMethod(budget_, source, "items", {}) : Elements(budget_, source);
    for (const Value& pair : pairs.items()) {
      const Value two = Elements(budget_, pair);
      if (two.items().size() != 2) throw Fault("dict takes pairs, not {} values", two.items().size());
      entries.emplace_back(two.items()[0], two.items()[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(Value::String(budget_, name), value);
  return Value::Dict(budget_, std::move(entries));
}

Value Interpreter::MakeNamespace(const CallArguments& arguments) {
  constexpr size_t kNamespaceBytes = 256;
  const Value content = MakeDict(arguments);
  budget_.Take(kNamespaceBytes);  // never returned: a namespace lives as long as the rendering
  NamespaceObject& space = namespaces_.emplace_back();
  for (const auto& [key, value] : content.dict().entries) {
    if (key.IsString()) space.attributes[key.text()] = value;
  }
  return Value(&space);
}

void Interpreter::BindParameters(const Macro& macro, CallArguments& arguments) {
  const size_t given = arguments.positional.size();
  const size_t count = macro.parameters.size();
  if (given > count && !macro.uses_varargs) {
    throw Fault("macro '{}' takes not more than {} argument(s)", macro.name, count);
  }
  std::vector<bool> used(arguments.named.size(), false);
  const size_t required = count - macro.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& argument) { return argument.first == name; });
    if (found != arguments.named.end()) {
      if (i < given) throw Fault("macro '{}' got the argument '{}' twice", macro.name, name);
      used[static_cast<size_t>(found - arguments.named.begin())] = true;
      scope_->Set(name, found->second);
    } else if (i < given) {
      scope_->Set(name, arguments.positional[i]);
    } else if (i >= required) {
      scope_->Set(name, Evaluate(*macro.defaults[i - required]));
    } else {
      scope_->Set(name,
                  Value::MakeUndefined(fmt::format("parameter '{}' was not provided", name.substr(0, 64))));
    }
  }
  std::vector<std::pair<Value, Value>> others;
  Value caller = Value::MakeUndefined("no caller defined");
  for (size_t i = 0; i < used.size(); ++i) {
    const auto& [name, value] = arguments.named[i];
    if (used[i]) continue;
    if (name == "caller" && macro.uses_caller) {
      caller = value;
    } else if (macro.uses_kwargs) {
      others.emplace_back(Value::String(budget_, name), value);
    } else {
      throw Fault("macro '{}' takes no keyword argument '{}'", macro.name, name.substr(0, 64));
    }
  }
  if (macro.uses_caller) scope_->Set("caller", caller);
  if (macro.uses_kwargs) scope_->Set("kwargs", Value::Dict(budget_, std::move(others)));
  if (macro.uses_varargs) {
    std::vector<Value> extra;
    for (size_t i = count; i < given; ++i) extra.push_back(arguments.positional[i]);
    scope_->Set("varargs", Value::List(budget_, std::move(extra), ListKind::kTuple));
  }
}

}  // namespace coppice::jinja
