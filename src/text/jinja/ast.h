// A parsed template. Chains (a + b + c, a.b[c](d)|e, if ... elif ...) are flat lists, so only nesting takes
// native stack, and the parser limits that.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.h"

namespace coppice::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
struct Statement;
using Body = std::vector<Statement>;

struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

// What may follow a value: .name, [subscript], [start:stop:step], (arguments), |name(arguments), is [not]
// name arguments.
struct Suffix {
  enum class Kind { kAttribute, kSubscript, kSlice, kCall, kFilter, kTest };
  Kind kind = Kind::kAttribute;
  int line = 1;
  std::string name;
  bool negated = false;
  Arguments arguments;  // a slice has three positional arguments, null if omitted
};

struct Literal {
  Value value;
};
struct NameUse {
  std::string name;
};
struct ListDisplay {
  ListKind kind;
  std::vector<ExpressionPtr> items;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOperator { kNot, kNegate, kPlus };
struct Unary {
  UnaryOperator operation;
  ExpressionPtr operand;
};
// first op value op value ..., with operators of one precedence, evaluated from the left.
enum class Operator { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kConcat };
struct Arithmetic {
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};
enum class Comparison { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
struct CompareChain {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct Logic {
  bool is_and;
  std::vector<ExpressionPtr> operands;
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;  // a null `otherwise` is undefined
};
struct Postfix {
  ExpressionPtr base;  // null for the input of a filter block or a set block
  std::vector<Suffix> suffixes;
};

struct Expression {
  int line = 1;
  std::variant<Literal, NameUse, ListDisplay, DictDisplay, Unary, Arithmetic, CompareChain, Logic,
               Conditional, Postfix>
      node;
};

// The target of a set or a for: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;  // empty: a plain name
  std::vector<Target> parts;
};

// A macro, or the body of a call block.
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Body body;
};

struct TextStatement {
  std::string text;
};
struct Output {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr filter;  // may be null
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filters;  // may be null
  Body body;
};
struct FilterBlock {
  ExpressionPtr filters;
  Body body;
};
struct MacroDefinition {
  std::unique_ptr<Macro> macro;
};
struct CallBlock {
  ExpressionPtr call;
  std::unique_ptr<Macro> caller;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;  // none: only a scope (generation)
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 1;
  std::variant<TextStatement, Output, If, For, Set, SetBlock, FilterBlock, MacroDefinition, CallBlock, With,
               Break, Continue>
      node;
};

}  // namespace coppice::jinja
