// The fields that say how tokens are drawn and what ends an answer.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include "engine/request.h"
#include "server/errors.h"
#include "server/parameter_table.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr double kLeast = std::numeric_limits<double>::denorm_min();
constexpr double kAny = std::numeric_limits<double>::max();

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

// Whether a field has an effect.
bool Draws(const Parameters& p) { return p.sampling.temperature > 0; }
bool UsesDry(const Parameters& p) { return p.sampling.dry.multiplier > 0; }
bool UsesXtc(const Parameters& p) { return Draws(p) && p.sampling.xtc_probability > 0; }
bool CoversTokens(const Parameters& p) { return p.sampling.repeat_last_n != 0; }
bool WantsLogProbs(const Parameters& p) { return p.log_probs; }

// An empty text breaks nothing.
void ReadBreakers(const json& value, const std::string& name, Parameters& out) {
  if (!value.is_array() || value.size() > kMaxStopStrings ||
      !std::ranges::all_of(value, [](const json& one) { return one.is_string(); }))
    throw BadField(name, fmt::format("is not a list of up to {} texts", kMaxStopStrings));
  out.dry_breakers = value.get<std::vector<std::string>>();
  std::erase(out.dry_breakers, "");
}

double NumberFrom0To(double most, const json& value, const std::string& name) {
  const double number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= 0 && number <= most))
    throw BadField(name, fmt::format("{} is not a number from 0{}", value.dump().substr(0, 40),
                                     most == kAny ? "" : fmt::format(" to {}", most)));
  return number;
}

// llama.cpp takes its own base where the one sent is below 1.
void ReadDryBase(const json& value, const std::string& name, Parameters& out) {
  const double number = NumberFrom0To(kAny, value, name);
  out.sampling.dry.base = number < 1 ? DryOptions().base : number;
}

// 0 is off: there is nothing else that it could mean, as llama.cpp would divide by it.
void ReadRepeatPenalty(const json& value, const std::string& name, Parameters& out) {
  const double number = NumberFrom0To(kAny, value, name);
  out.sampling.repeat_penalty = number == 0 ? 1 : number;
}

void ReadSamplers(const json& value, const std::string& name, Parameters& out) {
  const auto is_text = [](const json& one) { return one.is_string(); };
  if (!value.is_array() || value.size() > 64 || !std::ranges::all_of(value, is_text))
    throw BadField(name, "is not a list of samplers' names");
  out.samplers = value.get<std::vector<std::string>>();
  for (std::string& one : *out.samplers) {
    if (one == "typical_p" || one == "typical") one = "typ_p";
    if (one == "temp") one = "temperature";
  }
}

// -1 is the default that clients of vLLM and SGLang send; llama.cpp, too, reads numbers below 1 as no limit.
void ReadTopK(const json& value, const std::string& name, Parameters& out) {
  const double number = value.is_number() ? value.get<double>() : -2;
  if (!(number >= -1 && number <= 1 << 30) || number != std::floor(number))
    throw BadField(name,
                   fmt::format("{} is not a whole number from 0 (no limit)", value.dump().substr(0, 40)));
  out.sampling.top_k = std::max<int64_t>(static_cast<int64_t>(number), 0);
}

// 0 leaves one token, as llama.cpp reads both (vLLM refuses a top_p of 0, OpenAI takes it).
void ReadTopP(const json& value, const std::string& name, Parameters& out) {
  out.sampling.top_p = std::max(NumberFrom0To(1, value, name), kLeast);
}

void ReadTypicalP(const json& value, const std::string& name, Parameters& out) {
  out.sampling.typical_p = std::max(NumberFrom0To(1, value, name), kLeast);
}

// Clients of languages with one kind of number send 100.0.
json Whole(const json& value) {
  if (!value.is_number_float()) return value;
  const auto number = value.get<double>();
  constexpr double kMostExact = int64_t{1} << 53;
  if (number != std::floor(number) || std::abs(number) > kMostExact) return value;
  return static_cast<int64_t>(number);
}

