#include "server/generation_reply.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "engine/prune_json.h"
#include "server/errors.h"
#include "server/http/sse.h"
#include "server/native_reply.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

// Adds a member to the object, with members, that `text` ends with. Replies are written as text: a JSON
// document of a long one takes several times the memory.
void AddMember(std::string& text, std::string_view name, std::string_view value) {
  text.back() = ',';
  text += '"';
  text += name;
  text += "\":";
  text += value;
  text += '}';
}

class ChoiceEvents final : public JobEvents {
 public:
  ChoiceEvents(std::shared_ptr<GenerationReply> reply, int index) : reply_(std::move(reply)), index_(index) {}
  void OnPrefix(int64_t tokens) override { reply_->OnPrefix(index_, tokens); }
  void OnProgress(int64_t processed, int64_t total, double ms) override {
    reply_->OnProgress(index_, processed, total, ms);
  }
  void OnLogProbs(const TokenLogProbs& token) override { reply_->OnLogProbs(index_, token); }
  void OnText(int32_t id, const std::string& text) override { reply_->OnText(index_, id, text); }
  void OnDone(const JobResult& result) override { reply_->OnDone(index_, result); }
  void OnError(const HttpFault& fault) override { reply_->OnError(fault); }

 private:
  std::shared_ptr<GenerationReply> reply_;
  int index_;
};

}  // namespace

GenerationReply::GenerationReply(ReplyOptions options,
                                 std::vector<std::shared_ptr<const EncodedPrompt>> prompts,
                                 const Tokenizer& tokenizer, Metrics& metrics,
                                 std::shared_ptr<Exchange> exchange)
    : options_(std::move(options)), tokenizer_(tokenizer), metrics_(metrics), exchange_(std::move(exchange)) {
  std::map<const EncodedPrompt*, std::shared_ptr<LogProbList>> echoes;
  for (auto& prompt : prompts) {
    auto& echo = echoes[prompt.get()];
    const bool is_first = echo == nullptr;
    if (is_first) echo = std::make_shared<LogProbList>(tokenizer_, is_chat() || is_native());
    if (is_first) prompt_tokens_ += static_cast<int64_t>(prompt->tokens.size());
    choices_.push_back({std::move(prompt), LogProbList(tokenizer_, is_chat() || is_native())});
    Choice& choice = choices_.back();
    choice.is_first = is_first;
    if (options_.tools) choice.parser.emplace(*options_.tools);
    if (options_.parameters.return_prune_depth) {
      choice.depth = std::make_unique<DepthReport>(static_cast<int64_t>(choice.prompt->tokens.size()));
    }
    if (options_.parameters.echo && options_.parameters.log_probs) choice.echo = echo;
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (ScoresPrompt(static_cast<int>(i))) EchoLogProb(choices_[i], nullptr);
  }
}

std::shared_ptr<JobEvents> GenerationReply::Events(int index) {
  return std::make_shared<ChoiceEvents>(shared_from_this(), index);
}

TraceRecorder* GenerationReply::Recorder(int index) {
  const Choice& choice = choices_[static_cast<size_t>(index)];
  return choice.depth ? &choice.depth->recorder() : nullptr;
}

bool GenerationReply::ScoresPrompt(int index) const {
  const Choice& choice = choices_[static_cast<size_t>(index)];
  return choice.echo != nullptr && choice.is_first;
}

void GenerationReply::OnScored(int index, std::function<void()> callback) {
  choices_[static_cast<size_t>(index)].on_scored = std::move(callback);
}

// The log-probability of the next prompt token; the first prompt token has none.
void GenerationReply::EchoLogProb(Choice& choice, const TokenLogProbs* known) {
  choice.echo->Add(choice.prompt->tokens[choice.told], choice.prompt->pieces[choice.told], known);
  if (++choice.told == choice.prompt->tokens.size()) EndEcho(choice);
}

