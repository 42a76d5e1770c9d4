#include "eval/arm.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/peak_memory.h"
#include "engine/chat_prompt.h"
#include "eval/metrics/python_text.h"

namespace coppice {

namespace {

constexpr EncodeOptions kWhole{.add_special = true, .parse_special = false};
constexpr EncodeOptions kPart{.add_special = false, .parse_special = false};

double LogSum(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  return top + std::log(sum);
}

ChatPrompt EncodePrompt(const Sample& sample, const ArmContext& context) {
  const Tokenizer& tokenizer = *context.engine.tokenizer();
  if (!context.chat || sample.plain)
    return {.tokens = tokenizer.Encode(sample.prompt + sample.answer_prefix, kWhole), .question = {}};
  ChatPrompt prompt = EncodeChat({{"user", sample.prompt}}, tokenizer);
  const std::vector<int32_t> prefix = tokenizer.Encode(sample.answer_prefix, kPart);
  prompt.tokens.insert(prompt.tokens.end(), prefix.begin(), prefix.end());
  return prompt;
}

std::string TextOf(std::span<const int32_t> tokens, const Tokenizer& tokenizer) {
  Utf8Stream stream;
  std::string text;
  for (const int32_t id : tokens) text += stream.Push(tokenizer.Piece(id));
  return text + stream.Flush();
}

// The tokens that hold a byte of the sample's evidence, which stands in the prompt once.
std::vector<PositionSpan> EvidenceOf(const Sample& sample, std::span<const int32_t> tokens,
                                     const Tokenizer& tokenizer) {
  if (sample.evidence.empty()) return {};
  std::string text;
  std::vector<size_t> ends;
  for (const int32_t id : tokens) {
    text += tokenizer.Piece(id);
    ends.push_back(text.size());
  }
  const size_t begin = text.find(sample.evidence);
  if (begin == std::string::npos) return {};
  const auto first = std::upper_bound(ends.begin(), ends.end(), begin);
  const auto last = std::lower_bound(first, ends.end(), begin + sample.evidence.size());
  return {{first - ends.begin(), last - ends.begin() + 1}};
}

bool HoldsFirstLine(std::string_view text) {
  const size_t begin = text.find_first_not_of('\n');
  return begin != std::string_view::npos && text.find('\n', begin) != std::string_view::npos;
}

std::vector<double> Shares(const Ledger& ledger, double (*value)(const LayerCounts& layer, double prompt)) {
  std::vector<double> shares;
  for (const LayerCounts& layer : ledger.layers()) {
    const double share = value(layer, static_cast<double>(ledger.prompt_tokens()));
    shares.push_back(std::round(share * 1e5) / 1e5);
  }
  return shares;
}

// Adds up a sample's requests: a prefill for each choice. Times and FLOPs are means over requests; other
// fields are those of the last request.
class Account {
 public:
  void Add(const Answer& answer, int64_t prompt_tokens, const Trace& trace) {
    ++requests_;
    ttft_ms_ += answer.ttft_ms;
    total_ms_ += answer.total_ms;
    flops_ += answer.ledger.prefill_flops();
    flops_dense_ += answer.ledger.prefill_flops_dense();
    prompt_tokens_ += prompt_tokens;
    for (size_t i = 0; i < kOpKindNames.size(); ++i) parts_[i] += answer.prefill_times.seconds[i];
    last_ = answer;
    std::vector<int64_t> rows;
    for (const LayerCounts& layer : answer.ledger.layers()) rows.push_back(layer.kv_rows);
    places_ = PlacesOf(trace);
    ffn_places_ = FfnPlacesOf(trace);
    if (AllPlaces(ffn_places_, rows.size()) == AllPlaces(places_, rows.size())) ffn_places_.clear();
    use_ = UseOf(trace, rows);
  }