void ReadSeed(const json& sent, const std::string& name, Parameters& out) {
  const json value = Whole(sent);
  if (!value.is_number_integer()) throw BadField(name, "is not a whole number");
  out.seed.reset();
  if (value.is_number_unsigned()) {
    out.seed = value.get<uint64_t>();
  } else if (value != -1) {  // llama.cpp's "a new one each time"
    out.seed = static_cast<uint64_t>(value.get<int64_t>());
  }
}

void ReadMaxTokens(const json& sent, const std::string& name, Parameters& out) {
  const json value = Whole(sent);
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
  if (value == false) return;  // a chat's field
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

constexpr Field kFields[] = {
    // Generation.
    {"max_tokens max_completion_tokens n_predict", kGenerates, &ReadMaxTokens},
    {"n n_cmpl", kGenerates, [](Parameters& p) -> int64_t& { return p.n; }, 1, kMaxChoices,
     "a whole number from 1 to 128"},
    {"temperature", kGenerates, [](Parameters& p) -> double& { return p.sampling.temperature; }, 0, kAny,
     "a number from 0"},
    Where(&Draws, {"top_k", kGenerates, &ReadTopK}),
    Where(&Draws, {"top_p", kGenerates, &ReadTopP}),
    Where(&Draws, {"min_p", kGenerates, [](Parameters& p) -> double& { return p.sampling.min_p; }, 0, 1,
                   "a number from 0 to 1"}),
    Where(&Draws, {"samplers", kGenerates, &ReadSamplers}),
    Where(&Draws, {"best_of", kGenerates, [](Parameters& p) -> int64_t& { return p.best_of; }, 1, kMaxChoices,
                   "a whole number from 1 to 128"}),
    Where(&CoversTokens, {"repeat_penalty repetition_penalty", kGenerates, &ReadRepeatPenalty}),
    {"repeat_last_n", kGenerates, [](Parameters& p) -> int64_t& { return p.sampling.repeat_last_n; }, -1,
     1 << 30, "a whole number from -1 (all)"},
    {"presence_penalty", kGenerates, [](Parameters& p) -> double& { return p.sampling.presence_penalty; }, -2,
     2, "a number from -2 to 2"},
    {"frequency_penalty", kGenerates, [](Parameters& p) -> double& { return p.sampling.frequency_penalty; },
     -2, 2, "a number from -2 to 2"},
    {"logit_bias", kGenerates, &ReadLogitBias},
    Where(&Draws, {"typical_p", kGenerates, &ReadTypicalP}),
    Where(&Draws, {"top_n_sigma", kGenerates, [](Parameters& p) -> double& { return p.sampling.top_n_sigma; },
                   -kAny, kAny, "a number"}),
    Where(&Draws,
          {"xtc_probability", kGenerates, [](Parameters& p) -> double& { return p.sampling.xtc_probability; },
           0, 1, "a number from 0 to 1"}),
    Where(&UsesXtc,
          {"xtc_threshold", kGenerates, [](Parameters& p) -> double& { return p.sampling.xtc_threshold; }, 0,
           1, "a number from 0 to 1"}),
    {"dry_multiplier", kGenerates, [](Parameters& p) -> double& { return p.sampling.dry.multiplier; }, 0,
     kAny, "a number from 0"},
    Where(&UsesDry, {"dry_base", kGenerates, &ReadDryBase}),
    Where(&UsesDry, {"dry_allowed_length", kGenerates,
                     [](Parameters& p) -> int64_t& { return p.sampling.dry.allowed_length; }, 1, 1 << 30,
                     "a whole number from 1"}),
    Where(&UsesDry,
          {"dry_penalty_last_n", kGenerates, [](Parameters& p) -> int64_t& { return p.sampling.dry.last_n; },
           -1, 1 << 30, "a whole number from -1 (all)"}),
    Where(&UsesDry, {"dry_sequence_breakers", kGenerates, &ReadBreakers}),
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
    Where(&WantsLogProbs, {"top_logprobs", kChat, [](Parameters& p) -> int64_t& { return p.top_log_probs; },
                           0, kMaxTopLogProbs, "a whole number from 0 to 20"}),
};

}  // namespace

std::span<const Field> SamplingFields() { return kFields; }

}  // namespace coppice
