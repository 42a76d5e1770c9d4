// The fields that a model reads: prompts, messages, tools, and the texts of other routes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "server/errors.h"
#include "server/parameter_table.h"

namespace coppice {

using nlohmann::json;

int32_t TokenId(const json& value, const std::string& name) {
  if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<int32_t>::max()) {
    throw BadField(name, fmt::format("{} is not a token's id", value.dump().substr(0, 40)));
  }
  return value.get<int32_t>();
}

std::vector<int32_t> TokenIds(const json& value, const std::string& name) {
  if (!value.is_array()) throw BadField(name, "is not a list of token ids");
  std::vector<int32_t> ids;
  for (const json& id : value) ids.push_back(TokenId(id, name));
  return ids;
}

namespace {

// llama.cpp's objects: {"prompt_string": "text"}, or {"content": [{"type": "text", "text": "text"}, ...]}.
std::string TextOfObject(const json& value, const std::string& name) {
  const auto text = [&](const json& object, const char* member) {
    const auto found = object.is_object() ? object.find(member) : object.end();
    if (!object.is_object() || found == object.end() || !found->is_string() ||
        object.contains("multimodal_data"))
      throw BadField(name, "has an object that is no text");
    return found->get<std::string>();
  };
  if (!value.contains("content")) return text(value, "prompt_string");
  std::string whole;
  if (!value["content"].is_array()) throw BadField(name, "has an object whose content is no list of parts");
  for (const json& part : value["content"]) {
    if (text(part, "type") != "text") throw BadField(name, "has a part that is no text");
    whole += text(part, "text");
  }
  return whole;
}

PromptInput OnePrompt(const json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return TextOfObject(value, name);
  if (!value.is_array() || value.empty()) {
    throw BadField(name, "is not a text, a list of token ids, or a list of either");
  }
  if (std::ranges::none_of(value, [](const json& one) { return one.is_string(); }))
    return TokenIds(value, name);
  std::vector<PromptPart> parts;
  for (const json& one : value) {
    if (one.is_string()) {
      parts.emplace_back(one.get<std::string>());
    } else {
      parts.emplace_back(TokenId(one, name));
    }
  }
  return parts;
}

// "text", [ids], ["text", ...], [[ids], ...], or the last two mixed. A list that begins with an id, or has an
// id beside texts, is one prompt.
void ReadInputs(const json& value, const std::string& name, int most, Parameters& out) {
  out.prompts.clear();
  const auto is_id = [](const json& one) { return one.is_number(); };
  if (!value.is_array() || std::ranges::any_of(value, is_id)) {
    out.prompts.push_back(OnePrompt(value, name));
    return;
  }
  if (value.empty()) throw BadField(name, "is an empty list");
  if (value.size() > static_cast<size_t>(most))
    throw BadField(name, fmt::format("{} texts in one request; the most is {}", value.size(), most));
  for (const json& one : value) out.prompts.push_back(OnePrompt(one, name));
}

void ReadPrompts(const json& value, const std::string& name, Parameters& out) {
  ReadInputs(value, name, kMaxChoices, out);
}

void ReadTexts(const json& value, const std::string& name, Parameters& out) {
  ReadInputs(value, name, kMaxTexts, out);
}

// One of two words.
bool IsWord(const json& value, const std::string& name, const char* word, const char* other) {
  if (value == word) return true;
  if (value != other) throw BadField(name, fmt::format("is neither {} nor {}", word, other));
  return false;
}

void ReadText(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_string()) throw BadField(name, "is not a text");
  out.prompts = {value.get<std::string>()};
  out.form_is_openai = name == "prompt";
}

// ParseParameters() reads the messages, with the keys in their order; this is for the table.
void ReadMessages(const json& value, const std::string& name, Parameters&) {
  if (!value.is_array() || value.empty()) throw BadField(name, "is not a list of messages");
  for (const json& message : value) {
    if (!message.is_object()) throw BadField(name, "holds something that is no message");
  }
}

