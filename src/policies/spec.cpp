#include "policies/spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace coppice {

namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// As Split, but not inside quotes. False where a quote is not closed.
bool SplitUnquoted(std::string_view text, char separator, std::vector<std::string_view>* parts) {
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;  // whatever is escaped
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

// False where quotes do not stand around the whole value.
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

bool ParseDouble(std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(*value);
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

std::vector<MethodSpec> ParseSpec(std::string_view text) {
  std::vector<MethodSpec> methods;
  if (text == "none") return methods;
  std::vector<std::string_view> parts;
  if (!SplitUnquoted(text, '+', &parts)) throw Error("--prune {}: a quote is not closed", text);
  for (const std::string_view part : parts) {
    const size_t colon = part.find(':');
    MethodSpec method{std::string(part.substr(0, colon)), {}};
    if (method.name.empty()) throw Error("--prune {}: a method's name is missing", text);
    for (const MethodSpec& earlier : methods) {
      if (earlier.name == method.name) throw Error("--prune {}: '{}' stands twice", text, method.name);
    }
    if (colon != std::string_view::npos) {
      std::vector<std::string_view> pairs;
      SplitUnquoted(part.substr(colon + 1), ',', &pairs);
      for (const std::string_view pair : pairs) {
        const size_t equals = pair.find('=');
        if (equals == std::string_view::npos || equals == 0 || equals + 1 == pair.size()) {
          throw Error("--prune {}: '{}' is not key=value", text, pair);
        }
        std::string value;
        if (!Unquote(pair.substr(equals + 1), &value)) {
          throw Error("--prune {}: '{}': quotes must stand around the whole value", text, pair);
        }
        const auto [at, added] = method.values.emplace(std::string(pair.substr(0, equals)), std::move(value));
        if (!added) throw Error("--prune {}: '{}' is set twice", text, at->first);
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

const std::string* SpecReader::Find(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
  const auto it = spec_.values.find(std::string(key));
  return it == spec_.values.end() ? nullptr : &it->second;
}

double SpecReader::Number(std::string_view key, double fallback, double low, double high) {
  const std::string* text = Find(key);
  if (text == nullptr) return fallback;
  double value = 0;
  if (!ParseDouble(*text, &value) || value < low || value > high) {
    throw Error("--prune {}: {}={} is not a number from {} to {}", spec_.name, key, *text, low, high);
  }
  return value;
}

int64_t SpecReader::Integer(std::string_view key, int64_t fallback, int64_t low, int64_t high) {
  const std::string* text = Find(key);
  if (text == nullptr) return fallback;
  double value = 0;
  if (!ParseDouble(*text, &value) || value != std::floor(value) || value < static_cast<double>(low) ||
      value > static_cast<double>(high)) {
    throw Error("--prune {}: {}={} is not a whole number from {} to {}", spec_.name, key, *text, low, high);
  }
  return static_cast<int64_t>(value);
}

std::vector<double> SpecReader::Numbers(std::string_view key, const std::vector<double>& fallback, double low,
                                        double high) {
  const std::string* text = Find(key);
  if (text == nullptr) return fallback;
  std::vector<double> values;
  for (const std::string_view part : Split(*text, '/')) {
    double value = 0;
    if (!ParseDouble(part, &value) || value < low || value > high) {
      throw Error("--prune {}: {}={}: '{}' is not a number from {} to {}", spec_.name, key, *text, part, low,
                  high);
    }
    values.push_back(value);
  }
  return values;
}

std::vector<int> SpecReader::Integers(std::string_view key, const std::vector<int>& fallback, int low,
                                      int high) {
  const std::string* text = Find(key);
  if (text == nullptr) return fallback;
  std::vector<int> values;
  for (const std::string_view part : Split(*text, '/')) {
    int value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < low || value > high) {
      throw Error("--prune {}: {}={}: '{}' is not a whole number from {} to {}", spec_.name, key, *text, part,
                  low, high);
    }
    values.push_back(value);
  }
  return values;
}

std::string SpecReader::Choice(std::string_view key, const std::vector<std::string>& choices) {
  const std::string* text = Find(key);
  if (text == nullptr) return choices.front();
  if (std::find(choices.begin(), choices.end(), *text) != choices.end()) return *text;
  throw Error("--prune {}: {}={} is not there; it can be {}", spec_.name, key, *text, Joined(choices));
}

std::vector<std::string> SpecReader::Choices(std::string_view key, const std::vector<std::string>& fallback,
                                             const std::vector<std::string>& choices) {
  const std::string* text = Find(key);
  if (text == nullptr) return fallback;
  std::vector<std::string> values;
  for (const std::string_view part : Split(*text, '/')) {
    if (std::find(choices.begin(), choices.end(), part) == choices.end()) {
      throw Error("--prune {}: {}={}: '{}' is not there; it can be {}", spec_.name, key, *text, part,
                  Joined(choices));
    }
    values.emplace_back(part);
  }
  return values;
}

std::string SpecReader::File(std::string_view key, std::string_view what) {
  const std::string* text = Find(key);
  if (text == nullptr) throw Error("--prune {}: {}= is missing: {}", spec_.name, key, what);
  return *text;
}

void SpecReader::RefuseUnknownKeys() const {
  for (const auto& [key, value] : spec_.values) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      throw Error("--prune {}: unknown key '{}'; it has {}", spec_.name, key, Joined(known_));
    }
  }
}

}  // namespace coppice
