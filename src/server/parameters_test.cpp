// The one parser of requests: names, ranges, forms, and what is refused with which field.
#include "server/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "policies/registry.h"
#include "server/errors.h"

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Parameters Parse(const std::string& body, Route route = kCompletions, const Parameters& defaults = {}) {
  return ParseParameters(body, route, defaults);
}

// {param, message} of the refusal; both empty where there is none.
std::pair<std::string, std::string> Refusal(const std::string& body, Route route = kCompletions) {
  try {
    Parse(body, route);
  } catch (const HttpError& error) {
    EXPECT_EQ(error.fault().status, 400);
    return {error.fault().param, error.fault().message};
  }
  return {};
}

std::string With(const std::string& members) { return R"({"prompt": "p", )" + members + "}"; }

TEST(Parameters, EveryFormOfAPrompt) {
  EXPECT_EQ(std::get<std::string>(Parse(R"({"prompt": "text"})").prompts.at(0)), "text");
  EXPECT_THAT(std::get<std::vector<int32_t>>(Parse(R"({"prompt": [1, 2]})").prompts.at(0)),
              ElementsAre(1, 2));
  EXPECT_EQ(Parse(R"({"prompt": ["a", "b"]})").prompts.size(), 2u);
  EXPECT_EQ(Parse(R"({"prompt": [[1], [2], "c"]})").prompts.size(), 3u);
  EXPECT_EQ(std::get<std::string>(Parse(R"({"prompt": {"prompt_string": "text"}})").prompts.at(0)), "text");
  EXPECT_EQ(std::get<std::string>(Parse(R"({"prompt": {"content": [{"type": "text", "text": "a"},
                                            {"type": "text", "text": "b"}]}})")
                                      .prompts.at(0)),
            "ab");
  const std::vector<PromptInput> mixed = Parse(R"({"prompt": [1, "a", 2]})").prompts;
  ASSERT_EQ(mixed.size(), 1u);
  EXPECT_EQ(std::get<std::vector<PromptPart>>(mixed[0]), (std::vector<PromptPart>{1, "a", 2}));
  for (const char* bad :
       {"[]", "[[]]", "[1, []]", R"([1, "a", -1])", R"({"content": "a"})",
        R"({"content": [{"type": "image_url"}]})", R"({"prompt_string": "a", "multimodal_data": "b"})",
        "[-1]", "[1.5]", "[2147483648]", "{}", "true", "[null]"}) {
    EXPECT_EQ(Refusal(std::string(R"({"prompt": )") + bad + "}").first, "prompt") << bad;
  }
  EXPECT_EQ(Refusal("{}").first, "prompt");
  EXPECT_EQ(Refusal(R"({"prompt": null})").first, "prompt");
}

TEST(Parameters, AliasesMeanTheSame) {
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    EXPECT_EQ(Parse(With("\"" + std::string(name) + "\": 7")).max_tokens, 7) << name;
  }
  EXPECT_THAT(Refusal(With(R"("max_tokens": 1, "n_predict": 2)")).second, HasSubstr("means the same"));
  EXPECT_EQ(Parse(With(R"("repetition_penalty": 1.5)")).sampling.repeat_penalty, 1.5);
  EXPECT_EQ(Parse(With(R"("max_tokens": null)")).max_tokens, std::nullopt);
}

TEST(Parameters, DefaultsAreTheServers) {
  Parameters defaults;
  defaults.sampling.temperature = 0.25;
  defaults.prune = "ftp";
  const Parameters p = Parse(With(R"("top_k": 3)"), kCompletions, defaults);
  EXPECT_EQ(p.sampling.temperature, 0.25);
  EXPECT_EQ(p.sampling.top_k, 3);
  EXPECT_EQ(p.prune, "ftp");
  EXPECT_FALSE(p.prune_asked);
}

TEST(Parameters, SeedsAreAnyWholeNumberOf64Bits) {
  EXPECT_EQ(Parse(With(R"("seed": 7)")).seed, 7u);
  EXPECT_EQ(Parse(With(R"("seed": 18446744073709551615)")).seed, UINT64_MAX);  // not -1
  EXPECT_EQ(Parse(With(R"("seed": -2)")).seed, UINT64_MAX - 1);
  EXPECT_EQ(Parse(With(R"("seed": -1)")).seed, std::nullopt);
}