// The prompt of `choice` is scored, for all choices of this prompt.
void GenerationReply::EndEcho(Choice& choice) {
  for (Choice& other : choices_) {
    if (other.echo != choice.echo) continue;
    other.told = choice.told;
    other.log_probs.StartAt(choice.echo->offset());
  }
  if (const auto scored = std::exchange(choice.on_scored, nullptr)) scored();
}

void GenerationReply::OnPrefix(int index, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  choices_[static_cast<size_t>(index)].cached = tokens;
}

void GenerationReply::OnProgress(int index, int64_t processed, int64_t total, double ms) {
  const std::lock_guard lock(mutex_);
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (!options_.parameters.return_progress || choice.begun) return;
  OwnedJson<ordered_json> owned = Head(true);
  ordered_json& chunk = *owned;
  if (is_native()) {
    chunk = {{"index", index}, {"content", ""}, {"tokens", ordered_json::array()}, {"stop", false}};
  } else {
    ordered_json empty = {{"index", index}};
    if (is_chat()) {
      empty["delta"] = ordered_json::object();
    } else {
      empty["text"] = "";
    }
    empty["finish_reason"] = nullptr;
    chunk["choices"] = ordered_json::array({empty});
  }
  chunk["prompt_progress"] = {
      {"total", total}, {"cache", choice.cached}, {"processed", processed}, {"time_ms", ms}};
  AddDepth(choice, chunk);
  exchange_->Send(SseEvent(chunk));
}

// Adds the prompt's tokens (once), and what happened to them in the layers that ended since the last chunk.
void GenerationReply::AddDepth(Choice& choice, ordered_json& chunk) {
  if (options_.parameters.return_prompt_pieces && !choice.pieces_told) {
    choice.pieces_told = true;
    chunk["prompt_pieces"] = PromptPieces(tokenizer_, choice.prompt->tokens);
  }
  if (!choice.depth) return;
  ordered_json layers = choice.depth->TakeLayers();
  if (!layers.empty()) chunk["prompt_layers"] = std::move(layers);
}

void GenerationReply::OnLogProbs(int index, const TokenLogProbs& token) {
  const std::lock_guard lock(mutex_);
  Choice& choice = choices_[static_cast<size_t>(index)];
  Count();
  if (options_.parameters.echo && choice.told < choice.prompt->tokens.size())
    return EchoLogProb(choice, &token);
  // A chat lists only the tokens of its text; a completion also lists the token that ended it.
  const bool ends = !options_.parameters.ignore_eos && tokenizer_.EndsGeneration(token.token.id);
  if (is_chat() && ends) return;
  choice.log_probs.Add(token.token.id, tokenizer_.Piece(token.token.id), &token);
}

// The first chunk of a choice: the role, or the prompt where it is to be repeated.
void GenerationReply::BeginChoice(int index) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (choice.begun) return;
  choice.begun = true;
  if (is_chat()) {
    SendChunk(index, {{"role", "assistant"}, {"content", ""}}, "", "");
  } else if (options_.parameters.echo) {
    SendChunk(index, {}, choice.prompt->text, "");
  }
}

void GenerationReply::OnText(int index, int32_t id, const std::string& text) {
  const std::lock_guard lock(mutex_);
  Choice& choice = choices_[static_cast<size_t>(index)];
  ++choice.generated;
  Count();
  // llama.cpp's own streams always have them.
  if (options_.parameters.return_tokens || (is_native() && options_.parameters.stream))
    choice.tokens.push_back(id);
  if (options_.on_tokens) options_.on_tokens(1);
  if (choice.parser) {
    AddParts(index, choice.parser->Push(text));
  } else {
    AddText(index, text);
  }
}

void GenerationReply::AddText(int index, const std::string& text) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (!options_.parameters.stream) {
    choice.text += text;
    return;
  }
  // The role's chunk has no log-probabilities: those collected so far belong to the next chunk.
  BeginChoice(index);
  if (text.empty() && choice.log_probs.size() == 0) return;
  SendChunk(index, {{"content", text}}, text, "");
}

