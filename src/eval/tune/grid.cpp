#include "eval/tune/grid.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <span>

#include "base/field_error.h"
#include "eval/tune/grid_table.h"
#include "policies/registry.h"

namespace coppice {

namespace {

int LayerAt(const ModelShape& shape, double depth) {
  return std::clamp(static_cast<int>(std::lround(depth * shape.layer_count())), 1,
                    std::max(shape.layer_count() - 1, 1));
}

std::vector<std::string> SplitList(const std::string& value) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= value.size();) {
    const size_t end = std::min(value.find('/', at), value.size());
    parts.push_back(value.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string JoinList(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "/") + part;
  return text;
}

// A value of the table as text in a spec (grid_table.h).
std::string ValueOf(const std::string& form, const ModelShape& shape, int64_t prompt) {
  if (form.front() == '@') {
    std::set<int> layers;
    for (const std::string& depth : SplitList(form.substr(1)))
      layers.insert(LayerAt(shape, std::stod(depth)));
    std::vector<std::string> texts;
    for (const int layer : layers) texts.push_back(std::to_string(layer));
    return JoinList(texts);
  }
  if (form.front() == '#') {
    const double share = std::stod(form.substr(1));
    return std::to_string(std::max<int64_t>(static_cast<int64_t>(share * static_cast<double>(prompt)), 64));
  }
  return form;
}

const MethodInfo* FindInfo(const std::string& name) {
  for (const MethodInfo& info : Methods()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

bool HasKey(const std::string& method, const std::string& name) {
  const MethodInfo* info = FindInfo(method);
  return info != nullptr && std::any_of(info->keys.begin(), info->keys.end(),
                                        [&](const MethodKey& key) { return key.name == name; });
}

const GridMethod& FindGrid(const std::string& name) {
  std::string names;
  for (const GridMethod& method : GridTable()) {
    if (FindInfo(method.name) == nullptr) continue;
    if (name == method.name) return method;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", method.name);
  }
  throw FieldError("methods", " {}: it does not shorten the time to the first token; these may: {}", name,
                   names);
}

std::string SpecText(const std::vector<MethodSpec>& methods) {
  std::string text;
  for (const MethodSpec& method : methods) {
    text += (text.empty() ? "" : "+") + method.name;
    char separator = ':';
    for (const auto& [key, value] : method.values) {
      text += separator + key + "=" + QuotedValue(value);
      separator = ',';
    }
  }
  return text;
}

// Lowers the method's break-even length `min`, or it would stand aside in prompts that it is tuned for.
void LowerMinimum(MethodSpec& method, int64_t least) {
  if (method.values.count("min") > 0) return;
  const MethodInfo* info = FindInfo(method.name);
  for (const MethodKey& key : info->keys) {
    int64_t own = 0;
    const auto [end, error] =
        std::from_chars(key.fallback.data(), key.fallback.data() + key.fallback.size(), own);
    if (key.name == "min" && error == std::errc() && own > least)
      method.values["min"] = std::to_string(least);
  }
}

// Removes the shares of stages that the model has no layer for, except for given values.
void TrimToStages(const MethodSpec& given, MethodSpec& method) {
  const auto layers = method.values.find("layers");
  if (layers == method.values.end()) return;
  const size_t stages = SplitList(layers->second).size();
  for (auto& [key, value] : method.values) {
    std::vector<std::string> elements = SplitList(value);
    if (given.values.count(key) > 0 || elements.size() <= stages) continue;
    elements.resize(stages);
    value = JoinList(elements);
  }
}

// Sets the key, or the keys that a value without one names; false where the method does not know them.
bool SetForm(const GridKey& key, const std::string& form, const ModelShape& shape, int64_t prompt,
             MethodSpec& method) {
  if (form == "-") return true;
  if (*key.key != '\0') {
    method.values[key.key] = ValueOf(form, shape, prompt);
    return true;
  }
  const MethodSpec given = method;
  const std::vector<MethodSpec> parsed = ParseSpec(method.name + ":" + form);
  for (const auto& [name, value] : parsed.front().values) {
    if (!HasKey(method.name, name)) return false;
    if (given.values.count(name) == 0) method.values[name] = value;
  }
  return true;
}

// Every combination of one value for each key that `method` does not have.
std::vector<MethodSpec> Combinations(const MethodSpec& method, std::span<const GridKey> keys,
                                     const ModelShape& shape, int64_t prompt) {
  std::vector<MethodSpec> all = {method};
  for (const GridKey& key : keys) {
    const bool one_key = *key.key != '\0';
    if (one_key && (method.values.count(key.key) > 0 || !HasKey(method.name, key.key))) continue;
    std::vector<MethodSpec> next;
    for (const MethodSpec& so_far : all) {
      for (const std::string& form : key.values) {
        MethodSpec one = so_far;
        if (SetForm(key, form, shape, prompt, one)) next.push_back(std::move(one));
      }
    }
    all = std::move(next);
  }
  for (MethodSpec& one : all) TrimToStages(method, one);
  return all;
}

bool IsLayers(const std::string& key) {
  static const std::set<std::string> layers = {"layers", "layer", "dense", "start"};
  return layers.count(key) > 0;
}

// Keys whose numbers say how much is computed: some by name, and every share of the registry, except those of
// the tokens that come back while generating, which a prefill does not have.
bool IsAmount(const std::string& method, const std::string& key) {
  static const std::set<std::string> amounts = {"keep",  "eta",      "r",          "gamma", "threshold",
                                                "slash", "vertical", "min_budget", "blocks"};
  if (amounts.count(key) > 0) return true;
  const MethodInfo* info = FindInfo(method);
  return info != nullptr && !key.starts_with("revive") &&
         std::any_of(info->keys.begin(), info->keys.end(), [&](const MethodKey& known) {
           return known.name == key && known.range.starts_with("0 to 1");
         });
}

// The element's two neighbours; none if the key is not tuned.
std::vector<std::string> StepsOf(const std::string& method, const std::string& key,
                                 const std::string& element, double step) {
  double value = 0;
  const auto [end, error] = std::from_chars(element.data(), element.data() + element.size(), value);
  if (error != std::errc() || end != element.data() + element.size()) return {};
  if (IsLayers(key)) {
    const int64_t by = step > 0.2 ? 2 : 1;
    const auto layer = static_cast<int64_t>(value);
    return {std::to_string(layer - by), std::to_string(layer + by)};
  }
  if (!IsAmount(method, key)) return {};
  const auto share = [](double x) { return fmt::format("{:g}", std::round(std::min(x, 1.0) * 1e4) / 1e4); };
  if (value > 1)
    return {std::to_string(std::llround(value * (1 - step))),
            std::to_string(std::llround(value / (1 - step)))};
  // Near 1 the distance from 1 counts: 0.9 and 0.95 are far apart.
  if (value > 0.75) return {share(1 - (1 - value) / (1 - step)), share(1 - (1 - value) * (1 - step))};
  return {share(value * (1 - step)), share(value / (1 - step))};
}

}  // namespace

std::vector<std::string> TunedMethods() {
  std::vector<std::string> names;
  for (const GridMethod& method : GridTable()) {
    if (method.by_default && FindInfo(method.name) != nullptr) names.emplace_back(method.name);
  }
  return names;
}

std::string NamesOf(const std::string& spec) {
  std::string names;
  for (const MethodSpec& method : ParseSpec(spec)) names += (names.empty() ? "" : "+") + method.name;
  return names;
}

MethodGrid GridOf(const std::string& wish, const ModelShape& shape, int64_t prompt, int64_t least) {
  std::vector<std::vector<MethodSpec>> all = {{}};
  const std::vector<MethodSpec> methods = ParseSpec(wish);
  if (methods.empty()) throw FieldError("methods", " {}: names no method", wish);
  for (MethodSpec method : methods) {
    const std::vector<GridKey>& keys = FindGrid(method.name).keys;
    LowerMinimum(method, least);
    const std::vector<MethodSpec> own =
        Combinations(method, std::span(keys).first(methods.size() > 1 ? 1 : keys.size()), shape, prompt);
    std::vector<std::vector<MethodSpec>> next;
    for (const std::vector<MethodSpec>& so_far : all) {
      for (const MethodSpec& one : own) {
        next.push_back(so_far);
        next.back().push_back(one);
      }
    }
    all = std::move(next);
  }
  MethodGrid grid{NamesOf(wish), {}};
  grid.weight = 0;
  for (const MethodSpec& method : methods) grid.weight = std::max(grid.weight, FindGrid(method.name).weight);
  for (const std::vector<MethodSpec>& one : all) {
    std::string spec = SpecText(one);
    if (std::find(grid.specs.begin(), grid.specs.end(), spec) == grid.specs.end())
      grid.specs.push_back(std::move(spec));
  }
  return grid;
}

std::vector<MethodGrid> CompositionsOf(const std::string& spec, const ModelShape& shape, int64_t prompt,
                                       int64_t least) {
  const std::vector<MethodSpec> methods = ParseSpec(spec);
  std::vector<MethodGrid> grids;
  for (const GridMethod& joined : GridTable()) {
    const bool there = std::any_of(methods.begin(), methods.end(),
                                   [&](const MethodSpec& m) { return m.name == joined.name; });
    if (!joined.joins || there || FindInfo(joined.name) == nullptr) continue;
    MethodSpec method{joined.name, {}};
    LowerMinimum(method, least);
    MethodGrid grid{NamesOf(spec) + "+" + joined.name, {}};
    for (const MethodSpec& one : Combinations(method, std::span(joined.keys).first(1), shape, prompt))
      grid.specs.push_back(spec + "+" + SpecText({one}));
    grids.push_back(std::move(grid));
  }
  return grids;
}

std::vector<std::string> PromisingSpecs(const ModelShape& shape, int64_t prompt, int64_t least) {
  std::vector<std::string> specs;
  for (const char* form : PromisingForms()) {
    MethodSpec method = ParseSpec(form).front();
    const bool known = FindInfo(method.name) != nullptr &&
                       std::all_of(method.values.begin(), method.values.end(),
                                   [&](const auto& value) { return HasKey(method.name, value.first); });
    if (!known) continue;
    for (auto& [key, value] : method.values) value = ValueOf(value, shape, prompt);
    LowerMinimum(method, least);
    TrimToStages({}, method);
    std::string spec = SpecText({method});
    if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(std::move(spec));
  }
  return specs;
}

std::string WithTunedKeys(const std::string& spec, const std::string& full) {
  std::vector<MethodSpec> methods = ParseSpec(spec);
  for (const MethodSpec& whole : ParseSpec(full)) {
    for (MethodSpec& method : methods) {
      if (method.name != whole.name) continue;
      for (const auto& [key, value] : whole.values) {
        const std::string element = SplitList(value).front();
        if (!StepsOf(method.name, key, element, 0.3).empty()) method.values.emplace(key, value);
      }
    }
  }
  return SpecText(methods);
}

std::vector<Direction> NeighboursOf(const std::string& spec, double step) {
  std::vector<Direction> directions;
  const std::vector<MethodSpec> methods = ParseSpec(spec);
  for (size_t m = 0; m < methods.size(); ++m) {
    for (const auto& [key, value] : methods[m].values) {
      const std::vector<std::string> elements = SplitList(value);
      for (size_t e = 0; e < elements.size(); ++e) {
        Direction direction{fmt::format("{}.{}[{}]", methods[m].name, key, e), {}};
        for (const std::string& changed : StepsOf(methods[m].name, key, elements[e], step)) {
          if (changed == elements[e]) continue;
          std::vector<std::string> list = elements;
          list[e] = changed;
          std::vector<MethodSpec> neighbour = methods;
          neighbour[m].values[key] = JoinList(list);
          direction.specs.push_back(SpecText(neighbour));
        }
        if (!direction.specs.empty()) directions.push_back(std::move(direction));
      }
    }
  }
  return directions;
}

}  // namespace coppice
