#include "text/jinja/parser.h"

#include <algorithm>

namespace coppice::jinja {

Parser::Parser(const std::string& source) : lexer_(source) {}

Body Parser::ParseTemplate() {
  Advance();
  return ParseBody({});
}

void Parser::Advance() {
  if (has_next_) {
    current_ = std::move(next_);
    has_next_ = false;
  } else {
    line_ = lexer_.line();
    current_ = lexer_.Next();
  }
  line_ = current_.line;
}

bool Parser::NextIs(TokenType type, std::string_view text) {
  if (!has_next_) {
    next_ = lexer_.Next();
    has_next_ = true;
  }
  return next_.type == type && next_.text == text;
}

bool Parser::AcceptOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  Advance();
  return true;
}

bool Parser::AcceptName(std::string_view text) {
  if (!IsName(text)) return false;
  Advance();
  return true;
}

std::string Parser::Found() const {
  switch (current_.type) {
    case TokenType::kEnd:
      return "the end of the template";
    case TokenType::kVariableEnd:
      return "the end of the print statement";
    case TokenType::kBlockEnd:
      return "the end of the tag";
    default:
      return "'" + current_.text.substr(0, 64) + "'";
  }
}

void Parser::ExpectOperator(std::string_view text) {
  if (!AcceptOperator(text)) throw Fault("expected '{}', found {}", text, Found());
}

std::string Parser::ExpectName() {
  if (!Is(TokenType::kName)) throw Fault("expected a name, found {}", Found());
  std::string name = current_.text;
  Advance();
  return name;
}

void Parser::EndBlock() {
  if (!Is(TokenType::kBlockEnd)) throw Fault("expected the end of the tag, found {}", Found());
  Advance();
}

// Parses statements up to a tag named in `ends`, whose name is then the current token; without `ends`, up to
// the end of the template.
Body Parser::ParseBody(std::initializer_list<std::string_view> ends) {
  const Nested nested(*this);
  Body body;
  while (true) {
    const int line = current_.line;
    if (Is(TokenType::kText)) {
      body.push_back({line, TextStatement{std::move(current_.text)}});
      Advance();
    } else if (Is(TokenType::kVariableBegin)) {
      Advance();
      ExpressionPtr value = ParseTuple();
      if (!Is(TokenType::kVariableEnd))
        throw Fault("expected the end of the print statement, found {}", Found());
      body.push_back({line, Output{std::move(value)}});
      Advance();
    } else if (Is(TokenType::kBlockBegin)) {
      Advance();
      if (Is(TokenType::kName) && std::find(ends.begin(), ends.end(), current_.text) != ends.end())
        return body;
      const std::string tag = ExpectName();
      body.push_back(ParseStatement(tag));
      body.back().line = line;
    } else if (ends.size() == 0) {
      return body;
    } else {
      throw Fault("the template ends where '{}' is missing", *(ends.end() - 1));
    }
  }
}

Statement Parser::ParseStatement(const std::string& tag) {
  Statement statement;
  if (tag == "if") {
    statement.node = ParseIf();
  } else if (tag == "for") {
    statement.node = ParseFor();
  } else if (tag == "set") {
    ParseSet(statement);
  } else if (tag == "macro") {
    statement.node = ParseMacro();
  } else if (tag == "call") {
    statement.node = ParseCallBlock();
  } else if (tag == "with") {
    statement.node = ParseWith();
  } else if (tag == "filter") {
    statement.node = ParseFilterBlock();
  } else if (tag ==
             "generation") {  // transformers marks the assistant's tokens with it; only its body matters here
    EndBlock();
    With scope{{}, ParseBody({"endgeneration"})};
    Advance();
    EndBlock();
    statement.node = std::move(scope);
  } else if (tag == "break" || tag == "continue") {
    if (loops_ == 0) throw Fault("'{}' outside a loop", tag);
    EndBlock();
    if (tag == "break") {
      statement.node = Break{};
    } else {
      statement.node = Continue{};
    }
  } else {
    throw Fault("unknown tag '{}'", tag);
  }
  return statement;
}

If Parser::ParseIf() {
  If node;
  do {
    ExpressionPtr condition = ParseTuple(false);
    EndBlock();
    Body body = ParseBody({"elif", "else", "endif"});
    node.branches.emplace_back(std::move(condition), std::move(body));
  } while (AcceptName("elif"));
  if (AcceptName("else")) {
    EndBlock();
    node.otherwise = ParseBody({"endif"});
  }
  Advance();
  EndBlock();
  return node;
}

