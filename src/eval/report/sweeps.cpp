#include "eval/report/sweeps.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <map>
#include <set>

#include "policies/spec.h"

namespace coppice {

namespace {

using KeyValues = std::map<std::string, std::string>;

// A spec as names joined by + and keys; where several methods are joined, a key is "ftp.eta".
struct Parts {
  std::string methods;
  KeyValues keys;
};

Parts PartsOf(const std::string& spec) {
  Parts parts;
  try {
    const std::vector<MethodSpec> methods = ParseSpec(spec);
    for (const MethodSpec& method : methods) {
      parts.methods += (parts.methods.empty() ? "" : "+") + method.name;
      for (const auto& [key, value] : method.values)
        parts.keys[methods.size() > 1 ? method.name + "." + key : key] = value;
    }
  } catch (const std::exception&) {  // an edited record
    parts.methods = spec;
  }
  if (parts.methods.empty()) parts.methods = spec == "none" ? "dense" : spec;
  return parts;
}

std::string KeysText(const KeyValues& keys, const std::set<std::string>& wanted) {
  std::string text;
  for (const auto& [key, value] : keys) {
    if (wanted.count(key) > 0) text += (text.empty() ? "" : ",") + key + "=" + value;
  }
  return text;
}

std::vector<double> NumbersOf(const std::string& value) {
  std::vector<double> numbers;
  for (size_t at = 0; at <= value.size();) {
    const size_t end = std::min(value.find('/', at), value.size());
    double number = 0;
    const auto [stop, error] = std::from_chars(value.data() + at, value.data() + end, number);
    if (error != std::errc() || stop != value.data() + end) return {};
    numbers.push_back(number);
    at = end + 1;
  }
  return numbers;
}

// Shorter lists (fewer stages) first; words after numbers.
bool ValueLess(const std::string& a, const std::string& b) {
  const std::vector<double> x = NumbersOf(a), y = NumbersOf(b);
  if (x.empty() != y.empty()) return y.empty();
  if (x.empty()) return a < b;
  if (x.size() != y.size()) return x.size() < y.size();
  return x < y;
}

// The arms that differ only in `key`, grouped by the rest of their keys.
using SweepGroups = std::map<std::string, std::vector<std::pair<std::string, size_t>>>;

SweepGroups GroupsOf(const std::vector<Parts>& given, const std::vector<Parts>& whole,
                     const std::string& methods, const std::string& key) {
  SweepGroups groups;
  for (size_t a = 0; a < given.size(); ++a) {
    if (given[a].methods != methods) continue;
    KeyValues rest = given[a].keys;
    std::string value;
    if (const auto found = rest.find(key); found != rest.end()) {
      value = found->second;
      rest.erase(found);
    } else if (const auto fallback = whole[a].keys.find(key); fallback != whole[a].keys.end()) {
      value = fallback->second;
    } else {
      continue;
    }
    std::set<std::string> all;
    for (const auto& [name, ignored] : rest) all.insert(name);
    auto& group = groups[KeysText(rest, all)];
    const bool there =
        std::any_of(group.begin(), group.end(), [&](const auto& g) { return g.first == value; });
    if (!there) group.emplace_back(value, a);
  }
  return groups;
}

}  // namespace

std::vector<std::string> ShortNames(const std::vector<std::string>& specs) {
  std::vector<Parts> all;
  for (const std::string& spec : specs) all.push_back(PartsOf(spec));
  std::vector<std::string> names;
  for (const Parts& parts : all) {
    std::set<std::string> telling;
    for (const Parts& other : all) {
      if (other.methods != parts.methods) continue;
      for (const auto& [key, value] : parts.keys) {
        const auto found = other.keys.find(key);
        if (found == other.keys.end() || found->second != value) telling.insert(key);
      }
    }
    const std::string keys = KeysText(parts.keys, telling);
    names.push_back(keys.empty() ? parts.methods : parts.methods + " " + keys);
  }
  return names;
}

std::vector<Sweep> SweepsOf(const std::vector<std::string>& given, const std::vector<std::string>& whole) {
  std::vector<Parts> asked, known;
  for (const std::string& spec : given) asked.push_back(PartsOf(spec));
  for (const std::string& spec : whole) known.push_back(PartsOf(spec));
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<Sweep> sweeps;
  for (const Parts& parts : asked) {
    for (const auto& [key, ignored] : parts.keys) {
      if (!seen.emplace(parts.methods, key).second) continue;
      for (auto& [rest, points] : GroupsOf(asked, known, parts.methods, key)) {
        if (points.size() < 2) continue;
        std::sort(points.begin(), points.end(),
                  [](const auto& a, const auto& b) { return ValueLess(a.first, b.first); });
        Sweep sweep{parts.methods + (rest.empty() ? "" : ":" + rest), key, {}, {}};
        for (const auto& [value, arm] : points) {
          sweep.values.push_back(value);
          sweep.arms.push_back(arm);
        }
        sweeps.push_back(std::move(sweep));
      }
    }
  }
  return sweeps;
}

}  // namespace coppice
