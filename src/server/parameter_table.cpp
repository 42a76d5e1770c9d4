// Every field of every route: its names (OpenAI's, llama.cpp's, vLLM's), routes, target and range.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <system_error>

#include "engine/request.h"
#include "policies/registry.h"
#include "policies/spec.h"
#include "server/errors.h"
#include "server/parameters.h"
#include "server/prune_parameter.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr double kLeast = std::numeric_limits<double>::denorm_min();

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

void ReadStop(const json& value, const std::string& name, Parameters& out) {
  const OwnedJson<json> owned = value.is_array() ? value : json::array({value});
  const json& list = *owned;
  if (list.size() > kMaxStopStrings) throw BadField(name, fmt::format("more than {} texts", kMaxStopStrings));
  out.stop.clear();
  size_t bytes = 0;
  for (const json& item : list) {
    if (!item.is_string()) throw BadField(name, "is not a text or a list of texts");
    auto text = item.get<std::string>();
    if (text.size() > kMaxStopBytes)
      throw BadField(name, fmt::format("a text longer than {} bytes", kMaxStopBytes));
    bytes += text.size();
    if (bytes > kMaxAllStopBytes)
      throw BadField(name, fmt::format("texts of more than {} bytes together", kMaxAllStopBytes));
    if (!text.empty())
      out.stop.push_back(std::move(text));  // clients send "" where a tokenizer has no end token
  }
}

void ReadBreakers(const json& value, const std::string& name, Parameters& out) {
  const auto is_text = [](const json& one) { return one.is_string() && one != ""; };
  if (!value.is_array() || value.size() > kMaxStopStrings || !std::ranges::all_of(value, is_text))
    throw BadField(name, fmt::format("is not a list of up to {} texts", kMaxStopStrings));
  out.dry_breakers = value.get<std::vector<std::string>>();
}

// -1 is the default that clients of vLLM and SGLang send; llama.cpp, too, reads numbers below 1 as no limit.
void ReadTopK(const json& value, const std::string& name, Parameters& out) {
  const double number = value.is_number() ? value.get<double>() : -2;
  if (!(number >= -1 && number <= 1 << 30) || number != std::floor(number))
    throw BadField(name,
                   fmt::format("{} is not a whole number from 0 (no limit)", value.dump().substr(0, 40)));
  out.sampling.top_k = std::max<int64_t>(static_cast<int64_t>(number), 0);
}

// 0 leaves the likeliest token, as llama.cpp reads it.
void ReadTopP(const json& value, const std::string& name, Parameters& out) {
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= 0 && number <= 1))
    throw BadField(name, fmt::format("{} is not a number from 0 to 1", value.dump().substr(0, 40)));
  out.sampling.top_p = std::max(number, kLeast);
}

void ReadSeed(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_number_integer()) throw BadField(name, "is not a whole number");
  out.seed.reset();
  if (value.is_number_unsigned()) {
    out.seed = value.get<uint64_t>();
  } else if (value != -1) {  // llama.cpp's "a new one each time"
    out.seed = static_cast<uint64_t>(value.get<int64_t>());
  }
}

void ReadMaxTokens(const json& value, const std::string& name, Parameters& out) {
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  // The library compares as int64, to which 2^64 - 1 is -1.
  if (!value.is_number_integer() || value < -1 ||
      (value.is_number_unsigned() && value.get<uint64_t>() > kMost)) {
    throw BadField(name, fmt::format("{} is not a whole number from -1 (until the model stops) to {}",
                                     value.dump().substr(0, 40), kMost));
  }
  out.max_tokens = value.get<int64_t>();
}

// The number of likeliest tokens; the chosen token is always included. llama.cpp reads 0 as "no
// log-probabilities", OpenAI and vLLM as "only the chosen token".
void ReadLogProbs(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_number_integer() || value < 0 || value > kMaxTopLogProbs) {
    throw BadField(name, fmt::format("{} is not a whole number from 0 to {}", value.dump().substr(0, 40),
                                     kMaxTopLogProbs));
  }
  out.log_probs = name != "n_probs" || value > 0;
  out.top_log_probs = value.get<int64_t>();
}

void ReadCacheSalt(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_string()) throw BadField(name, "is not a text");
  out.cache_salt = value.get<std::string>();
  if (out.cache_salt.empty() || out.cache_salt.size() > kMaxSaltBytes)
    throw BadField(name, fmt::format("is not 1 to {} bytes long", kMaxSaltBytes));
}