TEST(Parameters, OutOfRangeNamesTheField) {
  const std::pair<const char*, const char*> bad[] = {{"n_predict", "-5"},
                                                     {"n_predict", "2147483648"},
                                                     {"n_predict", "18446744073709551615"},
                                                     {"max_tokens", "1.5"},
                                                     {"n", "1000000"},
                                                     {"n", "0"},
                                                     {"top_k", "-2"},
                                                     {"samplers", "[\"top_p\", \"top_k\"]"},
                                                     {"temperature", "-0.1"},
                                                     {"temperature", "\"1\""},
                                                     {"top_p", "-0.1"},
                                                     {"top_p", "1.01"},
                                                     {"min_p", "-1"},
                                                     {"repeat_penalty", "-1"},
                                                     {"repeat_last_n", "-2"},
                                                     {"seed", "1.5"},
                                                     {"logprobs", "21"},
                                                     {"logprobs", "-1"},
                                                     {"logprobs", "true"},
                                                     {"stop", "[1]"},
                                                     {"stop", "{}"},
                                                     {"echo", "1"},
                                                     {"stream", "\"yes\""},
                                                     {"best_of", "2"},
                                                     {"suffix", "\"x\""},
                                                     {"grammar", "3"},
                                                     {"guided_regex", "{}"},
                                                     {"guided_choice", "[]"},
                                                     {"guided_choice", "[1]"},
                                                     {"guided_json", "\"{\""},
                                                     {"logit_bias", "{\"-1\": 2}"},
                                                     {"logit_bias", "{\"1\": true}"},
                                                     {"logit_bias", "[[1]]"},
                                                     {"logit_bias", "[[1.5, 2]]"},
                                                     {"logit_bias", "[[\"\", 2]]"},
                                                     {"logit_bias", "3"},
                                                     {"presence_penalty", "2.5"},
                                                     {"frequency_penalty", "\"x\""},
                                                     {"typical_p", "-0.5"},
                                                     {"xtc_probability", "2"},
                                                     {"response_format", "3"},
                                                     {"response_format", "{\"type\": \"xml\"}"},
                                                     {"response_format", "{\"type\": \"json_schema\"}"},
                                                     {"prune", "3"},
                                                     {"stop_token_ids", "[-1]"},
                                                     {"n", "1e300"},
                                                     {"t_max_predict_ms", "5"},
                                                     {"mirostat", "2"},
                                                     {"min_tokens", "-4"}};
  for (const auto& [name, value] : bad) {
    const auto [param, message] = Refusal(With("\"" + std::string(name) + "\": " + value));
    EXPECT_EQ(param, name) << value;
    EXPECT_THAT(message, HasSubstr(name));
  }
}

TEST(Parameters, FormsOfAnAnswer) {
  const auto form = [](const std::string& fields) {
    const Parameters p = Parse(With(fields));
    return std::make_tuple(p.form, p.form_field, p.form_value->dump());
  };
  using Form = std::tuple<AnswerForm, std::string, std::string>;
  EXPECT_EQ(form(R"("response_format": {"type": "text"})"), (Form{AnswerForm::kFree, "", "null"}));
  EXPECT_EQ(form(R"("response_format": {"type": "json_object"})"),
            (Form{AnswerForm::kObject, "response_format", "null"}));
  // Keys keep their order.
  EXPECT_EQ(
      form(R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"b": 1, "a": 2}}})"),
      (Form{AnswerForm::kSchema, "response_format", R"({"b":1,"a":2})"}));
  EXPECT_EQ(form(R"("json_schema": {"b": 1, "a": 2})"),
            (Form{AnswerForm::kSchema, "json_schema", R"({"b":1,"a":2})"}));
  EXPECT_EQ(form(R"("guided_json": "{}")"), (Form{AnswerForm::kSchema, "guided_json", "{}"}));
  EXPECT_EQ(form(R"("guided_choice": ["x", "y"])"),
            (Form{AnswerForm::kChoice, "guided_choice", R"(["x","y"])"}));
  EXPECT_EQ(Refusal(With(R"("json_schema": {}, "guided_choice": ["x"])")).first, "guided_choice");
}

