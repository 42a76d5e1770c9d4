#include "eval/tune/grid.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "base/error.h"
#include "policies/registry.h"

namespace coppice {

namespace {

struct GridKey {
  const char* key;
  std::vector<std::string> values;  // mild first
};

struct GridMethod {
  const char* name;
  bool by_default;
  // The first key is the method's strength; compositions vary that one alone.
  std::function<std::vector<GridKey>(const ModelShape& shape, int64_t prompt)> keys;
};

int LayerAt(const ModelShape& shape, double depth) {
  return std::clamp(static_cast<int>(std::lround(depth * shape.layers)), 1, std::max(shape.layers - 1, 1));
}

// "10/20/30" at these depths; the same layer once.
std::string LayersAt(const ModelShape& shape, std::initializer_list<double> depths) {
  std::set<int> layers;
  for (const double depth : depths) layers.insert(LayerAt(shape, depth));
  std::string text;
  for (const int layer : layers) text += fmt::format("{}{}", text.empty() ? "" : "/", layer);
  return text;
}

// Shares for as many stages as `layers` has: the last of `shares` go where there are fewer.
std::string ForStages(const std::string& layers, std::vector<std::string> shares) {
  const auto stages = static_cast<size_t>(std::count(layers.begin(), layers.end(), '/')) + 1;
  std::string text;
  for (size_t i = 0; i < std::min(stages, shares.size()); ++i) text += (i == 0 ? "" : "/") + shares[i];
  return text;
}

std::string Tokens(int64_t prompt, double share, int64_t least) {
  return std::to_string(std::max(static_cast<int64_t>(share * static_cast<double>(prompt)), least));
}

const std::vector<GridMethod>& GridMethods() {
  static const std::vector<GridMethod> methods = {
      {"lazyllm", true,
       [](const ModelShape& s, int64_t) -> std::vector<GridKey> {
         return {
             {"keep", {"0.7", "0.5", "0.35"}},
             {"layers",
              {LayersAt(s, {0.5, 0.7, 0.9}), LayersAt(s, {0.3, 0.6, 0.9}), LayersAt(s, {0.2, 0.4, 0.7})}}};
       }},
      {"ftp", true,
       [](const ModelShape& s, int64_t) -> std::vector<GridKey> {
         return {{"eta", {"0.95", "0.9", "0.8", "0.65"}},
                 {"dense", {std::to_string(LayerAt(s, 0.31)), std::to_string(LayerAt(s, 0.15))}}};
       }},
      {"sdtp", false,
       [](const ModelShape&, int64_t) -> std::vector<GridKey> {
         return {{"r", {"0.95", "0.9", "0.85", "0.8"}}};
       }},
      {"sliminfer", true,
       [](const ModelShape& s, int64_t) -> std::vector<GridKey> {
         const std::string late = LayersAt(s, {0.5, 0.7, 0.9});
         const std::string even = LayersAt(s, {0.31, 0.62, 0.93});
         std::vector<std::string> keeps;
         for (const auto& keep : std::vector<std::vector<std::string>>{{"0.7", "0.5", "0.3"},
                                                                       {"0.5", "0.25", "0.125"},
                                                                       {"0.35", "0.18", "0.09"},
                                                                       {"0.25", "0.125", "0.0625"}})
           keeps.push_back(ForStages(even, keep));
         return {{"keep", keeps}, {"layers", {late, even}}};
       }},
      {"static", true,
       [](const ModelShape& s, int64_t) -> std::vector<GridKey> {
         return {{"keep", {"0.6", "0.4", "0.2"}},
                 {"layer", {std::to_string(LayerAt(s, 0.5)), std::to_string(LayerAt(s, 0.25))}}};
       }},
      {"random", false,
       [](const ModelShape& s, int64_t) -> std::vector<GridKey> {
         return {{"keep", {"0.8", "0.6", "0.4"}},
                 {"layers", {LayersAt(s, {0.5, 0.7, 0.9}), LayersAt(s, {0.3, 0.6, 0.9})}}};
       }},
      {"pyramidinfer", true,
       [](const ModelShape&, int64_t) -> std::vector<GridKey> {
         return {{"r", {"0.8", "0.6", "0.4"}}};
       }},
      {"minference", true,
       [](const ModelShape&, int64_t prompt) -> std::vector<GridKey> {
         return {{"slash", {Tokens(prompt, 0.25, 128), Tokens(prompt, 0.12, 128)}},
                 {"vertical", {Tokens(prompt, 0.06, 64), Tokens(prompt, 0.03, 64)}}};
       }},
      {"flexprefill", true,
       [](const ModelShape&, int64_t prompt) -> std::vector<GridKey> {
         return {{"gamma", {"0.95", "0.9", "0.8"}},
                 {"min_budget", {Tokens(std::min<int64_t>(prompt, 4096), 0.125, 64)}}};
       }},
      {"xattention", true,
       [](const ModelShape&, int64_t) -> std::vector<GridKey> {
         return {{"threshold", {"0.95", "0.9", "0.8"}}};
       }},
  };
  return methods;
}

const GridMethod& FindGrid(const std::string& name) {
  std::string names;
  for (const GridMethod& method : GridMethods()) {
    if (name == method.name) return method;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", method.name);
  }
  throw Error("--methods {}: it does not shorten the time to the first token; these may: {}", name, names);
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

// Below the method's own break-even length it would stand aside in the prompts it is tuned for.
void LowerMinimum(MethodSpec& method, int64_t shortest_prompt) {
  if (method.values.count("min") > 0) return;
  for (const MethodInfo& info : Methods()) {
    if (info.name != method.name) continue;
    for (const MethodKey& key : info.keys) {
      int64_t own = 0;
      const auto [end, error] =
          std::from_chars(key.fallback.data(), key.fallback.data() + key.fallback.size(), own);
      if (key.name == "min" && error == std::errc() && own > shortest_prompt)
        method.values["min"] = std::to_string(shortest_prompt * 3 / 4);
    }
  }
}

// Every combination of one value for each key that `method` does not have.
std::vector<MethodSpec> Combinations(const MethodSpec& method, const std::vector<GridKey>& keys) {
  std::vector<MethodSpec> all = {method};
  for (const GridKey& key : keys) {
    if (method.values.count(key.key) > 0) continue;
    std::vector<MethodSpec> next;
    const std::set<std::string> once(key.values.begin(), key.values.end());
    for (const MethodSpec& so_far : all) {
      for (const std::string& value : once) {
        next.push_back(so_far);
        next.back().values[key.key] = value;
      }
    }
    all = std::move(next);
  }
  return all;
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

// The element's two neighbours, or none where the key is not for tuning.
std::vector<std::string> StepsOf(const std::string& key, const std::string& element, double step) {
  static const std::set<std::string> layers = {"layers", "layer", "dense", "start"};
  static const std::set<std::string> amounts = {"keep",      "eta",   "r",        "gamma",
                                                "threshold", "slash", "vertical", "min_budget"};
  double value = 0;
  const auto [end, error] = std::from_chars(element.data(), element.data() + element.size(), value);
  if (error != std::errc() || end != element.data() + element.size()) return {};
  if (layers.count(key) > 0) {
    const int64_t by = step > 0.2 ? 2 : 1;
    const auto layer = static_cast<int64_t>(value);
    return {std::to_string(layer - by), std::to_string(layer + by)};
  }
  if (amounts.count(key) == 0) return {};
  const auto share = [](double x) { return fmt::format("{:g}", std::round(std::min(x, 1.0) * 1e4) / 1e4); };
  if (value > 1)
    return {std::to_string(std::llround(value * (1 - step))),
            std::to_string(std::llround(value / (1 - step)))};
  // Near 1 it is the rest that counts: 0.9 and 0.95 are far apart.
  if (value > 0.75) return {share(1 - (1 - value) / (1 - step)), share(1 - (1 - value) * (1 - step))};
  return {share(value * (1 - step)), share(value / (1 - step))};
}

}  // namespace

std::vector<std::string> TunedMethods() {
  std::vector<std::string> names;
  for (const GridMethod& method : GridMethods()) {
    if (method.by_default) names.emplace_back(method.name);
  }
  names.emplace_back("sliminfer+ftp");
  return names;
}

std::vector<std::string> GridOf(const std::string& wish, const ModelShape& shape, int64_t shortest_prompt) {
  std::vector<std::vector<MethodSpec>> all = {{}};
  const std::vector<MethodSpec> methods = ParseSpec(wish);
  if (methods.empty()) throw Error("--methods {}: names no method", wish);
  for (MethodSpec method : methods) {
    std::vector<GridKey> keys = FindGrid(method.name).keys(shape, shortest_prompt);
    if (methods.size() > 1) keys.resize(1);
    LowerMinimum(method, shortest_prompt);
    const std::vector<MethodSpec> own = Combinations(method, keys);
    std::vector<std::vector<MethodSpec>> next;
    for (const std::vector<MethodSpec>& so_far : all) {
      for (const MethodSpec& one : own) {
        next.push_back(so_far);
        next.back().push_back(one);
      }
    }
    all = std::move(next);
  }
  std::vector<std::string> specs;
  for (const std::vector<MethodSpec>& one : all) specs.push_back(SpecText(one));
  return specs;
}

std::vector<Direction> NeighboursOf(const std::string& spec, double step) {
  std::vector<Direction> directions;
  const std::vector<MethodSpec> methods = ParseSpec(spec);
  for (size_t m = 0; m < methods.size(); ++m) {
    for (const auto& [key, value] : methods[m].values) {
      const std::vector<std::string> elements = SplitList(value);
      for (size_t e = 0; e < elements.size(); ++e) {
        Direction direction{fmt::format("{}.{}[{}]", methods[m].name, key, e), {}};
        for (const std::string& changed : StepsOf(key, elements[e], step)) {
          if (changed == elements[e]) continue;
          std::vector<std::string> list = elements;
          list[e] = changed;
          std::string joined;
          for (const std::string& element : list) joined += (joined.empty() ? "" : "/") + element;
          std::vector<MethodSpec> neighbour = methods;
          neighbour[m].values[key] = joined;
          direction.specs.push_back(SpecText(neighbour));
        }
        if (!direction.specs.empty()) directions.push_back(std::move(direction));
      }
    }
  }
  return directions;
}

}  // namespace coppice