void ReadStreamOptions(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_object()) throw BadField(name, "is not an object");
  for (const auto& [key, option] : value.items()) {
    if (key != "include_usage") continue;
    if (!option.is_boolean()) throw BadField(name + ".include_usage", "is not true or false");
    out.include_usage = option.get<bool>();
  }
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

void ReadStopIds(const json& value, const std::string& name, Parameters& out) {
  out.stop_token_ids = TokenIds(value, name);
  if (out.stop_token_ids.size() > 1024) throw BadField(name, "more than 1024 ids");
}

constexpr size_t kMostBiases = 1024;

double Bias(const json& value, const std::string& name) {
  if (value.is_boolean() && !value.get<bool>())
    return -std::numeric_limits<double>::infinity();  // llama.cpp's
  if (!value.is_number() || !(std::abs(value.get<double>()) <= 1000))
    throw BadField(name, "holds a bias that is neither a number from -1000 to 1000 nor false");
  return value.get<double>() <= -100 ? -std::numeric_limits<double>::infinity() : value.get<double>();
}

void AddTextBias(const std::string& text, double bias, const std::string& name, Parameters& out) {
  if (text.empty() || text.size() > kMaxStopBytes)
    throw BadField(name, fmt::format("holds a text that is not 1 to {} bytes long", kMaxStopBytes));
  out.biased_texts.emplace_back(text, bias);
}

// {"ID": bias} as OpenAI's clients send it, where -100 bans a token, or [[ID, bias], ...] as llama.cpp's. A
// text instead of an id stands for each of its tokens.
void ReadLogitBias(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_object() && !value.is_array()) throw BadField(name, "is not an object {\"ID\": bias}");
  if (value.size() > kMostBiases) throw BadField(name, fmt::format("more than {} tokens", kMostBiases));
  std::vector<TokenBias>& biases = out.sampling.logit_bias;
  biases.clear();
  out.biased_texts.clear();
  if (value.is_array()) {
    for (const json& pair : value) {
      if (!pair.is_array() || pair.size() != 2) throw BadField(name, "holds something that is no [ID, bias]");
      if (pair[0].is_string()) {
        AddTextBias(pair[0], Bias(pair[1], name), name, out);
      } else {
        biases.push_back({TokenId(pair[0], name), Bias(pair[1], name)});
      }
    }
    return;
  }
  for (const auto& [key, bias] : value.items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (end != key.data() + key.size()) {
      AddTextBias(key, Bias(bias, name), name, out);
    } else if (error != std::errc() || id < 0) {
      throw BadField(name, fmt::format("{} is not a token's id", json(key.substr(0, 40)).dump()));
    } else {
      biases.push_back({id, Bias(bias, name)});
    }
  }
}

// ParseParameters() has read the field already, with the keys in their order; this is for the table.
void ReadTools(const json&, const std::string&, Parameters&) {}

// "none", "auto", "required", or {"type": "function", "function": {"name"}}.
void ReadToolChoice(const json& value, const std::string& name, Parameters& out) {
  static const std::map<json, ToolChoice> kWords = {{"none", ToolChoice::kNone},
                                                    {"auto", ToolChoice::kAuto},
                                                    {"required", ToolChoice::kAny},
                                                    {"any", ToolChoice::kAny}};
  if (const auto word = kWords.find(value); word != kWords.end()) {
    out.tool_choice = word->second;
    return;
  }
  const json function = value.is_object() ? value.value("function", json()) : json();
  const json called = function.is_object() ? function.value("name", json()) : json();
  if (!called.is_string())
    throw BadField(name,
                   "is not none, auto, required or {\"type\": \"function\", \"function\": {\"name\": ...}}");
  out.tool_choice = ToolChoice::kOne;
  out.tool_name = called;
}

// ParseParameters() has read the schema already, with the keys in their order; this is for the table.
void ReadSchema(const json&, const std::string&, Parameters&) {}

void SetForm(AnswerForm form, const std::string& name, const json& value, Parameters& out) {
  if (!value.is_string()) throw BadField(name, "is not a text");
  const auto text = value.get<std::string>();
  if (text.empty()) return;  // clients that always send the field
  if (out.form != AnswerForm::kFree)
    throw BadField(name, fmt::format("does not go with {}: an answer has one form", out.form_field));
  out.form = form;
  out.form_field = name;
  out.form_text = text;
}

void ReadGrammar(const json& value, const std::string& name, Parameters& out) {
  SetForm(AnswerForm::kGrammar, name, value, out);
}

void ReadRegex(const json& value, const std::string& name, Parameters& out) {
  SetForm(AnswerForm::kRegex, name, value, out);
}