TEST(Parameters, Embeddings) {
  const Parameters p =
      Parse(R"({"input": ["a", [1, 2]], "encoding_format": "base64", "pooling": "last"})", kEmbeddings);
  EXPECT_EQ(p.prompts.size(), 2u);
  EXPECT_TRUE(p.as_base64);
  EXPECT_EQ(p.pooling, Pooling::kLast);
  EXPECT_EQ(Refusal("{}", kEmbeddings).first, "input");
  EXPECT_EQ(Refusal(R"({"input": "a", "pooling": "cls"})", kEmbeddings).first, "pooling");
  EXPECT_EQ(Refusal(R"({"input": "a", "encoding_format": "hex"})", kEmbeddings).first, "encoding_format");
  EXPECT_EQ(Refusal(R"({"input": "a", "dimensions": 0})", kEmbeddings).first, "dimensions");
  EXPECT_EQ(Parse(R"({"input": "a", "dimensions": 5})", kEmbeddings).dimensions, 5);
  EXPECT_EQ(Refusal(R"({"input": "a", "embd_normalize": -2})", kEmbeddings).first, "embd_normalize");
}

TEST(Parameters, LogitBias) {
  const auto biases = [](const std::string& value) {
    std::vector<std::pair<int32_t, double>> pairs;
    for (const TokenBias& bias : Parse(With("\"logit_bias\": " + value)).sampling.logit_bias)
      pairs.emplace_back(bias.id, bias.bias);
    return pairs;
  };
  using Pairs = std::vector<std::pair<int32_t, double>>;
  const double ban = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(biases(R"({"15": 2.5, "7": -100})"), (Pairs{{15, 2.5}, {7, ban}}));
  EXPECT_EQ(biases(R"([[15, -1], [3, false]])"), (Pairs{{15, -1}, {3, ban}}));
  EXPECT_EQ(biases("{}"), Pairs());
  EXPECT_EQ(Parse(With(R"("logit_bias": [[" the", -100], [3, 1]])")).biased_texts.at(0).first, " the");
  EXPECT_EQ(Parse(With(R"("logit_bias": {"one": 2})")).biased_texts,
            (std::vector<std::pair<std::string, double>>{{"one", 2}}));
}

