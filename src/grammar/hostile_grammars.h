// Grammars and patterns that are short and would cost much if nothing bounded it, for tests.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace coppice {

inline std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Rules whose names are `prefix` and a number, each standing for `body` with {} as the next one; the last
// stands for `last`.
inline std::string Chain(const std::string& prefix, int rules, const std::string& body,
                         const std::string& last) {
  std::string text;
  for (int i = 0; i < rules; ++i) {
    std::string line = body;
    const std::string next = fmt::format("{}{}", prefix, i + 1);
    for (size_t at = line.find("{}"); at != std::string::npos; at = line.find("{}"))
      line.replace(at, 2, next);
    text += fmt::format("{}{} ::= {}\n", prefix, i, line);
  }
  return text + fmt::format("{}{} ::= {}\n", prefix, rules, last);
}

inline std::vector<std::string> HostileGrammars() {
  return {
      // Repetitions of nothing.
      R"(root ::= (""{100000}){100000} "a")",
      "root ::= \"\"" + Repeated("{100000}", 41) + " \"a\"",
      R"(root ::= (""{100000} ""{100000} ""{100000}){100000} "a")",
      R"(root ::= ((""|""){100000}){100000} "a")",
      R"(root ::= ((""?){100000}){100000} "a")",
      R"(root ::= ((""*){0,100000}){0,100000} "a")",
      R"(root ::= ((""{0,100000}){0,100000}){0,100000} "a")",
      R"(root ::= (() {100000} | () {100000}){100000} "a")",
      R"(root ::= (none{100000}){100000} "a")"
      "\nnone ::= \"\" | none2\nnone2 ::= \"\"{100000}\n",
      "root ::= \"a\"\n | many0{100000}\n" + Chain("many", 60, "{} {}", "\"\""),
      "root ::= e0 \"a\"\n" + Chain("e", 8000, "(\"\"|\"\"){64} {}", "\"\""),
      "root ::= e0 \"a\"\n" + Chain("e", 200, "{}{100000}", "(\"\"|\"\")"),
      // Rules that refer to each other, and stand for nothing.
      "root ::= e0 \"a\"\n" + Chain("e", 16000, "{} | e0", "\"\""),
      "root ::= e0 \"a\"\n" + Chain("e", 8000, "{} {} | \"x\" e0", "\"\""),
      "root ::= e0\n" + Chain("e", 8000, "\"x\" e0 | {}", "\"y\""),
      R"(root ::= root{1000} root{1000} | "")",
      R"(root ::= (root{0,60} "a"?){60} | "a")",
      "root ::= a{20000} \"b\"\na ::= \"\" | a a\n",
      // Exponential in states, edges or sets of nodes.
      R"(root ::= [ab]* "a" [ab]{40})",
      R"(root ::= (("a"?){1000}){100})",
      R"(root ::= ("a"{0,100000}){0,100000})",
      "root ::= " + Repeated("(", 60) + "\"a\"" + Repeated("*)?", 60) + "{100000}",
      "root ::= (" + Repeated("[a-z]|[b-y]|", 5000) + "\"x\"){40}",
      "root ::= [" + Repeated("\\U00010001-\\U0010FFFEab", 2000) + "]{60000}",
      "root ::= (" + Repeated("\"\"|", 300'000) + "\"a\")",
      "root ::= " + Repeated(".", 500'000),
      "root ::= " + Repeated("\"\"{9}", 200'000),
      "root ::= " + std::string(1'000'000, '('),
      "root ::= \"a\"" + Repeated("*", 1'000'000),
      "root ::= \"" + std::string(1'000'000, 'x') + "\"",
      "root ::= e0\n" + Chain("e", 60, "{} {}", "\"x\""),
      "root ::= (" + Repeated("\"ab\"|\"ac\"|", 50'000) + "\"a\"){3}",
  };
}

inline std::vector<std::string> HostilePatterns() {
  return {
      Repeated("|", 300'000),
      Repeated("|", 50'000),
      Repeated("^a$|b|^c|d$|", 20'000),
      Repeated("(|", 60) + Repeated(")", 60) + "{100000}",
      "(((){100000}){100000}){100000}a",
      "((|){100000}){100000}a",
      "((()?){0,100000}){0,100000}a",
      "((a?){1000}){1000}",
      "^(?:a{0,100000}){0,100000}$",
      Repeated(".", 300'000),
      Repeated("\\W", 300'000),
      "[" + Repeated("\\W\\S", 200'000) + "]",
      "^[" + Repeated("\\u1000-\\uFFF0", 50'000) + "]{60000}$",
      "(a|b)*a(a|b){40}",
      Repeated("(", 500'000),
      Repeated("a.*", 3'000),
      "^(" + Repeated("(?:a|b|ab)?", 3'000) + "){30}$",
      "^(" + Repeated("[^a]|", 30'000) + "b){2}$",
      "[\\u0000-\\u001f]{100000}",
  };
}

}  // namespace coppice
