// What the parsers of calls hand to each other and to replies.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coppice {

struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object
};

// What an answer consists of: pieces of text, and calls. A call is one kCall, kArguments without or with
// others behind it, and one kCallEnd or kCallCut; nothing else comes between these.
struct AnswerPart {
  enum class Kind {
    kText,
    kCall,       // the function's name
    kArguments,  // the next piece of the arguments
    kCallEnd,    // the arguments are whole
    kCallCut,    // the answer ended within the arguments
  };
  Kind kind = Kind::kText;
  std::string text = {};
};

// Adds a piece of text or of arguments.
inline void AddPiece(AnswerPart::Kind kind, std::string_view text, std::vector<AnswerPart>& parts) {
  if (text.empty()) return;
  if (parts.empty() || parts.back().kind != kind) parts.push_back({.kind = kind});
  parts.back().text += text;
}

inline void AddCall(ToolCall call, std::vector<AnswerPart>& parts) {
  parts.push_back({AnswerPart::Kind::kCall, std::move(call.name)});
  parts.push_back({AnswerPart::Kind::kArguments, std::move(call.arguments)});
  parts.push_back({AnswerPart::Kind::kCallEnd});
}

// The functions that may be called: `tools` as CheckTools() takes them, or nullptr where only the names are
// known.
struct CallableFunctions {
  std::vector<std::string> names;
  const nlohmann::ordered_json* tools = nullptr;

  bool Has(std::string_view name) const;
  // Whether this begins a name, or is one.
  bool HasBeginning(std::string_view begin) const;
  // {"name", "parameters"}, or null.
  nlohmann::ordered_json Find(std::string_view name) const;
};

}  // namespace coppice