TEST(Parameters, WhatAsksForNothingIsAccepted) {
  EXPECT_EQ(Refusal(With(R"("best_of": 1, "suffix": "", "presence_penalty": 0.0, "frequency_penalty": 0,
                            "logit_bias": {}, "grammar": "", "user": "me", "metadata": {"a": 1}, "model": "any",
                            "response_format": {"type": "text"}, "stop": "", "typical_p": 1.0)"))
                .second,
            "");
  EXPECT_THAT(Parse(With(R"("stop": ["", "x"])")).stop, ElementsAre("x"));
  EXPECT_THAT(Parse(With(R"("frobnicate": 1, "user": "me")")).ignored, ElementsAre("frobnicate"));
}

TEST(Parameters, WhenToPrune) {
  EXPECT_TRUE(Parse(With(R"("prune": "ftp")")).only_if_it_pays);
  EXPECT_FALSE(Parse(With(R"("prune_when": "always")")).only_if_it_pays);
  EXPECT_TRUE(Parse(With(R"("prune_when": "pays")")).only_if_it_pays);
  for (const char* wrong : {R"("prune_when": "never")", R"("prune_when": true)", R"("prune_when": ["pays"])"})
    EXPECT_EQ(Refusal(With(wrong)).first, "prune_when") << wrong;
}

TEST(Parameters, WhatHasNoEffectIsNoError) {
  for (
      const char* fields :
      {R"("dry_base": 0, "dry_allowed_length": 0, "dry_penalty_last_n": -7, "dry_sequence_breakers": "x")",
       R"("dry_multiplier": 0.8, "dry_base": 0.5, "dry_sequence_breakers": [""])",
       R"("dry_multiplier": 0.8, "dry_sequence_breakers": [])", R"("xtc_threshold": 3)",
       R"("temperature": 0, "top_p": 2, "top_k": -9, "min_p": -1, "typical_p": 7, "mirostat": 2, "best_of": 5)",
       R"("temperature": 0, "dynatemp_range": 1, "xtc_probability": 2, "samplers": ["temperature"])",
       R"("repeat_last_n": 0, "repeat_penalty": -1)", R"("stream_options": 3)",
       R"("stream": false, "stream_options": {"include_usage": 1})", R"("best_of": 3, "n": 3)",
       R"("include_stop_str_in_output": true)", R"("return_tokens_as_token_ids": true)",
       R"("n_keep": -1, "n_discard": 5, "length_penalty": 2, "spaces_between_special_tokens": false)",
       R"("t_max_predict_ms": -1, "truncate_prompt_tokens": -1)", R"("logprobs": false)",
       R"("max_tokens": 5, "n_predict": 5, "repeat_penalty": 1.1, "repetition_penalty": 1.1)",
       R"("samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc",
                        "temperature"])",
       R"("samplers": ["xtc", "top_k", "tfs_z", "typical_p", "top_p", "min_p", "dry", "temperature"])"}) {
    EXPECT_EQ(Refusal(With(fields)).second, "") << fields;
  }
  const std::string chat = R"({"messages": [{"role": "user", "content": "x"}], )";
  for (const char* fields :
       {R"("top_logprobs": 50)", R"("tool_choice": "none")", R"("tool_choice": "auto")",
        R"("tool_choice": {"type": "auto"})", R"("tools": [], "tool_choice": "none")", R"("functions": [])",
        R"("audio": {"voice": "x"})", R"("tool_choice": "some", "parallel_tool_calls": 1)",
        R"("parallel_tool_calls": false)"}) {
    EXPECT_EQ(Refusal(chat + fields + "}", kChat).second, "") << fields;
  }
  EXPECT_EQ(Parse(With(R"("repeat_penalty": 0)")).sampling.repeat_penalty, 1);
  EXPECT_EQ(Parse(With(R"("max_tokens": 100.0)")).max_tokens, 100);
  EXPECT_EQ(Parse(With(R"("seed": 7.0)")).seed, 7u);
  EXPECT_GT(Parse(With(R"("typical_p": 0)")).sampling.typical_p, 0);
  EXPECT_GT(Parse(With(R"("dry_multiplier": 1, "dry_base": 0)")).sampling.dry.base, 1);
}

TEST(Parameters, WhatHasAnEffectIsCheckedWhateverItsPlace) {
  for (const auto& [fields, param] : std::map<std::string, std::string>{
           {R"("dry_allowed_length": 0, "dry_multiplier": 0.8)", "dry_allowed_length"},
           {R"("top_p": 2, "temperature": 0.1)", "top_p"},
           {R"("xtc_threshold": 3, "xtc_probability": 0.5)", "xtc_threshold"},
           {R"("stream_options": 3, "stream": true)", "stream_options"},
           {R"("best_of": 3, "n": 2)", "best_of"},
           {R"("include_stop_str_in_output": true, "stop": "x")", "include_stop_str_in_output"},
           {R"("samplers": ["top_k", "top_p", "temperature"])", "samplers"},
           {R"("samplers": ["top_p", "min_p", "top_k", "temperature"])", "samplers"},
           {R"("max_tokens": 5, "n_predict": 6)", "n_predict"}}) {
    EXPECT_EQ(Refusal(With(fields)).first, param) << fields;
  }
}

TEST(Parameters, BadJson) {
  const std::string deep(60000, '[');
  for (const std::string& body :
       {deep, std::string("{\"prompt\": ") + deep, std::string("[1]"), std::string(""),
        std::string("{\"prompt\": \"a\", \"prompt\": \"b\"}"), With("\"top_p\": 1e400"),
        With("\"top_p\": NaN"), With("\"top_p\": Infinity"), std::string("{} x"),
        std::string("{\"prompt\": \"\xff\"}"), std::string("null")}) {
    EXPECT_NE(Refusal(body).second, "") << body.substr(0, 60);
  }
  std::string many = "{\"prompt\": [1";
  for (int i = 0; i < (2 << 20); ++i) many += ",1";
  EXPECT_THAT(Refusal(many + "]}").second, HasSubstr("too many values"));
}

