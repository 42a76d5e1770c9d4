// The parameters of a request. One table (parameter_table.cpp) serves every route, so that a field means the
// same on each.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/chat_prompt.h"
#include "engine/embedding.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/thinking.h"
#include "formats/json.h"
#include "policies/compose.h"

namespace coppice {

enum Route : unsigned {
  kCompletions = 1,
  kChat = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kApplyTemplate = 16,
  kNative = 32,  // llama.cpp's own form of completions
  kEmbeddings = 64,
  kCompletes = kCompletions | kNative,
  kGenerates = kCompletes | kChat,
  kRendersChat = kChat | kApplyTemplate,
};

inline constexpr Route kRoutes[] = {kCompletions,   kChat,   kTokenize,  kDetokenize,
                                    kApplyTemplate, kNative, kEmbeddings};

// Of JSON in a request: ids of two prompts of 1 M tokens; a value takes up to 64 bytes.
inline constexpr size_t kMaxRequestValues = size_t{2} << 20;
inline constexpr int kMaxChoices = 128;     // n times the number of prompts of one request
inline constexpr int kMaxTexts = 2048;      // of one embeddings request, as OpenAI's
inline constexpr int kMaxTopLogProbs = 20;  // as OpenAI and vLLM
inline constexpr size_t kMaxTemplateVariables = 256;
inline constexpr int64_t kMaxStopStrings = 1024;
inline constexpr size_t kMaxStopBytes = 1024;
// Of all stop strings together: each token of an answer is compared with all of them.
inline constexpr size_t kMaxAllStopBytes = 64 << 10;
inline constexpr size_t kMaxSaltBytes = 1024;

// A prompt as sent: text, ids, or a list in which both are mixed.
using PromptPart = std::variant<std::string, int32_t>;
using PromptInput = std::variant<std::string, std::vector<int32_t>, std::vector<PromptPart>>;

// Whether an answer may call functions: as the model likes, not at all, at least one, or this one.
enum class ToolChoice { kAuto, kNone, kAny, kOne };

// What an answer must be.
enum class AnswerForm {
  kFree,
  kGrammar,  // what Parameters::form_text says in GBNF
  kRegex,    // a match of form_text, as a whole
  kObject,   // a JSON object
  kSchema,   // JSON that fits form_value
  kChoice,   // one of the texts in form_value
};

struct Parameters {
  // Input.
  std::vector<PromptInput> prompts;
  OwnedJson<nlohmann::ordered_json> messages;  // as they were sent
  bool verbatim_prompts = false;  // RemoveMovingLines() is not applied; an option of the server, no field
  bool add_generation_prompt = true;
  std::optional<bool> continue_final_message;  // unset: if that is the assistant's
  OwnedJson<nlohmann::ordered_json> template_variables = nlohmann::ordered_json::object();
  OwnedJson<nlohmann::ordered_json> tools = nlohmann::ordered_json::array();  // as CheckTools() takes them
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string tool_name;  // of kOne
  bool parallel_tool_calls = true;
  ThinkingWish thinking;              // of a chat
  bool splits_thinking = true;        // the reply tells thinking from the answer; false: all is the answer
  bool shows_thinking = true;         // where it does: the reply has the thinking
  std::optional<bool> add_special;    // unset: the route's default
  std::optional<bool> parse_special;  // unset: not in a chat's messages, but in other texts
  bool with_pieces = false;
  bool form_is_openai = false;  // /tokenize was sent "prompt", not llama.cpp's "content"
  std::vector<int32_t> tokens;

  // Embeddings.
  Pooling pooling = Pooling::kMean;
  int64_t norm = 2;        // Normalize()
  int64_t dimensions = 0;  // 0: the model's
  bool as_base64 = false;

  // Generation.
  AnswerForm form = AnswerForm::kFree;
  std::string form_field;  // the field that asked for it
  std::string form_text;
  OwnedJson<nlohmann::ordered_json> form_value;
  std::optional<int64_t> max_tokens;  // -1: until the model stops
  int64_t n = 1;
  int64_t best_of = 1;
  std::optional<std::vector<std::string>> samplers;  // llama.cpp's names, in the order that is asked for
  int64_t min_tokens = 0;
  std::vector<std::string> dry_breakers = DefaultDryBreakers();
  bool ignore_eos = false;
  int64_t prompt_lookup = kDefaultLookup;  // as in Request
  int64_t slot = -1;                       // as in Job
  bool cache_prompt = true;
  std::string cache_salt;                 // requests with different ones share nothing in the caches
  std::string conversation;               // prompt_cache_key: requests with the same one belong together
  std::chrono::seconds cache_lifetime{};  // as in PrefixHint; of cache_control
  PrefixOwner owner;                      // whose caches the request uses: its key's and salt's; not a field
  SamplingOptions sampling;
  std::vector<std::pair<std::string, double>> biased_texts;  // logit_bias for each token of a text
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool echo = false;
  bool log_probs = false;
  int64_t top_log_probs = 0;

  // Reply.
  bool stream = false;
  bool return_tokens = false;
  bool verbose = false;  // a chat's reply shows the prompt as the model read it
  bool include_usage = false;
  bool return_progress = false;
  bool return_prompt_pieces = false;
  bool return_prune_depth = false;

  // Pruning.
  std::string prune = "none";
  bool prune_asked = false;            // the request has the field
  bool prompt_scored_densely = false;  // the default stands aside for echo with logprobs
  bool prune_confidence = false;       // report how far the answer can be trusted
  double least_confidence = 0;         // as in Request
  bool only_if_it_pays = true;         // as in Request
  bool complete = false;               // read what a pruned answer left out, once the server is idle
  Protection protection;
  PruneScope prune_scope = PruneScope::kAuto;         // of a chat
  std::optional<std::vector<PositionSpan>> question;  // unset: a chat's own; empty: the prompt's last tokens

  std::vector<std::string> ignored;  // names of unknown fields
};

// Reads a request's body on top of `defaults`. Throws HttpError, naming the field.
Parameters ParseParameters(std::string_view body, Route route, const Parameters& defaults);

// One field. A request that sends several of its names is refused.
struct Field {
  // A field that changes nothing at this value (JSON), and is refused at any other.
  struct Neutral {
    const char* json;
  };
  // A field whose value is ignored.
  struct Ignored {};
  using Custom = void (*)(const nlohmann::json& value, const std::string& name, Parameters& out);
  using Target = std::variant<bool& (*)(Parameters&), int64_t& (*)(Parameters&), double& (*)(Parameters&),
                              Custom, Neutral, Ignored>;

  std::string_view names;  // separated by spaces; the first is ours
  unsigned routes;         // of Route
  Target target;           // where it goes, which gives its type
  double low = 0;          // for numbers
  double high = 0;
  std::string_view range = {};  // in words, for messages
  // Whether the field has an effect beside the request's other fields. Where it has none a wrong value is no
  // error: clients send every field that they know. Null: it always has.
  bool (*matters)(const Parameters&) = nullptr;
};
std::span<const Field> Fields();

}  // namespace coppice