  void AddTo(SampleResult& result) const {
    const auto n = static_cast<double>(std::max<int64_t>(requests_, 1));
    const Ledger& ledger = last_.ledger;
    result.spec = last_.prune_spec;
    result.active = last_.prune_active;
    result.reason = last_.prune_reason;
    result.auto_reason = last_.auto_reason;
    result.prompt_tokens = static_cast<double>(prompt_tokens_) / n;
    result.generated_tokens = static_cast<int64_t>(last_.tokens.size());
    result.finish_reason = last_.finish_reason;
    result.ttft_ms = ttft_ms_ / n;
    result.total_ms = total_ms_ / n;
    result.decode_tokens_per_second = last_.decode_tokens_per_second;
    result.flops = flops_ / n;
    result.flops_dense = flops_dense_ / n;
    if (requests_ == 1) result.confidence = last_.confidence;
    result.kept_per_layer = Shares(
        ledger, [](const LayerCounts& l, double prompt) { return static_cast<double>(l.kv_rows) / prompt; });
    result.ffn_per_layer = Shares(
        ledger, [](const LayerCounts& l, double prompt) { return static_cast<double>(l.ffn_rows) / prompt; });
    result.density_per_layer = Shares(ledger, [](const LayerCounts& l, double) { return l.density; });
    result.kept_by_place = places_;
    result.ffn_by_place = ffn_places_;
    result.used_by_step = use_;
    result.parts_ms.emplace();
    for (size_t i = 0; i < parts_.size(); ++i) result.parts_ms->ms[i] = 1000 * parts_[i] / n;
    result.kv_bytes = ledger.kv_bytes;
    result.kv_bytes_dense = ledger.kv_bytes_dense;
    result.aux_bytes = ledger.aux_bytes;
    result.cold_bytes = ledger.cold_bytes;
    result.peak_held_bytes = ledger.peak_held_bytes;
  }

 private:
  int64_t requests_ = 0;
  int64_t prompt_tokens_ = 0;
  double ttft_ms_ = 0, total_ms_ = 0, flops_ = 0, flops_dense_ = 0;
  std::array<double, kOpKindNames.size()> parts_ = {};
  Answer last_;
  std::vector<PlaceRow> places_, ffn_places_;
  TokenUse use_;
};

// Keeps dense's logits of the first `wanted` positions, or adds up another arm's divergence from them.
class Comparison {
 public:
  Comparison(bool is_dense, size_t wanted, DenseLogits& dense)
      : is_dense_(is_dense), wanted_(wanted), dense_(dense) {
    if (is_dense) dense.positions.clear();
  }
  void See(std::span<const float> logits) {
    const size_t position = seen_++;
    if (position >= wanted_) return;
    if (is_dense_) {
      dense_.positions.emplace_back(logits.begin(), logits.end());
    } else if (position < dense_.positions.size()) {
      sum_ += Divergence(dense_.positions[position], logits);
      ++compared_;
    }
  }
  // The mean; dense does not diverge from itself.
  std::optional<double> kl() const {
    if (is_dense_) return 0;
    return compared_ > 0 ? std::optional(sum_ / static_cast<double>(compared_)) : std::nullopt;
  }

