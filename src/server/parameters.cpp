#include "server/parameters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <type_traits>

#include "base/error.h"
#include "engine/chat_tools.h"
#include "formats/json.h"
#include "server/cache_control.h"
#include "server/content_parts.h"
#include "server/errors.h"
#include "server/moving_lines.h"

namespace coppice {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

double NumberOf(const json& value, const std::string& name, const Field& field) {
  if (!value.is_number()) throw BadField(name, fmt::format("is not {}", field.range));
  const double number = value.get<double>();
  if (!(number >= field.low && number <= field.high)) {
    throw BadField(name, fmt::format("{} is not {}", value.dump().substr(0, 40), field.range));
  }
  return number;
}

int64_t IntegerOf(const json& value, const std::string& name, const Field& field) {
  const double number = NumberOf(value, name, field);
  if (number != std::floor(number)) {
    throw BadField(name, fmt::format("{} is not {}", value.dump().substr(0, 40), field.range));
  }
  return value.is_number_float() ? static_cast<int64_t>(number) : value.get<int64_t>();
}

void Store(const Field& field, const json& value, const std::string& name, Parameters& out) {
  std::visit(
      [&](const auto& target) {
        using T = std::decay_t<decltype(target)>;
        if constexpr (std::is_same_v<T, Field::Neutral>) {
          if (value != json::parse(target.json)) {
            throw BadField(name, fmt::format("is not supported; leave it out, or send {}", target.json));
          }
        } else if constexpr (std::is_same_v<T, Field::Custom>) {
          target(value, name, out);
        } else if constexpr (std::is_same_v<T, bool& (*)(Parameters&)>) {
          if (!value.is_boolean()) throw BadField(name, "is not true or false");
          target(out) = value.get<bool>();
        } else if constexpr (std::is_same_v<T, int64_t& (*)(Parameters&)>) {
          target(out) = IntegerOf(value, name, field);
        } else if constexpr (std::is_same_v<T, double& (*)(Parameters&)>) {
          target(out) = NumberOf(value, name, field);
        }
      },
      field.target);
}

using NameTable = std::map<std::string_view, const Field*>;

NameTable MakeNames(Route route) {
  NameTable names;
  for (const Field& field : Fields()) {
    if ((field.routes & route) == 0) continue;
    std::string_view rest = field.names;
    while (!rest.empty()) {
      const size_t space = rest.find(' ');
      names[rest.substr(0, space)] = &field;
      rest = space == std::string_view::npos ? "" : rest.substr(space + 1);
    }
  }
  return names;
}

const NameTable& Names(Route route) {
  static const std::map<Route, NameTable> tables = [] {
    std::map<Route, NameTable> all;
    for (const Route r : kRoutes) all[r] = MakeNames(r);
    return all;
  }();
  return tables.at(route);
}

OwnedJson<json> ParseObject(std::string_view body) {
  OwnedJson<json> object;
  try {
    object = ParseJson(body, "request", kMaxRequestValues);
  } catch (const Error& error) {
    throw HttpError({400, "invalid_request_error", error.what()});
  }
  if (!object->is_object()) {
    throw HttpError({400, "invalid_request_error", "the request's body is not a JSON object"});
  }
  return object;
}

// llama.cpp's list says which samplers act, and in which order. Those without an effect may stand anywhere.
void CheckSamplers(const std::vector<std::string>& names, const SamplingOptions& o) {
  const bool draws = o.temperature > 0;
  const bool penalizes =
      (o.repeat_penalty != 1 && o.repeat_last_n != 0) || o.presence_penalty != 0 || o.frequency_penalty != 0;
  const std::pair<const char*, bool> order[] = {{"penalties", penalizes},
                                                {"dry", o.dry.multiplier > 0},
                                                {"top_n_sigma", draws && o.top_n_sigma > 0},
                                                {"top_k", draws && o.top_k > 0},
                                                {"typ_p", draws && o.typical_p < 1},
                                                {"top_p", draws && o.top_p < 1},
                                                {"min_p", draws && o.min_p > 0},
                                                {"xtc", draws && o.xtc_probability > 0},
                                                {"temperature", o.temperature != 1}};
  std::vector<std::string> acting;
  for (const auto& [name, acts] : order) {
    if (acts) acting.emplace_back(name);
  }
  std::vector<std::string> asked;
  std::ranges::copy_if(names, std::back_inserter(asked), [&](const std::string& name) {
    return std::ranges::find(acting, name) != acting.end();
  });
  if (asked != acting)
    throw BadField("samplers", fmt::format("asks for others than those that act here, in this order: {}",
                                           fmt::join(acting, ", ")));
}

// Checks that involve several fields.
void CheckTogether(const json& object, Route route, Parameters& p) {
  const auto sent = [&](const char* name) { return object.contains(name) && !object[name].is_null(); };
  // Fields of streams, and the number of log-probabilities, mean nothing without these; clients send them
  // with every request.
  if (!p.stream) {
    p.include_usage = false;
    p.return_progress = false;
  }
  if (route == kChat && !p.log_probs) p.top_log_probs = 0;
  if ((route & kRendersChat) != 0 && !sent("messages")) throw BadField("messages", "is missing");
  if (p.continue_final_message.value_or(false) && sent("add_generation_prompt") && p.add_generation_prompt)
    throw BadField("continue_final_message", "does not go with add_generation_prompt: true");
  if (sent("add_generation_prompt") && !p.continue_final_message) p.continue_final_message = false;
  if ((route & kCompletes) != 0 && p.prompts.empty()) throw BadField("prompt", "is missing");
  if (route == kEmbeddings && p.prompts.empty()) throw BadField("input", "is missing");
  if (route == kTokenize && p.prompts.empty()) throw BadField("content", "is missing (or prompt)");
  if (route == kDetokenize && !sent("tokens")) throw BadField("tokens", "is missing");
  if (p.tool_choice != ToolChoice::kNone && p.tool_choice != ToolChoice::kAuto && p.tools->empty())
    throw BadField("tool_choice", "asks for a call, but there are no tools");
  const auto has_name = [&](const nlohmann::ordered_json& tool) {
    return tool["function"]["name"] == p.tool_name;
  };
  if (p.tool_choice == ToolChoice::kOne && std::ranges::none_of(*p.tools, has_name))
    throw BadField("tool_choice", "names none of the tools");
  if (p.samplers) CheckSamplers(*p.samplers, p.sampling);
  // The best of as many answers as are sent are all of them; greedy answers are all the same.
  if (p.best_of != 1 && p.best_of != p.n && p.sampling.temperature > 0)
    throw BadField("best_of", "is not supported; leave it out, or send what n is");
  const auto choices = p.n * static_cast<int64_t>(p.prompts.size());
  if ((route & kCompletes) != 0 && choices > kMaxChoices) {
    throw BadField(p.n > 1 ? "n" : "prompt",
                   fmt::format("{} answers in one request; the most is {}", choices, kMaxChoices));
  }
}

// Templates write the members and arguments of messages as they were sent, so their keys keep their order.
void ReadMessages(std::string_view body, const json& object, Parameters& p) {
  try {
    p.messages = OrderedMember(body, object, "messages", "messages");
    p.cache_lifetime = std::max(p.cache_lifetime, CacheLifetimeOf(*p.messages));
    SimplifyMessages(*p.messages, p.ignored);
    if (!p.verbatim_prompts) RemoveMovingLines(*p.messages, p.ignored);
  } catch (const Error& error) {
    throw HttpError({400, "invalid_request_error", error.what(), "messages"});
  }
}

// Templates write the definitions of tools as they were sent, so their keys keep their order.
void ReadTools(std::string_view body, const json& object, Parameters& p) {
  try {
    p.tools = OrderedMember(body, object, "tools", "tools");
    p.cache_lifetime = std::max(p.cache_lifetime, CacheLifetimeOf(*p.tools));
    CheckTools(*p.tools, "tools");
  } catch (const Error& error) {
    throw HttpError({400, "invalid_request_error", error.what(), "tools"});
  }
}

void SetForm(AnswerForm form, const std::string& name, ordered_json value, Parameters& p) {
  if (p.form != AnswerForm::kFree)
    throw BadField(name, fmt::format("does not go with {}: an answer has one form", p.form_field));
  p.form = form;
  p.form_field = name;
  p.form_value = std::move(value);
}

// OpenAI's {"type": "text" or "json_object"} and {"type": "json_schema", "json_schema": {"schema": ...}};
// llama.cpp takes a schema beside either type.
void ReadResponseFormat(ordered_json format, Parameters& p) {
  const char* name = "response_format";
  const ordered_json type = format.is_object() ? format.value("type", ordered_json()) : ordered_json();
  if (type == "text") return;
  if (type != "json_object" && type != "json_schema")
    throw BadField(name, "has a type that is none of text, json_object and json_schema");
  for (ordered_json* at : {&format, format.contains("json_schema") ? &format["json_schema"] : nullptr}) {
    if (at == nullptr || !at->is_object() || !at->contains("schema")) continue;
    return SetForm(AnswerForm::kSchema, name, std::move((*at)["schema"]), p);
  }
  if (type == "json_schema") throw BadField(name, "has no json_schema.schema");
  SetForm(AnswerForm::kObject, name, nullptr, p);
}

// Schemas order the members of answers, so their keys keep their order.
void ReadForm(std::string_view body, const char* name, Parameters& p) {
  OwnedJson<ordered_json> value;
  try {
    value = ParseOrderedJson(body, name, kMaxRequestValues, name);
    if (value->is_string() && std::string_view(name) == "guided_json")
      value = ParseOrderedJson(value->get_ref<const std::string&>(), name, kMaxRequestValues);
  } catch (const Error& error) {
    throw HttpError({400, "invalid_request_error", error.what(), name});
  }
  if (std::string_view(name) == "response_format") return ReadResponseFormat(value.Take(), p);
  const bool is_choice = std::string_view(name) == "guided_choice";
  if (is_choice && (!value->is_array() || value->empty() ||
                    !std::ranges::all_of(*value, [](const ordered_json& one) { return one.is_string(); }))) {
    throw BadField(name, "is not a list of texts");
  }
  SetForm(is_choice ? AnswerForm::kChoice : AnswerForm::kSchema, name, value.Take(), p);
}

}  // namespace