void GenerationReply::AddCall(int index, const ToolCall& call) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const size_t number = choice.calls->size();
  if (number > 0 && !options_.parameters.parallel_tool_calls) return;
  ordered_json item = {{"id", ToolCallId(*options_.tools, fmt::format("{} {}", options_.id, index), number)},
                       {"type", "function"},
                       {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  choice.calls->push_back(item);
  if (!options_.parameters.stream) return;
  BeginChoice(index);
  item["index"] = number;
  SendChunk(index, {{"tool_calls", ordered_json::array({item})}}, "", "");
}

void GenerationReply::AddParts(int index, const std::vector<AnswerPart>& parts) {
  for (const AnswerPart& part : parts) {
    if (part.call) {
      AddCall(index, *part.call);
    } else {
      AddText(index, part.text);
    }
  }
}

void GenerationReply::OnDone(int index, const JobResult& result) {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.done = true;
  choice.finish_reason = result.finish_reason;
  std::string tail = result.tail;
  if (choice.parser) {
    AddParts(index, choice.parser->Push(std::exchange(tail, {})));
    AddParts(index, choice.parser->Flush());
    if (!choice.calls->empty() && choice.finish_reason == "stop") choice.finish_reason = "tool_calls";
  }
  choice.figures = {.prompt = static_cast<int64_t>(choice.prompt->tokens.size()),
                    .cached = choice.cached,
                    .sampled = result.sampled,
                    .decoded = std::max<int64_t>(result.sampled - 1, 0),
                    .proposed = result.answer.proposed,
                    .accepted = result.answer.accepted,
                    .prompt_ms = result.answer.ttft_ms,
                    .decode_ms = result.answer.total_ms - result.answer.ttft_ms};
  figures_ += choice.figures;
  if (choice.is_first) cached_tokens_ += choice.cached;
  if (is_native()) choice.ending = NativeEnding(result, options_.parameters);
  if (options_.parameters.prune_asked || result.answer.prune_spec != "none" ||
      !result.answer.auto_reason.empty() || !result.answer.prune_reason.empty() || choice.depth) {
    choice.prune = PruneJson(result.answer, choice.prompt->question);
    if (choice.depth) choice.depth->AddDepths(*choice.prune);
    if (options_.parameters.prompt_scored_densely) {
      (*choice.prune)["reason"] = "echo with logprobs scores every token of the prompt, densely";
    }
  }
  ++done_;
  if (options_.parameters.stream) {
    BeginChoice(index);
    if (!tail.empty() || choice.log_probs.size() > 0) SendChunk(index, {{"content", tail}}, tail, "");
    OwnedJson<ordered_json> owned = ordered_json::object();
    ordered_json& more = *owned;
    AddDepth(choice, more);  // the layers that the prefill's progress did not report
    if (!choice.prune->is_null()) more["prune"] = *choice.prune;
    if (is_native()) {
      more["timings"] = Timings(choice.figures);
    } else if (done_ == choices_.size()) {
      Account(more);
    }
    SendChunk(index, ordered_json::object(), "", choice.finish_reason, more);
    if (done_ == choices_.size()) FinishStream();
  } else {
    choice.text += tail;
    if (done_ == choices_.size()) FinishWhole();
  }
}

void GenerationReply::OnError(const HttpFault& fault) {
  const std::lock_guard lock(mutex_);
  Fail(fault);
}

std::string GenerationReply::TakeLogProbs(Choice& choice) {
  const LogProbList* echo = choice.echo_told ? nullptr : choice.echo.get();
  choice.echo_told = true;
  if (echo == nullptr && choice.log_probs.size() == 0) return "null";
  return choice.log_probs.Take(echo);
}

ordered_json GenerationReply::Head(bool chunk) const {
  const char* object = is_chat() ? (chunk ? "chat.completion.chunk" : "chat.completion") : "text_completion";
  return {{"id", options_.id},
          {"object", object},
          {"created", options_.created},
          {"model", options_.model},
          {"system_fingerprint", "build " + options_.build}};
}

// Members beyond OpenAI's replies.
void GenerationReply::Account(ordered_json& reply) const {
  reply["timings"] = Timings(figures_);
  if (!options_.parameters.ignored.empty()) reply["ignored_parameters"] = options_.parameters.ignored;
}

void GenerationReply::SendChunk(int index, const ordered_json& delta, const std::string& text,
                                const std::string& finish_reason, const ordered_json& more) {
  if (is_native()) {
    std::string chunk = NativePart(index, text, !finish_reason.empty());
    for (const auto& [name, value] : more.items()) AddMember(chunk, name, DumpJson(value));
    exchange_->Send(SseEventOf(chunk));
    return;
  }
  ordered_json item = {{"index", index}};
  if (is_chat()) {
    item["delta"] = delta;
  } else {
    item["text"] = text;
  }
  const bool is_role = is_chat() && delta.contains("role");
  std::string choice = DumpJson(item);
  AddMember(choice, "logprobs", is_role ? "null" : TakeLogProbs(choices_[static_cast<size_t>(index)]));
  AddMember(choice, "finish_reason", finish_reason.empty() ? "null" : DumpJson(finish_reason));
  if (options_.parameters.return_tokens && !is_role)
    AddMember(choice, "tokens", DumpJson(std::exchange(choices_[static_cast<size_t>(index)].tokens, {})));
  std::string chunk = DumpJson(Head(true));
  AddMember(chunk, "choices", "[" + choice + "]");
  if (options_.parameters.include_usage) AddMember(chunk, "usage", "null");
  for (const auto& [name, value] : more.items()) AddMember(chunk, name, DumpJson(value));
  exchange_->Send(SseEventOf(chunk));
}

GenerationReply::Figures& GenerationReply::Figures::operator+=(const Figures& other) {
  prompt += other.prompt;
  cached += other.cached;
  sampled += other.sampled;
  decoded += other.decoded;
  proposed += other.proposed;
  accepted += other.accepted;
  prompt_ms += other.prompt_ms;
  decode_ms += other.decode_ms;
  return *this;
}

std::string GenerationReply::NativePart(int index, const std::string& text, bool stop) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.has_new_line |= text.find('\n') != text.npos;
  OwnedJson<ordered_json> part = ordered_json({{"index", index},
                                               {"content", text},
                                               {"tokens", std::exchange(choice.tokens, {})},
                                               {"stop", stop},
                                               {"id_slot", -1},
                                               {"tokens_predicted", choice.generated},
                                               {"tokens_evaluated", choice.prompt->tokens.size()}});
  if (stop) {
    (*part)["model"] = options_.model;
    (*part)["has_new_line"] = choice.has_new_line;
    part->update(*choice.ending);
  }
  std::string json = DumpJson(*part);
  if (choice.log_probs.size() > 0)
    AddMember(json, "completion_probabilities", choice.log_probs.TakeEntries());
  return json;
}