void ReadTemplateVariables(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_object()) throw BadField(name, "is not an object");
  // The template's context is an ordered object, which finds a key by going through all of them.
  if (value.size() > kMaxTemplateVariables) {
    throw BadField(name, fmt::format("{} variables; the most is {}", value.size(), kMaxTemplateVariables));
  }
  for (const auto& [key, variable] : value.items()) {
    if (key == "messages") throw BadField(name, "must not name messages");
    (*out.template_variables)[key] = variable;
  }
}

void ReadTokens(const json& value, const std::string& name, Parameters& out) {
  out.tokens = TokenIds(value, name);
}

bool HasTools(const Parameters& p) { return !p.tools->empty(); }

// ParseParameters() reads the field later, with the keys in their order; this is for the table.
void ReadTools(const json&, const std::string&, Parameters&) {}

// "none", "auto", "required", also within {"type"}, or {"type": "function", "function": {"name"}}, or the
// name in the outer object, as in other APIs.
void ReadToolChoice(const json& value, const std::string& name, Parameters& out) {
  static const std::map<json, ToolChoice> kWords = {{"none", ToolChoice::kNone},
                                                    {"auto", ToolChoice::kAuto},
                                                    {"required", ToolChoice::kAny},
                                                    {"any", ToolChoice::kAny}};
  const bool is_object = value.is_object();
  const auto word = kWords.find(is_object ? value.value("type", json()) : value);
  if (word != kWords.end()) {
    out.tool_choice = word->second;
    return;
  }
  const json function = is_object ? value.value("function", value) : json();
  const json called = function.is_object() ? function.value("name", json()) : json();
  if (!called.is_string())
    throw BadField(name,
                   "is not none, auto, required or {\"type\": \"function\", \"function\": {\"name\": ...}}");
  out.tool_choice = ToolChoice::kOne;
  out.tool_name = called;
}

constexpr Field kFields[] = {
    // Input.
    {"prompt", kCompletes, &ReadPrompts},
    {"content prompt", kTokenize, &ReadText},
    {"messages", kRendersChat, &ReadMessages},
    {"tokens", kDetokenize, &ReadTokens},
    {"add_generation_prompt", kRendersChat, [](Parameters& p) -> bool& { return p.add_generation_prompt; }},
    {"chat_template_kwargs", kRendersChat, &ReadTemplateVariables},
    {"continue_final_message", kRendersChat,
     [](const json& v, const std::string& name, Parameters& p) {
       if (!v.is_boolean()) throw BadField(name, "is not true or false");
       p.continue_final_message = v.get<bool>();
     }},
    {"tools", kRendersChat, &ReadTools},
    Where(&HasTools, {"tool_choice", kRendersChat, &ReadToolChoice}),
    Where(&HasTools, {"parallel_tool_calls", kRendersChat,
                      [](Parameters& p) -> bool& { return p.parallel_tool_calls; }}),
    {"add_special add_special_tokens", kCompletes | kTokenize | kEmbeddings,
     [](const json& v, const std::string& name, Parameters& p) {
       if (!v.is_boolean()) throw BadField(name, "is not true or false");
       p.add_special = v.get<bool>();
     }},
    {"parse_special", kTokenize | kGenerates,
     [](const json& v, const std::string& name, Parameters& p) {
       if (!v.is_boolean()) throw BadField(name, "is not true or false");
       p.parse_special = v.get<bool>();
     }},
    {"input content", kEmbeddings, &ReadTexts},
    {"encoding_format", kEmbeddings,
     [](const json& v, const std::string& name, Parameters& p) {
       p.as_base64 = IsWord(v, name, "base64", "float");
     }},
    {"pooling", kEmbeddings,
     [](const json& v, const std::string& name, Parameters& p) {
       p.pooling = v == "none"                       ? Pooling::kNone
                   : IsWord(v, name, "mean", "last") ? Pooling::kMean
                                                     : Pooling::kLast;
     }},
    {"embd_normalize", kEmbeddings, [](Parameters& p) -> int64_t& { return p.norm; }, -1, 64,
     "a whole number from -1 (not) to 64; 2: Euclidean"},
    {"with_pieces return_token_strs", kTokenize, [](Parameters& p) -> bool& { return p.with_pieces; }},
};

}  // namespace

std::span<const Field> InputFields() { return kFields; }

}  // namespace coppice
