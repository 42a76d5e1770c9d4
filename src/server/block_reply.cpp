#include "server/block_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/prune_json.h"
#include "server/answer_note.h"
#include "server/errors.h"
#include "server/http/sse.h"

namespace coppice {

using nlohmann::ordered_json;

BlockReply::BlockReply(BlockReplyOptions options, Metrics& metrics, std::shared_ptr<Exchange> exchange)
    : options_(std::move(options)),
      metrics_(metrics),
      exchange_(std::move(exchange)),
      admission_(options_.admission) {
  const Parameters& p = options_.parameters;
  if (options_.tools) parser_.emplace(*options_.tools, *p.tools, p.form == AnswerForm::kFree);
}

std::string BlockReply::EventText(const std::string& name, const ordered_json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, DumpJson(data));
}

void BlockReply::Begin() {
  if (std::exchange(begun_, true) || !options_.parameters.stream) return;
  SendBegin();
}

void BlockReply::OnPrefix(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  cached_ = tokens;
}

void BlockReply::OnHeld() {
  const std::lock_guard lock(mutex_);
  if (options_.parameters.stream) exchange_->Send(kSseHeld);
}

// The client sees that its prompt was read, even if the answer's first words are held back.
void BlockReply::OnProgress(int64_t processed, int64_t total, double) {
  const std::lock_guard lock(mutex_);
  if (processed == total) Begin();
}

void BlockReply::OnThought(const std::string& text) {
  const std::lock_guard lock(mutex_);
  Begin();
  AddText(text, true);
}

void BlockReply::OnText(int32_t, const std::string& text) {
  const std::lock_guard lock(mutex_);
  ++generated_;
  if (options_.on_tokens) options_.on_tokens(1);
  Begin();
  if (parser_) {
    AddParts(parser_->Push(text));
  } else {
    AddText(text);
  }
}

void BlockReply::AddParts(const std::vector<AnswerPart>& parts) {
  for (const AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        AddText(part.text);
        break;
      case AnswerPart::Kind::kCall:
        BeginCall(part.text);
        break;
      case AnswerPart::Kind::kArguments:
        AddArguments(part.text);
        break;
      case AnswerPart::Kind::kCallEnd:
      case AnswerPart::Kind::kCallCut:
        EndCall(part.kind == AnswerPart::Kind::kCallCut);
        break;
    }
  }
}

void BlockReply::AddText(const std::string& text, bool is_thought) {
  if (text.empty() || (is_thought && !options_.parameters.shows_thinking)) return;
  if (text_is_open_ && blocks_.back().is_thought != is_thought) CloseText();
  const bool stream = options_.parameters.stream;
  if (!text_is_open_) {
    text_is_open_ = true;
    blocks_.push_back({.id = fmt::format("{}-{}", options_.id, blocks_.size()),
                       .text = "",
                       .call = {},
                       .is_thought = is_thought});
    if (stream) SendBlock(blocks_.size() - 1, blocks_.back());
  }
  blocks_.back().text += text;
  if (stream) SendText(blocks_.size() - 1, blocks_.back(), text);
}

void BlockReply::CloseText() {
  if (!std::exchange(text_is_open_, false) || !options_.parameters.stream) return;
  SendBlockEnd(blocks_.size() - 1, blocks_.back());
}

void BlockReply::BeginCall(const std::string& name) {
  skips_call_ = calls_ > 0 && !options_.parameters.parallel_tool_calls;
  if (skips_call_) return;
  CloseText();
  blocks_.push_back(
      {.id = ToolCallId(*options_.tools, options_.id, calls_++), .text = "", .call = ToolCall{name, ""}});
  if (options_.parameters.stream) SendBlock(blocks_.size() - 1, blocks_.back());
}

void BlockReply::AddArguments(const std::string& piece) {
  if (skips_call_) return;
  blocks_.back().call->arguments += piece;
  if (options_.parameters.stream) SendText(blocks_.size() - 1, blocks_.back(), piece);
}

void BlockReply::EndCall(bool is_cut) {
  if (skips_call_) return;
  Block& block = blocks_.back();
  block.is_cut = is_cut;
  for (ordered_json& error : call_checks_.Errors(*options_.parameters.tools, *block.call, calls_ - 1)) {
    if (call_errors_->size() < kMaxCallErrors) call_errors_->push_back(std::move(error));
  }
  if (options_.parameters.stream) SendBlockEnd(blocks_.size() - 1, block);
}

void BlockReply::OnDone(const JobResult& result) {
  const std::lock_guard lock(mutex_);
  Begin();
  AddText(result.thought_tail, true);
  if (parser_) {
    AddParts(parser_->Push(result.tail));
    AddParts(parser_->Flush());
  } else {
    AddText(result.tail);
  }
  CloseText();
  End end{.finish_reason = result.finish_reason,
          .stop_string = result.stop_string,
          .sampled = result.sampled,
          .thinking = result.thinking,
          .more = ordered_json::object()};
  const bool is_cut = std::ranges::any_of(blocks_, &Block::is_cut);
  if (calls_ > 0 && !is_cut && end.finish_reason == "stop") end.finish_reason = "tool_calls";
  const Answer& answer = result.answer;
  if (options_.parameters.prune_asked || answer.prune_spec != "none" || !answer.auto_reason.empty() ||
      !answer.prune_reason.empty())
    end.more["prune"] = PruneJson(answer, options_.question);
  if (!options_.parameters.ignored.empty()) end.more["ignored_parameters"] = options_.parameters.ignored;
  if (!call_errors_->empty()) end.more["tool_call_errors"] = *call_errors_;
  reuse_ = result.reuse;
  figures_ = FiguresOf(result, options_.prompt_tokens, cached_);
  result_fields_ = ResultFields(result, end.finish_reason);
  end.more["timings"] = TimingsJson(figures_, reuse_);
  EndRequest();
  if (options_.parameters.stream) {
    SendEnd(end);
    exchange_->End();
  } else {
    exchange_->Reply({.status = 200, .body = DumpJson(Whole(end))});
  }
  metrics_.CountRequest(200);
}

void BlockReply::OnError(const HttpFault& fault) {
  const std::lock_guard lock(mutex_);
  EndRequest();
  metrics_.CountRequest(fault.status);
  if (!begun_ || !options_.parameters.stream) {
    HttpReply reply = ErrorReply(fault, options_.errors);
    reply.last_events = ErrorEvents(fault);  // pings may have begun the stream
    return exchange_->Reply(std::move(reply));
  }
  exchange_->Send(ErrorEvents(fault));
  exchange_->End();
}

void BlockReply::EndRequest() {
  admission_.reset();  // before the client sees the end and sends its next request
  exchange_->Note(AnswerNote({.model = options_.model,
                              .prompt_tokens = options_.prompt_tokens,
                              .cached_tokens = cached_,
                              .generated_tokens = generated_,
                              .decode_tokens_per_second = figures_.decoded_per_second()},
                             reuse_, std::move(result_fields_)));
}

}  // namespace coppice