constexpr double kAny = std::numeric_limits<double>::max();

const Field kFields[] = {
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
    {"tool_choice", kRendersChat, &ReadToolChoice},
    {"parallel_tool_calls", kRendersChat, [](Parameters& p) -> bool& { return p.parallel_tool_calls; }},
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

    // Generation.
    {"max_tokens max_completion_tokens n_predict", kGenerates, &ReadMaxTokens},
    {"n n_cmpl", kGenerates, [](Parameters& p) -> int64_t& { return p.n; }, 1, kMaxChoices,
     "a whole number from 1 to 128"},
    {"temperature", kGenerates, [](Parameters& p) -> double& { return p.sampling.temperature; }, 0, kAny,
     "a number from 0"},
    {"top_k", kGenerates, &ReadTopK},
    {"top_p", kGenerates, &ReadTopP},
    {"min_p", kGenerates, [](Parameters& p) -> double& { return p.sampling.min_p; }, 0, 1,
     "a number from 0 to 1"},
    {"repeat_penalty repetition_penalty", kGenerates,
     [](Parameters& p) -> double& { return p.sampling.repeat_penalty; }, kLeast, kAny, "a number above 0"},
    {"repeat_last_n", kGenerates, [](Parameters& p) -> int64_t& { return p.sampling.repeat_last_n; }, -1,
     1 << 30, "a whole number from -1 (all)"},
    {"presence_penalty", kGenerates, [](Parameters& p) -> double& { return p.sampling.presence_penalty; }, -2,
     2, "a number from -2 to 2"},
    {"frequency_penalty", kGenerates, [](Parameters& p) -> double& { return p.sampling.frequency_penalty; },
     -2, 2, "a number from -2 to 2"},
    {"logit_bias", kGenerates, &ReadLogitBias},
    {"typical_p", kGenerates, [](Parameters& p) -> double& { return p.sampling.typical_p; }, kLeast, 1,
     "a number above 0 and at most 1"},
    {"top_n_sigma", kGenerates, [](Parameters& p) -> double& { return p.sampling.top_n_sigma; }, -kAny, kAny,
     "a number"},
    {"xtc_probability", kGenerates, [](Parameters& p) -> double& { return p.sampling.xtc_probability; }, 0, 1,
     "a number from 0 to 1"},
    {"xtc_threshold", kGenerates, [](Parameters& p) -> double& { return p.sampling.xtc_threshold; }, 0, 1,
     "a number from 0 to 1"},
    {"dry_multiplier", kGenerates, [](Parameters& p) -> double& { return p.sampling.dry.multiplier; }, 0,
     kAny, "a number from 0"},
    {"dry_base", kGenerates, [](Parameters& p) -> double& { return p.sampling.dry.base; }, 1, kAny,
     "a number from 1"},
    {"dry_allowed_length", kGenerates,
     [](Parameters& p) -> int64_t& { return p.sampling.dry.allowed_length; }, 1, 1 << 30,
     "a whole number from 1"},
    {"dry_penalty_last_n", kGenerates, [](Parameters& p) -> int64_t& { return p.sampling.dry.last_n; }, -1,
     1 << 30, "a whole number from -1 (all)"},
    {"dry_sequence_breakers", kGenerates, &ReadBreakers},
    {"min_tokens", kGenerates, [](Parameters& p) -> int64_t& { return p.min_tokens; }, 0, 1 << 30,
     "a whole number from 0"},
    {"prompt_lookup", kGenerates, [](Parameters& p) -> int64_t& { return p.prompt_lookup; }, 0, kMostLookup,
     "a whole number from 0 to 64"},
    {"id_slot", kGenerates, [](Parameters& p) -> int64_t& { return p.slot; }, -1, 1 << 30,
     "a whole number from -1 (any slot)"},
    {"seed", kGenerates, &ReadSeed},
    {"stop", kGenerates, &ReadStop},
    {"stop_token_ids", kGenerates, &ReadStopIds},
    {"ignore_eos", kGenerates, [](Parameters& p) -> bool& { return p.ignore_eos; }},
    {"cache_prompt", kGenerates, [](Parameters& p) -> bool& { return p.cache_prompt; }},
    {"cache_salt", kGenerates, &ReadCacheSalt},
    {"echo", kCompletions, [](Parameters& p) -> bool& { return p.echo; }},
    {"logprobs n_probs", kCompletions, &ReadLogProbs},
    {"n_probs", kNative, &ReadLogProbs},
    {"logprobs", kChat, [](Parameters& p) -> bool& { return p.log_probs; }},
    {"top_logprobs", kChat, [](Parameters& p) -> int64_t& { return p.top_log_probs; }, 0, kMaxTopLogProbs,
     "a whole number from 0 to 20"},

    // The answer's form: llama.cpp's, OpenAI's and vLLM's names.
    {"grammar guided_grammar", kGenerates, &ReadGrammar},
    {"guided_regex", kGenerates, &ReadRegex},
    {"json_schema guided_json", kGenerates, &ReadSchema},
    {"guided_choice", kGenerates, &ReadSchema},
    {"response_format", kGenerates, &ReadSchema},

    // Reply.
    {"stream", kGenerates, [](Parameters& p) -> bool& { return p.stream; }},
    {"return_tokens", kGenerates, [](Parameters& p) -> bool& { return p.return_tokens; }},
    {"stream_options", kGenerates, &ReadStreamOptions},
    {"verbose", kChat, [](Parameters& p) -> bool& { return p.verbose; }},
    {"return_progress", kGenerates, [](Parameters& p) -> bool& { return p.return_progress; }},
    {"return_prompt_pieces", kGenerates, [](Parameters& p) -> bool& { return p.return_prompt_pieces; }},
    {"return_prune_depth", kGenerates, [](Parameters& p) -> bool& { return p.return_prune_depth; }},

    // Pruning.
    {"prune", kGenerates, &ReadPrune},
    {"prune_scope", kChat, &ReadPruneScope},

    // Safe to ignore: names, labels, hints for caches and schedulers, figures that are sent anyway.
    {"model", ~0u, Field::Ignored{}},
    {"user", ~0u, Field::Ignored{}},
    {"metadata", kGenerates, Field::Ignored{}},
    {"store", kGenerates, Field::Ignored{}},
    {"service_tier", kGenerates, Field::Ignored{}},
    {"safety_identifier", kGenerates, Field::Ignored{}},
    {"prompt_cache_key", kGenerates, Field::Ignored{}},
    {"prompt_cache_retention", kGenerates, Field::Ignored{}},
    {"priority", kGenerates, Field::Ignored{}},
    {"request_id", kGenerates, Field::Ignored{}},
    {"timings_per_token", kGenerates, Field::Ignored{}},

    // Not supported: accepted only with the value that changes nothing.
    {"dimensions", kEmbeddings, Field::Neutral{"null"}},
    {"best_of", kGenerates, Field::Neutral{"1"}},
    {"suffix", kGenerates, Field::Neutral{"\"\""}},
    {"dynatemp_range", kGenerates, Field::Neutral{"0"}},
    {"mirostat", kGenerates, Field::Neutral{"0"}},
    {"samplers", kGenerates, Field::Neutral{"null"}},
    {"length_penalty", kGenerates, Field::Neutral{"1"}},
    {"use_beam_search", kGenerates, Field::Neutral{"false"}},
    {"n_keep", kGenerates, Field::Neutral{"0"}},
    {"n_discard", kGenerates, Field::Neutral{"0"}},
    {"n_indent", kGenerates, Field::Neutral{"0"}},
    {"t_max_predict_ms", kGenerates, Field::Neutral{"0"}},
    {"allowed_token_ids", kGenerates, Field::Neutral{"null"}},
    {"bad_words", kGenerates, Field::Neutral{"[]"}},
    {"prompt_logprobs", kGenerates, Field::Neutral{"null"}},
    {"truncate_prompt_tokens", kGenerates, Field::Neutral{"null"}},
    {"include_stop_str_in_output", kGenerates, Field::Neutral{"false"}},
    {"skip_special_tokens", kGenerates, Field::Neutral{"true"}},
    {"spaces_between_special_tokens", kGenerates, Field::Neutral{"true"}},
    {"return_token_ids", kGenerates, Field::Neutral{"false"}},
    {"return_tokens_as_token_ids", kGenerates, Field::Neutral{"false"}},
    {"response_fields", kGenerates, Field::Neutral{"[]"}},
    {"lora", kGenerates, Field::Neutral{"[]"}},
    {"functions", kChat, Field::Neutral{"[]"}},
    {"modalities", kChat, Field::Neutral{"[\"text\"]"}},
    {"audio", kChat, Field::Neutral{"null"}},
    {"chat_template", kRendersChat, Field::Neutral{"null"}},
    {"echo", kChat, Field::Neutral{"false"}},
};

}  // namespace

std::span<const Field> Fields() { return kFields; }

}  // namespace coppice