// The reply is about to end.
void GenerationReply::EndRequest() {
  options_.admission.reset();  // before the client sees the end and sends its next request
  exchange_->Note(
      fmt::format(" prompt={} cached={} generated={}", prompt_tokens_, cached_tokens_, figures_.sampled));
}

void GenerationReply::FinishStream() {
  EndRequest();
  if (options_.parameters.include_usage && !is_native()) {
    ordered_json chunk = Head(true);
    chunk["choices"] = ordered_json::array();
    chunk["usage"] = Usage();
    exchange_->Send(SseEvent(chunk));
  }
  if (!is_native()) exchange_->Send(kSseDone);
  exchange_->End();
  metrics_.CountRequest(200);
}

// Appends the choice to the reply, and frees the choice's memory.
void GenerationReply::AddChoice(int index, std::string& reply) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  std::string text = std::exchange(choice.text, {});
  if (options_.parameters.echo) text.insert(0, choice.prompt->text);
  if (is_native()) {
    std::string part = NativePart(index, text, true);
    AddMember(part, "timings", DumpJson(Timings(choice.figures)));
    if (!choice.prune->is_null()) AddMember(part, "prune", DumpJson(*choice.prune));
    if (!options_.parameters.ignored.empty())
      AddMember(part, "ignored_parameters", DumpJson(options_.parameters.ignored));
    reply += part;
    return;
  }
  OwnedJson<ordered_json> item = ordered_json({{"index", index}});
  if (is_chat()) {
    ordered_json message = {{"role", "assistant"}, {"content", text}};
    if (!choice.calls->empty()) {
      if (text.empty()) message["content"] = nullptr;
      message["tool_calls"] = choice.calls.Take();
    }
    (*item)["message"] = std::move(message);
  } else {
    (*item)["text"] = text;
  }
  reply += DumpJson(*item);
  AddMember(reply, "logprobs", TakeLogProbs(choice));
  AddMember(reply, "finish_reason", DumpJson(choice.finish_reason));
  if (options_.parameters.return_tokens)
    AddMember(reply, "tokens", DumpJson(std::exchange(choice.tokens, {})));
  if (options_.parameters.return_prompt_pieces) {
    const OwnedJson<ordered_json> pieces = PromptPieces(tokenizer_, choice.prompt->tokens);
    AddMember(reply, "prompt_pieces", DumpJson(*pieces));
  }
  if (choices_.size() > 1 && !choice.prune->is_null()) AddMember(reply, "prune", DumpJson(*choice.prune));
}