 private:
  bool is_dense_;
  size_t wanted_;
  DenseLogits& dense_;
  size_t seen_ = 0, compared_ = 0;
  double sum_ = 0;
};

Request RequestFor(const std::string& prune, const ArmContext& context, double share_begin, double share,
                   TraceRecorder& recorder) {
  Request request;
  request.trace = &recorder;
  request.prune = prune;
  request.sampling.temperature = 0;
  request.confidence = true;
  request.protection = context.protection;
  request.cancelled = context.cancelled;
  request.use_documents = context.use_documents;
  const double layers = context.engine.model().config().shape.layer_count();
  if (context.progress) {
    request.progress = [&context, share_begin, share, layers](double done) {
      context.progress(share_begin + share * done / layers);
    };
  }
  return request;
}

void RunAnswer(const Sample& sample, const std::string& prune, const ArmContext& context,
               Comparison& comparison, Account& account, SampleResult& result) {
  const Tokenizer& tokenizer = *context.engine.tokenizer();
  TraceRecorder recorder;
  Request request = RequestFor(prune, context, 0, 1, recorder);
  ChatPrompt prompt = EncodePrompt(sample, context);
  request.tokens = std::move(prompt.tokens);
  request.question = std::move(prompt.question);
  request.evidence = EvidenceOf(sample, request.tokens, tokenizer);
  request.max_tokens = sample.max_tokens;
  request.on_logits = [&](std::span<const float> logits) { comparison.See(logits); };
  std::string so_far;
  // Once the text contains all references, no continuation changes the score.
  const bool stops_when_right = context.stop_when_right && sample.metric == "string_match_all";
  if (sample.first_line || stops_when_right) {
    request.on_token = [&](int32_t id) {
      so_far += tokenizer.Piece(id);
      if (stops_when_right && context.metrics.Score(sample, so_far) >= 1) return false;
      return !sample.first_line || !HoldsFirstLine(so_far);
    };
  }
  const auto prompt_tokens = static_cast<int64_t>(request.tokens.size());
  const Answer answer = context.engine.Generate(request);
  account.Add(answer, prompt_tokens, recorder.trace());
  const std::string text = TextOf(answer.tokens, tokenizer);
  result.score = context.metrics.Score(sample, text);
  result.text = text;
}

struct Likelihood {
  double log_probability = 0;
  size_t tokens = 0;
};

Likelihood RunChoice(const EncodedChoice& encoded, const std::string& prune, const ArmContext& context,
                     double share_begin, double share, Comparison* comparison, Account& account) {
  TraceRecorder recorder;
  Request request = RequestFor(prune, context, share_begin, share, recorder);
  request.tokens = encoded.context;
  request.forced = encoded.continuation;
  request.max_tokens = static_cast<int64_t>(encoded.continuation.size());
  request.ignore_eos = true;
  // A context that is too long loses its beginning, as in lm-evaluation-harness.
  const int64_t room = context.engine.context() - request.max_tokens;
  if (room < 1) throw Error("a continuation of {} tokens leaves no room for its context", request.max_tokens);
  const int64_t excess = static_cast<int64_t>(request.tokens.size()) - room;
  if (excess > 0) request.tokens.erase(request.tokens.begin(), request.tokens.begin() + excess);
  Likelihood likelihood;
  request.on_logits = [&](std::span<const float> logits) {
    likelihood.log_probability += LogProbability(logits, encoded.continuation[likelihood.tokens++]);
    if (comparison != nullptr) comparison->See(logits);
  };
  const auto prompt_tokens = static_cast<int64_t>(request.tokens.size());
  const Answer answer = context.engine.Generate(request);
  account.Add(answer, prompt_tokens, recorder.trace());
  if (!std::isfinite(likelihood.log_probability)) throw Error("the model's logits are not finite");
  return likelihood;
}

// The likeliest choice, and the likeliest for its length in characters (acc_norm of lm-evaluation-harness).
void RunChoices(const Sample& sample, const std::string& prune, const ArmContext& context,
                Comparison& comparison, Account& account, SampleResult& result) {
  std::vector<double> likelihoods, normalized;
  const double share = 1.0 / static_cast<double>(sample.choices.size());
  for (size_t i = 0; i < sample.choices.size(); ++i) {
    const Choice& choice = sample.choices[i];
    const EncodedChoice encoded = EncodeChoice(choice, *context.engine.tokenizer());
    if (encoded.continuation.empty()) throw Error("choice {} has no token of its own", i);
    const Likelihood found = RunChoice(encoded, prune, context, static_cast<double>(i) * share, share,
                                       i == 0 ? &comparison : nullptr, account);
    likelihoods.push_back(found.log_probability);
    normalized.push_back(found.log_probability / choice.norm_length);
  }
  const auto best = [](const std::vector<double>& values) {
    return static_cast<int>(std::max_element(values.begin(), values.end()) - values.begin());
  };
  result.score = best(likelihoods) == sample.gold ? 1 : 0;
  result.score_norm = best(normalized) == sample.gold ? 1 : 0;
  result.log_likelihoods = likelihoods;
}

void RunContinuation(const Sample& sample, const std::string& prune, const ArmContext& context,
                     Comparison& comparison, Account& account, SampleResult& result) {
  const EncodedChoice encoded = EncodeChoice(sample.choices.front(), *context.engine.tokenizer());
  const Likelihood found = RunChoice(encoded, prune, context, 0, 1, &comparison, account);
  result.nll = -found.log_probability;
  result.scored_tokens = static_cast<int64_t>(found.tokens);
  result.score = std::exp(-found.log_probability / static_cast<double>(std::max<size_t>(found.tokens, 1)));
}

}  // namespace

SampleResult RunSample(const Sample& sample, const std::string& prune, const ArmContext& context,
                       DenseLogits& dense) {
  SampleResult result;
  result.prune = prune;
  Account account;
  const size_t positions = sample.kind == SampleKind::kContinue ? SIZE_MAX : 1;
  Comparison comparison(prune == "none", positions, dense);
  ResetPeakMemory();
  if (sample.kind == SampleKind::kAnswer) {
    RunAnswer(sample, prune, context, comparison, account, result);
  } else if (sample.kind == SampleKind::kChoose) {
    RunChoices(sample, prune, context, comparison, account, result);
  } else {
    RunContinuation(sample, prune, context, comparison, account, result);
  }
  result.kl = comparison.kl();
  account.AddTo(result);
  result.peak_memory_bytes = PeakMemoryBytes();
  return result;
}

std::vector<int32_t> PromptOf(const Sample& sample, const ArmContext& context) {
  if (sample.kind == SampleKind::kAnswer) return EncodePrompt(sample, context).tokens;
  return EncodeChoice(sample.choices.front(), *context.engine.tokenizer()).context;
}

int64_t PromptTokens(const Sample& sample, const ArmContext& context) {
  if (sample.kind == SampleKind::kAnswer)
    return static_cast<int64_t>(EncodePrompt(sample, context).tokens.size());
  size_t longest = 0;
  for (const Choice& choice : sample.choices)
    longest = std::max(longest, EncodeChoice(choice, *context.engine.tokenizer()).context.size());
  return static_cast<int64_t>(longest);
}

EncodedChoice EncodeChoice(const Choice& choice, const Tokenizer& tokenizer) {
  // White space of any script at the end belongs to the continuation.
  const std::u32string text = ToCodePoints(choice.context);
  size_t end = text.size();
  while (end > 0 && IsPythonSpace(text[end - 1])) --end;
  const std::string context = ToUtf8(std::u32string_view(text).substr(0, end));
  const std::string spaces = ToUtf8(std::u32string_view(text).substr(end));
  EncodedChoice encoded{tokenizer.Encode(context, kWhole), {}};
  const std::vector<int32_t> whole = tokenizer.Encode(context + spaces + choice.continuation, kWhole);
  const size_t seam = std::min(encoded.context.size(), whole.size());
  encoded.continuation.assign(whole.begin() + static_cast<std::ptrdiff_t>(seam), whole.end());
  return encoded;
}

double LogProbability(std::span<const float> logits, int32_t token) {
  return logits[static_cast<size_t>(token)] - LogSum(logits);
}

double Divergence(std::span<const float> dense, std::span<const float> other) {
  const double dense_sum = LogSum(dense);
  const double other_sum = LogSum(other);
  double divergence = 0;
  for (size_t i = 0; i < dense.size(); ++i) {
    const double log_p = dense[i] - dense_sum;
    divergence += std::exp(log_p) * (log_p - (other[i] - other_sum));
  }
  return std::max(divergence, 0.0);
}

}  // namespace coppice
