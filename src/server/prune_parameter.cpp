#include "server/prune_parameter.h"

#include "base/error.h"
#include "engine/answer_judge.h"
#include "engine/calibration.h"
#include "engine/engine.h"
#include "policies/method_info.h"
#include "policies/spec.h"
#include "server/errors.h"
#include "tensor/merge_spans.h"

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

std::vector<PositionSpan> Spans(const json& value, const std::string& name) {
  if (!value.is_array()) throw BadField(name, "is not a list of spans [begin, end]");
  if (value.size() > kMaxSpans) throw BadField(name, fmt::format("holds more than {} spans", kMaxSpans));
  std::vector<PositionSpan> spans;
  for (const json& span : value) {
    if (!span.is_array() || span.size() != 2)
      throw BadField(name, "holds something that is no span [begin, end]");
    const int64_t begin = Count(span[0], name);
    const int64_t end = Count(span[1], name);
    if (begin > end) throw BadField(name, fmt::format("the span [{}, {}] ends before it begins", begin, end));
    spans.push_back({begin, end});
  }
  return spans;
}

std::vector<PositionSpan> QuestionSpans(const json& value, const std::string& name) {
  std::vector<PositionSpan> spans = Spans(value, name);
  for (const PositionSpan& span : spans) {
    if (span.begin == span.end)
      throw BadField(name, fmt::format("the span [{}, {}] holds no token", span.begin, span.end));
  }
  return MergeSpans(std::move(spans));
}

double LeastConfidence(const json& value, const std::string& name) {
  if (value == "dense") return kDefaultLeastConfidence;
  if (value.is_boolean() && !value.get<bool>()) return 0;
  if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= 1))
    throw BadField(name, "is neither \"dense\" nor a probability from 0 to 1");
  return value.get<double>();
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
    throw BadField(name, key + " names a file, which a request may not; only the server's own setting can");
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

std::optional<PruneScope> PruneScopeOf(std::string_view text) {
  if (text == "auto") return PruneScope::kAuto;
  if (text == "all") return PruneScope::kAll;
  if (text == "new") return PruneScope::kNew;
  return std::nullopt;
}

void ReadPruneScope(const json& value, const std::string& name, Parameters& out) {
  const auto scope = value.is_string() ? PruneScopeOf(value.get_ref<const std::string&>()) : std::nullopt;
  if (!scope) throw BadField(name, fmt::format("{} is not auto, all or new", value.dump().substr(0, 40)));
  out.prune_scope = *scope;
}

void ReadPruneWhen(const json& value, const std::string& name, Parameters& out) {
  if (value != "pays" && value != "always")
    throw BadField(name, fmt::format("{} is not pays or always", value.dump().substr(0, 40)));
  out.only_if_it_pays = value == "pays";
}

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
      const std::vector<PositionSpan> spans = Spans(item, path);
      out.protection.spans.insert(out.protection.spans.end(), spans.begin(), spans.end());
    } else if (key == "confidence") {
      if (!item.is_boolean()) throw BadField(path, "is not true or false");
      out.prune_confidence = item.get<bool>();
    } else if (key == "complete") {
      if (!item.is_boolean()) throw BadField(path, "is not true or false");
      out.complete = item.get<bool>();
    } else if (key == "fallback") {
      out.least_confidence = LeastConfidence(item, path);
    } else if (key == "question") {
      out.question = QuestionSpans(item, path);
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
