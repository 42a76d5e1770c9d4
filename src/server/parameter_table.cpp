// Every field of every route: its names (OpenAI's, llama.cpp's, vLLM's), routes, target and range.
#include "server/parameter_table.h"

#include <fmt/format.h>

#include "server/cache_control.h"
#include "server/errors.h"
#include "server/prune_parameter.h"

namespace coppice {

namespace {

using nlohmann::json;

// Whether a field has an effect.
bool Streams(const Parameters& p) { return p.stream; }
bool Draws(const Parameters& p) { return p.sampling.temperature > 0; }
bool HasStops(const Parameters& p) { return !p.stop.empty() || !p.stop_token_ids.empty(); }
bool WantsLogProbs(const Parameters& p) { return p.log_probs; }

// llama.cpp reads numbers up to 0 as no limit.
void ReadTimeLimit(const json& value, const std::string& name, Parameters&) {
  if (!value.is_number() || value > 0) throw BadField(name, "is not supported; leave it out, or send 0");
}

// A hint: what is no text says nothing.
void ReadConversation(const json& value, const std::string&, Parameters& out) {
  if (value.is_string()) out.conversation = value.get<std::string>();
}

// Anthropic's {"type": "ephemeral", "ttl": "5m" or "1h"}; a hint, too.
void ReadCacheControl(const json& value, const std::string&, Parameters& out) {
  out.cache_lifetime = CacheLifetimeOf({{"cache_control", value}});
}

void ReadStreamOptions(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_object()) throw BadField(name, "is not an object");
  for (const auto& [key, option] : value.items()) {
    if (key != "include_usage") continue;
    if (!option.is_boolean()) throw BadField(name + ".include_usage", "is not true or false");
    out.include_usage = option.get<bool>();
  }
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

constexpr Field kFields[] = {
    // The answer's form: llama.cpp's, OpenAI's and vLLM's names.
    {"grammar guided_grammar", kGenerates, &ReadGrammar},
    {"guided_regex", kGenerates, &ReadRegex},
    {"json_schema guided_json", kGenerates, &ReadSchema},
    {"guided_choice", kGenerates, &ReadSchema},
    {"response_format", kGenerates, &ReadSchema},

    // Reply.
    {"stream", kGenerates, [](Parameters& p) -> bool& { return p.stream; }},
    {"return_tokens", kGenerates, [](Parameters& p) -> bool& { return p.return_tokens; }},
    Where(&Streams, {"stream_options", kGenerates, &ReadStreamOptions}),
    {"verbose", kChat, [](Parameters& p) -> bool& { return p.verbose; }},
    {"return_progress", kGenerates, [](Parameters& p) -> bool& { return p.return_progress; }},
    {"return_prompt_pieces", kGenerates, [](Parameters& p) -> bool& { return p.return_prompt_pieces; }},
    {"return_prune_depth", kGenerates, [](Parameters& p) -> bool& { return p.return_prune_depth; }},

    // Pruning.
    {"prune", kGenerates, &ReadPrune},
    {"prune_scope", kChat, &ReadPruneScope},
    {"prune_when", kGenerates, &ReadPruneWhen},

    // Safe to ignore: names, labels, hints for caches and schedulers, figures that are sent anyway.
    {"model", ~0u, Field::Ignored{}},
    {"user", ~0u, Field::Ignored{}},
    {"metadata", kGenerates, Field::Ignored{}},
    {"store", kGenerates, Field::Ignored{}},
    {"service_tier", kGenerates, Field::Ignored{}},
    {"safety_identifier", kGenerates, Field::Ignored{}},
    {"prompt_cache_key", kGenerates, &ReadConversation},
    {"cache_control", kGenerates, &ReadCacheControl},
    {"prompt_cache_retention", kGenerates, Field::Ignored{}},
    {"priority", kGenerates, Field::Ignored{}},
    {"request_id", kGenerates, Field::Ignored{}},
    {"timings_per_token", kGenerates, Field::Ignored{}},

    // Without an effect here: they go with context shifts, beam search, audio and shown special tokens, which
    // there are not.
    {"n_keep", kGenerates, Field::Ignored{}},
    {"n_discard", kGenerates, Field::Ignored{}},
    {"length_penalty", kGenerates, Field::Ignored{}},
    {"spaces_between_special_tokens", kGenerates, Field::Ignored{}},
    {"audio", kChat, Field::Ignored{}},

    // Not supported: accepted only with the value that changes nothing.
    {"dimensions", kEmbeddings, [](Parameters& p) -> int64_t& { return p.dimensions; }, 1, 1 << 30,
     "a whole number from 1"},
    {"suffix", kGenerates, Field::Neutral{"\"\""}},
    Where(&Draws, {"dynatemp_range", kGenerates, Field::Neutral{"0"}}),
    Where(&Draws, {"mirostat", kGenerates, Field::Neutral{"0"}}),
    {"use_beam_search", kGenerates, Field::Neutral{"false"}},
    {"n_indent", kGenerates, Field::Neutral{"0"}},
    {"t_max_predict_ms", kGenerates, &ReadTimeLimit},
    {"allowed_token_ids", kGenerates, Field::Neutral{"null"}},
    {"bad_words", kGenerates, Field::Neutral{"[]"}},
    {"prompt_logprobs", kGenerates, Field::Neutral{"null"}},
    {"truncate_prompt_tokens", kGenerates, Field::Neutral{"-1"}},  // to the context's length
    Where(&HasStops, {"include_stop_str_in_output", kGenerates, Field::Neutral{"false"}}),
    {"skip_special_tokens", kGenerates, Field::Neutral{"true"}},
    {"return_token_ids", kGenerates, Field::Neutral{"false"}},
    Where(&WantsLogProbs, {"return_tokens_as_token_ids", kGenerates, Field::Neutral{"false"}}),
    {"response_fields", kGenerates, Field::Neutral{"[]"}},
    {"lora", kGenerates, Field::Neutral{"[]"}},
    {"functions", kChat, Field::Neutral{"[]"}},
    {"modalities", kChat, Field::Neutral{"[\"text\"]"}},
    {"chat_template", kRendersChat, Field::Neutral{"null"}},
    {"echo", kChat, Field::Neutral{"false"}},
};

}  // namespace

std::span<const Field> Fields() {
  static const std::vector<Field> fields = [] {
    std::vector<Field> all;
    for (const std::span<const Field> part :
         {InputFields(), ThinkingFields(), SamplingFields(), std::span<const Field>(kFields)})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return fields;
}

}  // namespace coppice
