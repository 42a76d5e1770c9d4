#include "apps/cli/api_keys.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace coppice::cli {

namespace {

int64_t LimitOf(const std::string& text, const std::string& source) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value <= 0)
    throw Error("{}: a key's limit is not a whole number from 1", source);
  return value;
}

// "KEY concurrent=2 per_minute=60 tokens_per_day=100000 all_metrics": the key stays in `line`.
ClientLimit TakeLimits(std::string& line, const std::string& source) {
  ClientLimit limit;
  std::istringstream words(std::exchange(line, {}));
  words >> line;
  for (std::string word; words >> word;) {
    if (word == "all_metrics") {
      limit.all_metrics = true;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    int64_t* target = name == "concurrent"       ? &limit.concurrent
                      : name == "per_minute"     ? &limit.per_minute
                      : name == "tokens_per_day" ? &limit.tokens_per_day
                                                 : nullptr;
    if (target == nullptr || equals == std::string::npos)
      throw Error(
          "{}: behind a key only concurrent=N, per_minute=N, tokens_per_day=N and all_metrics may follow",
          source);
    *target = LimitOf(word.substr(equals + 1), source);
  }
  return limit;
}

void AddKey(std::string key, const std::string& source, std::vector<std::string>& keys) {
  while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
  if (key.empty()) return;
  for (const char c : key) {
    if (c <= ' ' || c == 0x7f) throw Error("{}: a key holds a space or a control character", source);
  }
  keys.push_back(std::move(key));
}

}  // namespace

std::vector<std::string> ReadKeys(const std::string& list, const std::string& file,
                                  std::map<std::string, ClientLimit>& limits) {
  std::vector<std::string> keys;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    AddKey(list.substr(at, comma - at), "--api-key", keys);
    at = comma + 1;
  }
  if (!file.empty()) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      const ClientLimit limit = TakeLimits(line, file);
      AddKey(line, file, keys);
      if (!line.empty()) limits[line] = limit;
    }
    if (in.bad() || !in.eof()) throw Error("{}: cannot read", file);
  }
  if (keys.empty() && (!list.empty() || !file.empty())) throw Error("--api-key, --api-key-file: hold no key");
  return keys;
}

}  // namespace coppice::cli
