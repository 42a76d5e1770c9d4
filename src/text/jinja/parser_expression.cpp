// The expressions of a template. Precedence from low to high: inline if; or; and; not; comparisons and in; +
// and -; ~; * / // %; **; unary minus; what follows a value (attribute, subscript, call); filters and tests.
#include <charconv>

#include "text/jinja/parser.h"

namespace coppice::jinja {
namespace {

struct OperatorName {
  std::string_view text;
  Operator operation;
};
constexpr int kLevels = 4;
constexpr OperatorName kArithmetic[kLevels][4] = {
    {{"+", Operator::kAdd}, {"-", Operator::kSub}, {}, {}},
    {{"~", Operator::kConcat}, {}, {}, {}},
    {{"*", Operator::kMul}, {"/", Operator::kDiv}, {"//", Operator::kFloorDiv}, {"%", Operator::kMod}},
    {{"**", Operator::kPow}, {}, {}, {}}};

struct ComparisonName {
  std::string_view text;
  Comparison operation;
};
constexpr ComparisonName kComparisons[] = {{"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
                                           {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
                                           {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual}};

}  // namespace

ExpressionPtr Parser::ParseExpression(bool with_conditional) {
  const Nested nested(*this);
  const int line = current_.line;
  ExpressionPtr value = ParseLogic(false);
  while (with_conditional && AcceptName("if")) {
    Conditional node{ParseLogic(false), std::move(value), nullptr};
    if (AcceptName("else")) node.otherwise = ParseExpression();
    value = Make(line, std::move(node));
    if (const Conditional& made = std::get<Conditional>(value->node);
        made.otherwise == nullptr && IsName("if")) {
      throw Fault("an inline if without else cannot be followed by another");
    }
  }
  return value;
}

bool Parser::AtTupleEnd() const {
  return Is(TokenType::kVariableEnd) || Is(TokenType::kBlockEnd) || IsOperator(")") || IsName("recursive");
}

// One expression, or several separated by commas as a tuple.
ExpressionPtr Parser::ParseTuple(bool with_conditional, bool in_parentheses) {
  const int line = current_.line;
  ListDisplay tuple{ListKind::kTuple, {}};
  bool comma = false;
  while (!AtTupleEnd()) {
    if (!tuple.items.empty()) {
      if (!AcceptOperator(",")) break;
      comma = true;
      if (AtTupleEnd()) break;
    }
    tuple.items.push_back(ParseExpression(with_conditional));
  }
  if (tuple.items.size() == 1 && !comma) return std::move(tuple.items[0]);
  if (tuple.items.empty() && !in_parentheses) throw Fault("expected an expression, found {}", Found());
  return Make(line, std::move(tuple));
}

ExpressionPtr Parser::ParseLogic(bool is_and) {
  const int line = current_.line;
  Logic logic{is_and, {}};
  do {
    logic.operands.push_back(is_and ? ParseNot() : ParseLogic(true));
  } while (AcceptName(is_and ? "and" : "or"));
  if (logic.operands.size() == 1) return std::move(logic.operands[0]);
  return Make(line, std::move(logic));
}

ExpressionPtr Parser::ParseNot() {
  const int line = current_.line;
  if (!AcceptName("not")) return ParseComparison();
  const Nested nested(*this);
  return Make(line, Unary{UnaryOperator::kNot, ParseNot()});
}

ExpressionPtr Parser::ParseComparison() {
  const int line = current_.line;
  CompareChain chain{ParseArithmetic(0), {}};
  while (true) {
    const ComparisonName* found = nullptr;
    for (const ComparisonName& name : kComparisons) {
      if (IsOperator(name.text)) found = &name;
    }
    Comparison operation = Comparison::kIn;
    if (found != nullptr) {
      operation = found->operation;
    } else if (IsName("not") && NextIs(TokenType::kName, "in")) {
      operation = Comparison::kNotIn;
      Advance();
    } else if (!IsName("in")) {
      break;
    }
    Advance();
    chain.rest.emplace_back(operation, ParseArithmetic(0));
  }
  if (chain.rest.empty()) return std::move(chain.first);
  return Make(line, std::move(chain));
}

ExpressionPtr Parser::ParseArithmetic(int level) {
  if (level == kLevels) return ParseUnary();
  const int line = current_.line;
  Arithmetic chain{ParseArithmetic(level + 1), {}};
  while (Is(TokenType::kOperator)) {
    const OperatorName* found = nullptr;
    for (const OperatorName& name : kArithmetic[level]) {
      if (!name.text.empty() && IsOperator(name.text)) found = &name;
    }
    if (found == nullptr) break;
    Advance();
    chain.rest.emplace_back(found->operation, ParseArithmetic(level + 1));
  }
  if (chain.rest.empty()) return std::move(chain.first);
  return Make(line, std::move(chain));
}

ExpressionPtr Parser::ParseUnary(bool with_filters) {
  const int line = current_.line;
  ExpressionPtr value;
  if (IsOperator("-") || IsOperator("+")) {
    const Nested nested(*this);
    const UnaryOperator operation = IsOperator("-") ? UnaryOperator::kNegate : UnaryOperator::kPlus;
    Advance();
    value = Make(line, Unary{operation, ParseUnary(false)});
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(std::move(value));
  return with_filters ? ParseFilters(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::ParsePrimary() {
  const int line = current_.line;
  if (Is(TokenType::kName)) {
    const std::string name = ExpectName();
    if (name == "true" || name == "True") return Make(line, Literal{Value(true)});
    if (name == "false" || name == "False") return Make(line, Literal{Value(false)});
    if (name == "none" || name == "None") return Make(line, Literal{None{}});
    if (macro_ != nullptr) {
      macro_->uses_varargs |= name == "varargs";
      macro_->uses_kwargs |= name == "kwargs";
      macro_->uses_caller |= name == "caller";
    }
    return Make(line, NameUse{name});
  }
  if (Is(TokenType::kString)) {
    std::string text;
    // Adjacent strings are joined, as in Python.
    for (; Is(TokenType::kString); Advance()) text += current_.text;
    return Make(line, Literal{Value::String(nullptr, std::move(text))});
  }
  if (Is(TokenType::kInteger) || Is(TokenType::kFloat)) return ParseNumber();
  if (AcceptOperator("(")) {
    ExpressionPtr value = ParseTuple(true, true);
    ExpectOperator(")");
    return value;
  }
  if (AcceptOperator("[")) return ParseList();
  if (AcceptOperator("{")) return ParseDict();
  throw Fault("expected an expression, found {}", Found());
}

ExpressionPtr Parser::ParseNumber() {
  const int line = current_.line;
  const std::string& text = current_.text;
  Value value;
  if (Is(TokenType::kFloat)) {
    double number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    value = Value(number);
  } else {
    const char prefix = text.size() > 2 ? static_cast<char>(text[1] | 0x20) : '0';
    const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + (base == 10 ? 0 : 2), end, number, base);
    if (error != std::errc{} || stop != end) throw Fault("'{}' is no integer of 64 bits", text.substr(0, 64));
    value = Value(number);
  }
  Advance();
  return Make(line, Literal{std::move(value)});
}

ExpressionPtr Parser::ParseList() {
  const int line = current_.line;
  ListDisplay list{ListKind::kList, {}};
  while (!IsOperator("]")) {
    if (!list.items.empty()) ExpectOperator(",");
    if (IsOperator("]")) break;
    list.items.push_back(ParseExpression());
  }
  Advance();
  return Make(line, std::move(list));
}

ExpressionPtr Parser::ParseDict() {
  const int line = current_.line;
  DictDisplay dict;
  while (!IsOperator("}")) {
    if (!dict.entries.empty()) ExpectOperator(",");
    if (IsOperator("}")) break;
    ExpressionPtr key = ParseExpression();
    ExpectOperator(":");
    dict.entries.emplace_back(std::move(key), ParseExpression());
  }
  Advance();
  return Make(line, std::move(dict));
}

ExpressionPtr Parser::ParsePostfix(ExpressionPtr base) {
  const int line = base->line;
  Postfix chain;
  while (true) {
    Suffix suffix;
    suffix.line = current_.line;
    if (AcceptOperator(".")) {
      if (Is(TokenType::kInteger)) {  // x.0 is x[0]
        suffix.kind = Suffix::Kind::kSubscript;
        suffix.arguments.positional.push_back(ParseNumber());
      } else {
        suffix.name = ExpectName();
      }
    } else if (IsOperator("[")) {
      suffix = ParseSubscript();
    } else if (IsOperator("(")) {
      suffix.kind = Suffix::Kind::kCall;
      suffix.arguments = ParseArguments();
    } else {
      break;
    }
    chain.suffixes.push_back(std::move(suffix));
  }
  if (chain.suffixes.empty()) return base;
  chain.base = std::move(base);
  return Make(line, std::move(chain));
}

Suffix Parser::ParseSubscript() {
  Suffix suffix;
  suffix.line = current_.line;
  suffix.kind = Suffix::Kind::kSubscript;
  Advance();
  std::vector<ExpressionPtr>& parts = suffix.arguments.positional;
  parts.emplace_back();
  if (!IsOperator(":")) parts[0] = ParseExpression();
  while (AcceptOperator(":")) {
    suffix.kind = Suffix::Kind::kSlice;
    parts.emplace_back();
    if (!IsOperator(":") && !IsOperator("]")) parts.back() = ParseExpression();
  }
  if (parts.size() > 3) throw Fault("a slice has at most three parts");
  ExpectOperator("]");
  if (suffix.kind == Suffix::Kind::kSlice) parts.resize(3);
  return suffix;
}

// Filters and tests that follow a value, and calls of their results. `base` is null for a chain without a
// value.
ExpressionPtr Parser::ParseFilters(ExpressionPtr base, bool filters_only) {
  const int line = current_.line;
  Postfix chain;
  while (true) {
    if (AcceptOperator("|")) {
      chain.suffixes.push_back(ParseFilter());
    } else if (!filters_only && IsName("is")) {
      Advance();
      chain.suffixes.push_back(ParseTest());
    } else if (!filters_only && IsOperator("(")) {
      Suffix call;
      call.line = current_.line;
      call.kind = Suffix::Kind::kCall;
      call.arguments = ParseArguments();
      chain.suffixes.push_back(std::move(call));
    } else {
      break;
    }
  }
  if (chain.suffixes.empty()) return base;
  chain.base = std::move(base);
  return Make(line, std::move(chain));
}

Suffix Parser::ParseFilter() {
  Suffix suffix;
  suffix.line = current_.line;
  suffix.kind = Suffix::Kind::kFilter;
  suffix.name = ExpectName();
  while (AcceptOperator(".")) suffix.name += "." + ExpectName();
  if (IsOperator("(")) suffix.arguments = ParseArguments();
  return suffix;
}

Suffix Parser::ParseTest() {
  Suffix suffix;
  suffix.line = current_.line;
  suffix.kind = Suffix::Kind::kTest;
  suffix.negated = AcceptName("not");
  suffix.name = ExpectName();
  while (AcceptOperator(".")) suffix.name += "." + ExpectName();
  const bool operand = Is(TokenType::kName) || Is(TokenType::kString) || Is(TokenType::kInteger) ||
                       Is(TokenType::kFloat) || IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    suffix.arguments = ParseArguments();
  } else if (operand && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) throw Fault("tests cannot be chained with is");
    const Nested nested(*this);
    suffix.arguments.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  return suffix;
}

Arguments Parser::ParseArguments() {
  Arguments arguments;
  ExpectOperator("(");
  bool first = true;
  while (!IsOperator(")")) {
    if (!first) ExpectOperator(",");
    first = false;
    if (IsOperator(")")) break;
    if (IsOperator("*") || IsOperator("**")) throw Fault("'*' in a call is not supported");
    if (Is(TokenType::kName) && NextIs(TokenType::kOperator, "=")) {
      std::string name = ExpectName();
      Advance();
      arguments.named.emplace_back(std::move(name), ParseExpression());
    } else {
      if (!arguments.named.empty()) throw Fault("a positional argument follows a named one");
      arguments.positional.push_back(ParseExpression());
    }
  }
  Advance();
  return arguments;
}

}  // namespace coppice::jinja