Parameters ParseParameters(std::string_view body, Route route, const Parameters& defaults) {
  const OwnedJson<json> owned = ParseObject(body);
  const json& object = *owned;
  Parameters result = defaults;
  std::map<const Field*, std::string> seen;
  std::vector<std::pair<const Field*, HttpError>> held;  // whether they count depends on other fields
  const NameTable& names = Names(route);
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;  // clients send null for fields that they leave to the server
    const auto found = names.find(name);
    if (found == names.end()) {
      AddIgnored(name, result.ignored);
      continue;
    }
    const auto [other, is_first] = seen.emplace(found->second, name);
    if (!is_first) {
      if (object[other->second] == value)
        continue;  // clients send both names to be understood by all servers
      throw BadField(name, fmt::format("means the same as {}; send one of them", other->second));
    }
    try {
      Store(*found->second, value, name, result);
    } catch (const HttpError& error) {
      if (found->second->matters == nullptr) throw;
      held.emplace_back(found->second, error);
    }
  }
  const auto is_sent = [&](const char* name) { return object.contains(name) && !object[name].is_null(); };
  if ((route & kRendersChat) != 0 && is_sent("messages")) ReadMessages(body, object, result);
  if ((route & kRendersChat) != 0 && is_sent("tools")) ReadTools(body, object, result);
  for (const char* name : {"json_schema", "guided_json", "guided_choice", "response_format"}) {
    if ((route & kGenerates) != 0 && object.contains(name) && !object[name].is_null())
      ReadForm(body, name, result);
  }
  for (const auto& [field, error] : held) {
    if (field->matters(result)) throw error;
  }
  CheckTogether(object, route, result);
  return result;
}

}  // namespace coppice