TEST(Parameters, FieldsThatGoTogether) {
  EXPECT_FALSE(Parse(With(R"("stream_options": {"include_usage": true})")).include_usage);
  EXPECT_TRUE(Parse(With(R"("stream": true, "stream_options": {"include_usage": true})")).include_usage);
  EXPECT_FALSE(Parse(With(R"("return_progress": true)")).return_progress);
  const std::string chat = R"({"messages": [{"role": "user", "content": "x"}], )";
  EXPECT_EQ(Parse(chat + "\"top_logprobs\": 2}", kChat).top_log_probs, 0);
  EXPECT_EQ(Refusal(chat + "\"tools\": [{}]}", kChat).first, "tools");
  EXPECT_EQ(Refusal(R"({"messages": []})", kChat).first, "messages");
  EXPECT_EQ(Refusal(R"({"prompt": ["a", "b"], "n": 65})").first, "n");
}

TEST(Parameters, ValuesThatOthersTakeAsOff) {
  EXPECT_EQ(Parse(With(R"("top_k": -1)")).sampling.top_k, 0);
  EXPECT_GT(Parse(With(R"("top_p": 0)")).sampling.top_p, 0);
  std::string stops = "\"stop\": [\"a\"";
  for (int i = 1; i < 1024; ++i) stops += ",\"b\"";
  EXPECT_EQ(Parse(With(stops + "]")).stop.size(), 1024u);
  EXPECT_EQ(Refusal(With(stops + ",\"c\"]")).first, "stop");
  const std::string kilobyte = "\"" + std::string(1024, 'x') + "\"";
  std::string large = "\"stop\": [" + kilobyte;
  for (int i = 1; i < 65; ++i) large += "," + kilobyte;
  EXPECT_THAT(Refusal(With(large + "]")).second, HasSubstr("65536"));
}

TEST(Parameters, LogProbsOfCompletionsAreANumber) {
  EXPECT_FALSE(Parse(With("\"echo\": true")).log_probs);
  EXPECT_TRUE(Parse(With("\"logprobs\": 0")).log_probs);
  EXPECT_EQ(Parse(With("\"logprobs\": 5")).top_log_probs, 5);
  EXPECT_FALSE(Parse(With("\"n_probs\": 0")).log_probs);
}

TEST(Parameters, Prune) {
  EXPECT_EQ(Parse(With(R"("prune": "lazyllm:keep=0.5")")).prune, "lazyllm:keep=0.5");
  EXPECT_EQ(Parse(With(R"("prune": {"method": "lazyllm", "keep": 0.5, "layers": [4, 6]})")).prune,
            "lazyllm:keep=0.5,layers=4/6");
  const Parameters p = Parse(With(R"("prune": {"spec": "ftp", "protect_first": 3, "protect": [[1, 5]]})"));
  EXPECT_EQ(p.prune, "ftp");
  EXPECT_EQ(p.protection.first, 3);
  EXPECT_THAT(p.protection.spans, ElementsAre(Protection::Span{1, 5}));
  Parameters defaults;
  defaults.prune = "ftp";
  EXPECT_EQ(Parse(With("\"prune\": false"), kCompletions, defaults).prune, "none");
  EXPECT_EQ(Parse(With("\"prune\": true"), kCompletions, defaults).prune, "ftp");
  EXPECT_EQ(Parse(With("\"prune\": {\"protect_last\": 2}"), kCompletions, defaults).prune, "ftp");
  EXPECT_EQ(Refusal(With(R"("prune": {"protect": [[5, 1]]})")).first, "prune.protect");
  EXPECT_EQ(Refusal(With(R"("prune": {"protect_first": -1})")).first, "prune.protect_first");
  EXPECT_FALSE(p.question.has_value());
  EXPECT_THAT(*Parse(With(R"("prune": {"spec": "ftp", "question": []})")).question, IsEmpty());
  EXPECT_THAT(*Parse(With(R"("prune": {"question": [[5, 9], [1, 2]]})")).question,
              ElementsAre(PositionSpan{1, 2}, PositionSpan{5, 9}));
  EXPECT_EQ(Refusal(With(R"("prune": {"keep": 0.5})")).first, "prune");
  EXPECT_EQ(Refusal(With(R"("prune": "a++b")")).first, "prune");
}

