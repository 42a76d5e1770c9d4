#include "server/generation_reply.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "engine/prune_json.h"
#include "server/answer_note.h"
#include "server/errors.h"
#include "server/http/sse.h"
#include "server/native_reply.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

constexpr size_t kCallBytes = 128;  // of a call beside its name and arguments

class ChoiceEvents final : public JobEvents {
 public:
  ChoiceEvents(std::shared_ptr<GenerationReply> reply, int index) : reply_(std::move(reply)), index_(index) {}
  void OnPrefix(int64_t tokens) override { reply_->OnPrefix(index_, tokens); }
  void OnHeld() override { reply_->OnHeld(); }
  void OnProgress(int64_t processed, int64_t total, double ms) override {
    reply_->OnProgress(index_, processed, total, ms);
  }
  void OnLogProbs(const TokenLogProbs& token) override { reply_->OnLogProbs(index_, token); }
  void OnThought(const std::string& text) override { reply_->OnThought(index_, text); }
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
    const Parameters& p = options_.parameters;
    if (options_.tools) choice.parser.emplace(*options_.tools, *p.tools, p.form == AnswerForm::kFree);
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

void GenerationReply::OnHeld() {
  const std::lock_guard lock(mutex_);
  if (options_.parameters.stream && !failed_) exchange_->Send(kSseHeld);
}

void GenerationReply::OnProgress(int index, int64_t processed, int64_t total, double ms) {
  const std::lock_guard lock(mutex_);
  if (options_.parameters.return_progress && !choices_[static_cast<size_t>(index)].begun)
    TellProgress(index, processed, total, ms);
  // The client sees that its prompt was read, even if the answer's first words are held back.
  if (processed == total && is_chat() && options_.parameters.stream && !failed_) BeginChoice(index);
}

void GenerationReply::TellProgress(int index, int64_t processed, int64_t total, double ms) {
  Choice& choice = choices_[static_cast<size_t>(index)];
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

void GenerationReply::OnThought(int index, const std::string& text) {
  const std::lock_guard lock(mutex_);
  AddThought(index, text);
}

void GenerationReply::AddThought(int index, const std::string& text) {
  if (text.empty() || !options_.parameters.shows_thinking) return;
  if (!options_.parameters.stream) {
    choices_[static_cast<size_t>(index)].thought += text;
    return;
  }
  BeginChoice(index);
  SendChunk(index, ThoughtMembers(text), "", "");
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

void GenerationReply::BeginCall(int index, const std::string& name) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const size_t number = choice.calls->size();
  choice.skips_call = number > 0 && !options_.parameters.parallel_tool_calls;
  if (choice.skips_call) return;
  ordered_json item = {{"id", ToolCallId(*options_.tools, fmt::format("{} {}", options_.id, index), number)},
                       {"type", "function"},
                       {"function", {{"name", name}, {"arguments", ""}}}};
  choice.calls->push_back(item);
  choice.call_bytes += name.size() + kCallBytes;
  if (!options_.parameters.stream) return;
  BeginChoice(index);
  item["index"] = number;
  SendChunk(index, {{"tool_calls", ordered_json::array({item})}}, "", "");
}

void GenerationReply::AddArguments(int index, const std::string& piece) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (choice.skips_call) return;
  choice.calls->back()["function"]["arguments"].get_ref<std::string&>() += piece;
  choice.call_bytes += piece.size();
  if (!options_.parameters.stream) return;
  const ordered_json item = {{"index", choice.calls->size() - 1}, {"function", {{"arguments", piece}}}};
  SendChunk(index, {{"tool_calls", ordered_json::array({item})}}, "", "");
}

void GenerationReply::EndCall(int index, bool is_cut) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (choice.skips_call) return;
  choice.call_is_cut = is_cut;
  const ordered_json& function = choice.calls->back()["function"];
  const ToolCall call{function["name"], function["arguments"]};
  const size_t number = choice.calls->size() - 1;
  for (ordered_json& error : call_checks_.Errors(*options_.parameters.tools, call, number)) {
    if (call_errors_->size() >= kMaxCallErrors) break;
    if (choices_.size() > 1) error["choice"] = index;
    call_errors_->push_back(std::move(error));
  }
}

void GenerationReply::AddParts(int index, const std::vector<AnswerPart>& parts) {
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        AddText(index, part.text);
        break;
      case AnswerPart::Kind::kCall:
        BeginCall(index, part.text);
        break;
      case AnswerPart::Kind::kArguments:
        AddArguments(index, part.text);
        break;
      case AnswerPart::Kind::kCallEnd:
      case AnswerPart::Kind::kCallCut:
        EndCall(index, part.kind == AnswerPart::Kind::kCallCut);
        break;
    }
  }
}

void GenerationReply::OnDone(int index, const JobResult& result) {
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.done = true;
  choice.finish_reason = result.finish_reason;
  AddThought(index, result.thought_tail);
  std::string tail = result.tail;
  if (choice.parser) {
    AddParts(index, choice.parser->Push(std::exchange(tail, {})));
    AddParts(index, choice.parser->Flush());
    const bool calls = !choice.calls->empty() && !choice.call_is_cut;
    if (calls && choice.finish_reason == "stop") choice.finish_reason = "tool_calls";
  }
  choice.figures = FiguresOf(result, std::ssize(choice.prompt->tokens), choice.cached);
  choice.reuse = result.reuse;
  figures_ += choice.figures;
  if (index == 0) result_fields_ = ResultFields(result, choice.finish_reason);
  if (choice.is_first) cached_tokens_ += choice.cached;
  if (is_native()) choice.ending = NativeEnding(result, options_.parameters);
  if (options_.parameters.prune_asked || result.answer.prune_spec != "none" ||
      !result.answer.auto_reason.empty() || !result.answer.prune_reason.empty() || choice.depth) {
    OwnedJson<ordered_json> prune = PruneJson(result.answer, choice.prompt->question);
    if (choice.depth) choice.depth->AddDepths(*prune);
    if (options_.parameters.prompt_scored_densely) {
      (*prune)["reason"] = "echo with logprobs scores every token of the prompt, densely";
    }
    choice.prune = DumpJson(*prune);
  }
  ++done_;
  if (options_.parameters.stream) {
    BeginChoice(index);
    if (!tail.empty() || choice.log_probs.size() > 0) SendChunk(index, {{"content", tail}}, tail, "");
    OwnedJson<ordered_json> owned = ordered_json::object();
    ordered_json& more = *owned;
    AddDepth(choice, more);  // the layers that the prefill's progress did not report
    if (is_native()) {
      more["timings"] = TimingsJson(choice.figures, choice.reuse);
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

}  // namespace coppice