void GenerationReply::FinishWhole() {
  const int64_t bytes = WholeBytes();
  if (!exchange_->Hold(HeldBytes() + bytes)) return Fail(NoRoomForReplies());
  EndRequest();
  std::string reply;
  reply.reserve(static_cast<size_t>(bytes));
  if (!is_native()) {
    reply += DumpJson(Head(false));
    AddMember(reply, "choices", "[");
    reply.pop_back();
  } else if (choices_.size() > 1) {
    reply = "[";
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    if (i > 0) reply += ',';
    AddChoice(static_cast<int>(i), reply);
  }
  if (is_native()) {
    if (choices_.size() > 1) reply += ']';
    exchange_->Reply({.status = 200, .body = std::move(reply)});
    metrics_.CountRequest(200);
    return;
  }
  reply += "]}";
  OwnedJson<ordered_json> rest = ordered_json({{"usage", Usage()}});
  Account(*rest);
  if (choices_.size() == 1 && !choices_[0].prune->is_null()) (*rest)["prune"] = *choices_[0].prune;
  if (options_.parameters.verbose && is_chat()) {
    std::string prompt;
    for (const int32_t id : choices_[0].prompt->tokens) prompt += tokenizer_.Piece(id, true);
    (*rest)["__verbose"] = {{"prompt", prompt}};
  }
  for (const auto& [name, value] : rest->items()) AddMember(reply, name, DumpJson(value));
  exchange_->Reply({.status = 200, .body = std::move(reply)});
  metrics_.CountRequest(200);
}

ordered_json GenerationReply::Usage() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", figures_.sampled},
          {"total_tokens", prompt_tokens_ + figures_.sampled},
          {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}}};
}

// llama.cpp's names. The time of the first token counts as the prompt's, so rates of decode leave it out.
ordered_json GenerationReply::Timings(const Figures& f) {
  const auto rate = [](double count, double ms) { return ms > 0 ? 1000 * count / ms : 0.0; };
  const auto each = [](double count, double ms) { return count > 0 ? ms / count : 0.0; };
  const auto prompt = static_cast<double>(f.prompt - f.cached);
  const auto decoded = static_cast<double>(f.decoded);
  ordered_json timings = {{"cache_n", f.cached},
                          {"prompt_n", f.prompt - f.cached},
                          {"prompt_ms", f.prompt_ms},
                          {"prompt_per_token_ms", each(prompt, f.prompt_ms)},
                          {"prompt_per_second", rate(prompt, f.prompt_ms)},
                          {"predicted_n", f.sampled},
                          {"predicted_ms", f.decode_ms},
                          {"predicted_per_token_ms", each(decoded, f.decode_ms)},
                          {"predicted_per_second", rate(decoded, f.decode_ms)}};
  if (f.proposed > 0) {
    timings["draft_n"] = f.proposed;
    timings["draft_n_accepted"] = f.accepted;
  }
  return timings;
}

}  // namespace coppice