TEST(Parameters, RequestsNameNoFiles) {
  std::set<std::string> methods;
  for (const MethodInfo& method : Methods()) {
    for (const MethodKey& key : method.keys) {
      const std::string setting = std::string(method.name) + ":" + key.name;
      const bool optional_file = setting == "minference:heads" || setting == "spts:proxy";
      EXPECT_EQ(key.names_file, key.fallback == "none: must be given" || optional_file) << setting;
      if (!key.names_file) continue;
      methods.insert(std::string(method.name));
      const std::string name(method.name);
      const std::string spec = name + ":" + std::string(key.name) + "=/etc/passwd";
      EXPECT_THAT(Refusal(With("\"prune\": \"" + spec + "\"")).second, HasSubstr("names a file"));
      EXPECT_THAT(Refusal(With("\"prune\": \"ftp+" + spec + "\"")).second, HasSubstr("names a file"));
      EXPECT_THAT(
          Refusal(With("\"prune\": {\"method\": \"" + name + "\", \"" + std::string(key.name) + "\": \"x\"}"))
              .second,
          HasSubstr("names a file"));
      // Out of one key's value into another's.
      EXPECT_THAT(Refusal(With("\"prune\": {\"method\": \"" + name + "\", \"min=0," + std::string(key.name) +
                               "\": \"x\"}"))
                      .second,
                  HasSubstr("names a file"));
    }
  }
  EXPECT_THAT(methods, testing::Not(IsEmpty()));
}

// A value's memory is many times its text: 16 MiB of "{}" and a comma would take a gigabyte.
TEST(Parameters, ValuesWeighWhatTheyTake) {
  const auto repeated = [](const std::string& text, int count) {
    std::string body = R"({"prompt": "p", "metadata": [0)";
    for (int i = 0; i < count; ++i) body += "," + text;
    return body + "]}";
  };
  EXPECT_EQ(Refusal(repeated("1", 2'000'000)).second, "");
  EXPECT_EQ(Refusal(repeated(R"({"role":"user","content":"a"})", 60'000)).second, "");
  for (const char* text : {"{}", "[]", "\"\"", R"({"a":1})"})
    EXPECT_THAT(Refusal(repeated(text, 450'000)).second, HasSubstr("too many values")) << text;
}

TEST(Parameters, TemplateVariablesAreFew) {
  const auto body = [](size_t count) {
    nlohmann::json variables;
    for (size_t i = 0; i < count; ++i) variables["v" + std::to_string(i)] = i;
    return nlohmann::json({{"messages", {{{"role", "user"}}}}, {"chat_template_kwargs", variables}}).dump();
  };
  EXPECT_EQ(Parse(body(kMaxTemplateVariables), kChat).template_variables->size(), kMaxTemplateVariables);
  EXPECT_EQ(Refusal(body(kMaxTemplateVariables + 1), kChat),
            std::pair(std::string("chat_template_kwargs"),
                      std::string("chat_template_kwargs: 257 variables; the most is 256")));
}

// What a number's range is in words must be there for its message.
TEST(Parameters, TheTableIsSound) {
  std::set<std::pair<Route, std::string>> seen;
  for (const Field& field : Fields()) {
    const bool is_number = field.target.index() == 1 || field.target.index() == 2;
    EXPECT_EQ(is_number, !field.range.empty()) << field.names;
    std::string rest(field.names);
    for (const Route route : kRoutes) {
      if ((field.routes & route) == 0) continue;
      for (size_t at = 0; at < rest.size();) {
        const size_t end = std::min(rest.find(' ', at), rest.size());
        EXPECT_TRUE(seen.insert({route, rest.substr(at, end - at)}).second) << rest;
        at = end + 1;
      }
    }
  }
}

}  // namespace
}  // namespace coppice
