// The writing half of the reply to a generation request: the chunks of a stream, and the whole reply.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "server/answer_note.h"
#include "server/errors.h"
#include "server/generation_reply.h"
#include "server/http/sse.h"

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

}  // namespace

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
  reply["timings"] = TimingsJson(figures_, choices_.front().reuse);
  if (!options_.parameters.ignored.empty()) reply["ignored_parameters"] = options_.parameters.ignored;
  if (!call_errors_->empty()) reply["tool_call_errors"] = *call_errors_;
}

void GenerationReply::SendChunk(int index, const ordered_json& delta, const std::string& text,
                                const std::string& finish_reason, const ordered_json& more) {
  Choice& known = choices_[static_cast<size_t>(index)];
  if (is_native()) {
    std::string chunk = NativePart(index, text, !finish_reason.empty());
    if (!finish_reason.empty() && !known.prune.empty()) AddMember(chunk, "prune", known.prune);
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
  AddMember(choice, "logprobs", is_role ? "null" : TakeLogProbs(known));
  AddMember(choice, "finish_reason", finish_reason.empty() ? "null" : DumpJson(finish_reason));
  if (options_.parameters.return_tokens && !is_role)
    AddMember(choice, "tokens", DumpJson(std::exchange(known.tokens, {})));
  std::string chunk = DumpJson(Head(true));
  AddMember(chunk, "choices", "[" + choice + "]");
  if (options_.parameters.include_usage) AddMember(chunk, "usage", "null");
  if (!finish_reason.empty() && !known.prune.empty()) AddMember(chunk, "prune", known.prune);
  for (const auto& [name, value] : more.items()) AddMember(chunk, name, DumpJson(value));
  exchange_->Send(SseEventOf(chunk));
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
  exchange_->Note(AnswerNote({.model = options_.model,
                              .choices = std::ssize(choices_),
                              .prompt_tokens = prompt_tokens_,
                              .cached_tokens = cached_tokens_,
                              .generated_tokens = figures_.sampled,
                              .decode_tokens_per_second = figures_.decoded_per_second()},
                             choices_.front().reuse, std::move(result_fields_)));
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
    AddMember(part, "timings", DumpJson(TimingsJson(choice.figures, choice.reuse)));
    if (!choice.prune.empty()) AddMember(part, "prune", choice.prune);
    if (!options_.parameters.ignored.empty())
      AddMember(part, "ignored_parameters", DumpJson(options_.parameters.ignored));
    reply += part;
    return;
  }
  OwnedJson<ordered_json> item = ordered_json({{"index", index}});
  if (is_chat()) {
    ordered_json message = {{"role", "assistant"}, {"content", text}};
    if (!choice.thought.empty()) message.update(ThoughtMembers(std::exchange(choice.thought, {})));
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
  if (choice.pieces) AddMember(reply, "prompt_pieces", *choice.pieces);
  if (choices_.size() > 1 && !choice.prune.empty()) AddMember(reply, "prune", choice.prune);
}

// Makes the texts of the prompts' tokens, once for the choices of one prompt.
void GenerationReply::MakePieces() {
  std::map<const EncodedPrompt*, std::shared_ptr<const std::string>> made;
  for (Choice& choice : choices_) {
    auto& pieces = made[choice.prompt.get()];
    if (!pieces) {
      const OwnedJson<ordered_json> list = PromptPieces(tokenizer_, choice.prompt->tokens);
      pieces = std::make_shared<const std::string>(DumpJson(*list));
    }
    choice.pieces = pieces;
  }
}

void GenerationReply::FinishWhole() {
  if (options_.parameters.return_prompt_pieces && !is_native()) MakePieces();
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
  if (options_.parameters.verbose && is_chat()) {
    std::string prompt;
    for (const int32_t id : choices_[0].prompt->tokens) prompt += tokenizer_.Piece(id, true);
    (*rest)["__verbose"] = {{"prompt", prompt}};
  }
  for (const auto& [name, value] : rest->items()) AddMember(reply, name, DumpJson(value));
  if (choices_.size() == 1 && !choices_[0].prune.empty()) AddMember(reply, "prune", choices_[0].prune);
  exchange_->Reply({.status = 200, .body = std::move(reply)});
  metrics_.CountRequest(200);
}

ordered_json GenerationReply::Usage() const {
  ordered_json usage = {{"prompt_tokens", prompt_tokens_},
                        {"completion_tokens", figures_.sampled},
                        {"total_tokens", prompt_tokens_ + figures_.sampled},
                        {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}}};
  if (choices_.front().prompt->thinking)
    usage["completion_tokens_details"] = {{"reasoning_tokens", figures_.thinking}};
  return usage;
}

}  // namespace coppice
