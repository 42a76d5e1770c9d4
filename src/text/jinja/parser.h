// A recursive-descent parser over the tokens of a template, following the grammar of Jinja 3.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace coppice::jinja {

class Parser {
 public:
  explicit Parser(const std::string& source);
  // Throws Fault for invalid templates and for nesting deeper than limits::kMaxTemplateDepth; line() is then
  // the line.
  Body ParseTemplate();
  int line() const { return line_; }

 private:
  class Nested;  // counts the open levels of statements and expressions

  // Statements (jinja_parser.cpp).
  Body ParseBody(std::initializer_list<std::string_view> ends);
  Statement ParseStatement(const std::string& tag);
  If ParseIf();
  For ParseFor();
  void ParseSet(Statement& statement);
  MacroDefinition ParseMacro();
  CallBlock ParseCallBlock();
  With ParseWith();
  FilterBlock ParseFilterBlock();
  void ParseParameters(Macro& macro);
  void ParseMacroBody(Macro& macro, std::string_view end);
  Target ParseTarget(bool allow_attribute);
  Target ParseOneTarget(bool allow_attribute);
  void EndBlock();

  // Expressions (jinja_parser_expression.cpp).
  ExpressionPtr ParseExpression(bool with_conditional = true);
  ExpressionPtr ParseTuple(bool with_conditional = true, bool in_parentheses = false);
  ExpressionPtr ParseLogic(bool is_and);
  ExpressionPtr ParseNot();
  ExpressionPtr ParseComparison();
  ExpressionPtr ParseArithmetic(int level);
  ExpressionPtr ParseUnary(bool with_filters = true);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseNumber();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr base);
  ExpressionPtr ParseFilters(ExpressionPtr base, bool filters_only = false);
  Suffix ParseFilter();
  Suffix ParseTest();
  Suffix ParseSubscript();
  Arguments ParseArguments();

  bool Is(TokenType type) const { return current_.type == type; }
  bool IsOperator(std::string_view text) const { return Is(TokenType::kOperator) && current_.text == text; }
  bool IsName(std::string_view text) const { return Is(TokenType::kName) && current_.text == text; }
  bool NextIs(TokenType type, std::string_view text);
  bool AcceptOperator(std::string_view text);
  bool AcceptName(std::string_view text);
  void ExpectOperator(std::string_view text);
  std::string ExpectName();
  std::string Found() const;
  void Advance();
  bool AtTupleEnd() const;
  template <typename Node>
  ExpressionPtr Make(int line, Node node) const;

  Lexer lexer_;
  Token current_;
  Token next_;
  bool has_next_ = false;
  int line_ = 1;
  int depth_ = 0;
  int loops_ = 0;           // open loops inside the innermost macro
  Macro* macro_ = nullptr;  // the innermost open macro
};

template <typename Node>
ExpressionPtr Parser::Make(int line, Node node) const {
  auto expression = std::make_unique<Expression>();
  expression->line = line;
  expression->node = std::move(node);
  return expression;
}

class Parser::Nested {
 public:
  explicit Nested(Parser& parser) : parser_(parser) {
    if (parser_.depth_ >= limits::kMaxTemplateDepth) {
      throw Fault("the template nests deeper than {}", limits::kMaxTemplateDepth);
    }
    ++parser_.depth_;
  }
  ~Nested() { --parser_.depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;

 private:
  Parser& parser_;
};

}  // namespace coppice::jinja