For Parser::ParseFor() {
  For node;
  node.target = ParseTarget(false);
  if (!AcceptName("in")) throw Fault("expected 'in', found {}", Found());
  node.iterable = ParseTuple(false);
  if (AcceptName("if")) node.filter = ParseExpression();
  if (IsName("recursive")) throw Fault("recursive loops are not supported");
  EndBlock();
  ++loops_;
  node.body = ParseBody({"else", "endfor"});
  --loops_;
  if (AcceptName("else")) {
    EndBlock();
    node.otherwise = ParseBody({"endfor"});
  }
  Advance();
  EndBlock();
  return node;
}

void Parser::ParseSet(Statement& statement) {
  Target target = ParseTarget(true);
  if (AcceptOperator("=")) {
    statement.node = Set{std::move(target), ParseTuple()};
    return EndBlock();
  }
  SetBlock block{std::move(target), nullptr, {}};
  if (IsOperator("|")) block.filters = ParseFilters(nullptr, true);
  EndBlock();
  block.body = ParseBody({"endset"});
  Advance();
  EndBlock();
  statement.node = std::move(block);
}

void Parser::ParseParameters(Macro& macro) {
  ExpectOperator("(");
  while (!IsOperator(")")) {
    if (!macro.parameters.empty()) ExpectOperator(",");
    if (IsOperator(")")) break;
    macro.parameters.push_back(ExpectName());
    if (AcceptOperator("=")) {
      macro.defaults.push_back(ParseExpression());
    } else if (!macro.defaults.empty()) {
      throw Fault("parameter '{}' without a default follows one with a default", macro.parameters.back());
    }
  }
  Advance();
}

void Parser::ParseMacroBody(Macro& macro, std::string_view end) {
  EndBlock();
  Macro* const outer = std::exchange(macro_, &macro);
  const int outer_loops = std::exchange(loops_, 0);
  macro.body = ParseBody({end});
  macro_ = outer;
  loops_ = outer_loops;
  Advance();
  EndBlock();
}

MacroDefinition Parser::ParseMacro() {
  MacroDefinition node{std::make_unique<Macro>()};
  node.macro->name = ExpectName();
  ParseParameters(*node.macro);
  ParseMacroBody(*node.macro, "endmacro");
  return node;
}

CallBlock Parser::ParseCallBlock() {
  CallBlock node{nullptr, std::make_unique<Macro>()};
  node.caller->name = "caller";
  if (IsOperator("(")) ParseParameters(*node.caller);
  node.call = ParseExpression();
  const auto* postfix = std::get_if<Postfix>(&node.call->node);
  if (postfix == nullptr || postfix->suffixes.back().kind != Suffix::Kind::kCall)
    throw Fault("expected a call");
  ParseMacroBody(*node.caller, "endcall");
  return node;
}

With Parser::ParseWith() {
  With node;
  while (!Is(TokenType::kBlockEnd)) {
    if (!node.assignments.empty()) ExpectOperator(",");
    Target target = ParseOneTarget(false);
    ExpectOperator("=");
    node.assignments.emplace_back(std::move(target), ParseExpression());
  }
  EndBlock();
  node.body = ParseBody({"endwith"});
  Advance();
  EndBlock();
  return node;
}

FilterBlock Parser::ParseFilterBlock() {
  FilterBlock node;
  auto filters = std::make_unique<Expression>();
  Postfix chain;
  chain.suffixes.push_back(ParseFilter());
  filters->line = line_;
  filters->node = std::move(chain);
  node.filters = ParseFilters(std::move(filters), true);
  EndBlock();
  node.body = ParseBody({"endfilter"});
  Advance();
  EndBlock();
  return node;
}

Target Parser::ParseOneTarget(bool allow_attribute) {
  const Nested nested(*this);
  Target target;
  if (AcceptOperator("(")) {
    target = ParseTarget(allow_attribute);
    ExpectOperator(")");
    return target;
  }
  target.name = ExpectName();
  static constexpr std::string_view kReserved[] = {"true",  "false", "none", "True",
                                                   "False", "None",  "in",   "not"};
  if (std::find(std::begin(kReserved), std::end(kReserved), target.name) != std::end(kReserved)) {
    throw Fault("can't assign to '{}'", target.name);
  }
  if (allow_attribute && AcceptOperator(".")) target.attribute = ExpectName();
  return target;
}

Target Parser::ParseTarget(bool allow_attribute) {
  Target first = ParseOneTarget(allow_attribute);
  if (!IsOperator(",")) return first;
  Target tuple;
  tuple.parts.push_back(std::move(first));
  while (AcceptOperator(",")) {
    if (IsName("in") || IsOperator("=") || IsOperator(")")) break;
    tuple.parts.push_back(ParseOneTarget(allow_attribute));
  }
  return tuple;
}

}  // namespace coppice::jinja
