#include "server/prune_parameter.h"

#include "base/error.h"
#include "engine/calibration.h"
#include "policies/method_info.h"
#include "policies/spec.h"
#include "server/errors.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr size_t kMaxSpecBytes = 4096;
constexpr size_t kMaxSpans = 4096;

int64_t Count(const json& value, const std::string& name) {
  if (!value.is_number_integer() || value < 0 || value > kManyTokens) {
    throw BadField(name, fmt::format("{} is not a number of tokens", value.dump().substr(0, 40)));
  }
  return value.get<int64_t>();
}

void ReadSpans(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_array() || value.size() > kMaxSpans)
    throw BadField(name, "is not a list of spans [begin, end]");
  for (const json& span : value) {
    if (!span.is_array() || span.size() != 2)
      throw BadField(name, "holds something that is no span [begin, end]");
    const int64_t begin = Count(span[0], name);
    const int64_t end = Count(span[1], name);
    if (begin > end) throw BadField(name, fmt::format("the span [{}, {}] ends before it begins", begin, end));
    out.protection.spans.push_back({begin, end});
  }
}

// A method's value as a spec writes it.
std::string ValueText(const json& value, const std::string& name) {
  if (value.is_array()) {
    std::string text;
    for (const json& item : value) {
      if (!item.is_number()) throw BadField(name, "is not a list of numbers");
      text += (text.empty() ? "" : "/") + item.dump();
    }
    return text;
  }
  if (value.is_string()) return QuotedValue(value.get<std::string>());
  if (value.is_number()) return value.dump();
  throw BadField(name, "is not a number, a text or a list of numbers");
}

void RefuseFiles(const std::string& spec, const std::string& name) {
  const std::string key = FileKeyOf(spec);
  if (!key.empty())
    throw BadField(name, key + " names a file, which a request may not; the server's --prune can");
}

void SetSpec(const std::string& spec, const std::string& name, Parameters& out) {
  if (spec.size() > kMaxSpecBytes) throw BadField(name, fmt::format("longer than {} bytes", kMaxSpecBytes));
  out.prune_asked = true;
  if (spec == "default") return;
  try {
    RefuseFiles(spec, name);
  } catch (const Error& error) {
    throw BadField(name, error.what());
  }
  out.prune = spec;
}

}  // namespace

void ReadPrune(const json& value, const std::string& name, Parameters& out) {
  if (value.is_boolean()) return SetSpec(value.get<bool>() ? "default" : "none", name, out);
  if (value.is_string()) return SetSpec(value.get<std::string>(), name, out);
  if (!value.is_object()) throw BadField(name, "is not a spec, an object, true or false");
  std::string method;
  std::string keys;
  for (const auto& [key, item] : value.items()) {
    const std::string path = name + "." + key;
    if (key == "spec" || key == "method") {
      if (!item.is_string()) throw BadField(path, "is not a text");
      if (!method.empty()) throw BadField(path, "send spec or method, not both");
      method = item.get<std::string>();
    } else if (key == "protect_first") {
      out.protection.first = Count(item, path);
    } else if (key == "protect_last") {
      out.protection.last = Count(item, path);
    } else if (key == "protect") {
      ReadSpans(item, path, out);
    } else {
      keys += (keys.empty() ? ":" : ",") + key + "=" + ValueText(item, path);
    }
  }
  if (!keys.empty() && (method.empty() || value.contains("spec"))) {
    throw BadField(name, fmt::format("{} goes with \"method\"", keys.substr(1, keys.find('=') - 1)));
  }
  SetSpec(method.empty() ? "default" : method + keys, name, out);
}

}  // namespace coppice
