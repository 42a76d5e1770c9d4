#include "policies/spec.h"

#include <algorithm>
#include <utility>

namespace coppice {

namespace {

// Splits at `separator` outside quotes. Returns false for a quote that is not closed.
bool SplitUnquoted(std::string_view text, char separator, std::vector<std::string_view>* parts) {
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (text[i] == separator && !quoted) {
      parts->push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  parts->push_back(text.substr(std::min(begin, text.size())));
  return !quoted;
}

// Returns false for quotes that do not enclose the whole value.
bool Unquote(std::string_view value, std::string* plain) {
  if (value.find('"') == std::string_view::npos) {
    *plain = value;
    return true;
  }
  if (value.size() < 3 || value.front() != '"' || value.back() != '"') return false;
  value = value.substr(1, value.size() - 2);
  plain->clear();
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i] == '"') return false;
    if (value[i] == '\\' && ++i == value.size()) return false;
    *plain += value[i];
  }
  return true;
}

}  // namespace

std::vector<MethodSpec> ParseSpec(std::string_view text) {
  std::vector<MethodSpec> methods;
  if (text == "none") return methods;
  // Messages quote the spec, and a message is one line.
  const auto is_control = [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; };
  if (const auto found = std::ranges::find_if(text, is_control); found != text.end())
    throw PruneError("byte {} of the spec is a control character", found - text.begin() + 1);
  std::vector<std::string_view> parts;
  if (!SplitUnquoted(text, '+', &parts)) throw PruneError("'{}': a quote is not closed", text);
  for (const std::string_view part : parts) {
    const size_t colon = part.find(':');
    MethodSpec method{std::string(part.substr(0, colon)), {}};
    if (method.name.empty()) throw PruneError("'{}': a method's name is missing", text);
    for (const MethodSpec& earlier : methods) {
      if (earlier.name == method.name) throw PruneError("'{}': '{}' stands twice", text, method.name);
    }
    if (colon != std::string_view::npos) {
      std::vector<std::string_view> pairs;
      SplitUnquoted(part.substr(colon + 1), ',', &pairs);
      for (const std::string_view pair : pairs) {
        const size_t equals = pair.find('=');
        if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size()) {
          throw PruneError("'{}': '{}' is not key=value", text, pair);
        }
        std::string value;
        if (!Unquote(pair.substr(equals + 1), &value)) {
          throw PruneError("'{}': '{}': quotes must stand around the whole value", text, pair);
        }
        const auto [at, added] = method.values.emplace(std::string(pair.substr(0, equals)), std::move(value));
        if (!added) throw PruneError("'{}': '{}' is set twice", text, at->first);
      }
    }
    methods.push_back(std::move(method));
  }
  return methods;
}

std::string QuotedValue(std::string_view value) {
  if (value.find_first_of("+,\"") == std::string_view::npos) return std::string(value);
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace coppice
