// What the reply to a generation request takes of the memory that all replies share.
#include "server/errors.h"
#include "server/generation_reply.h"

namespace coppice {

namespace {

// A token with 20 others beside it takes a kilobyte of JSON, so some 64 KiB may be made uncounted.
constexpr int64_t kEventsPerCount = 64;
constexpr int64_t kChoiceBytes = 1024;  // the members that every choice has

}  // namespace

void GenerationReply::Count() {
  if (++events_ < kEventsPerCount || failed_) return;
  events_ = 0;
  if (!exchange_->Hold(HeldBytes())) Fail(NoRoomForReplies());
}

// Of what was not sent yet.
int64_t GenerationReply::HeldBytes() const {
  size_t bytes = 0;
  for (const Choice& choice : choices_) {
    bytes += choice.text.size() + choice.thought.size();
    bytes += choice.log_probs.bytes() + choice.tokens.size() * sizeof(int32_t);
    bytes += choice.prune.size() + choice.call_bytes;
    if (choice.parser) bytes += choice.parser->held_bytes();
    if (choice.is_first && choice.echo) bytes += choice.echo->bytes();
    if (choice.is_first && choice.pieces) bytes += choice.pieces->size();
  }
  return static_cast<int64_t>(bytes);
}

// Of the whole reply as it will be sent, where each choice repeats its prompt; nearly.
int64_t GenerationReply::WholeBytes() const {
  size_t bytes = 0;
  for (const Choice& choice : choices_) {
    bytes += kChoiceBytes + choice.text.size() + 2 * choice.thought.size() + choice.log_probs.bytes() +
             8 * choice.tokens.size();
    if (options_.parameters.echo) bytes += choice.prompt->text.size();
    bytes += choice.prune.size() + choice.call_bytes;
    if (choice.echo) bytes += choice.echo->bytes();
    if (choice.pieces) bytes += choice.pieces->size();
  }
  return static_cast<int64_t>(bytes);
}

void GenerationReply::Fail(const HttpFault& fault) {
  if (failed_) return;
  failed_ = true;
  EndRequest();
  metrics_.CountRequest(fault.status);
  exchange_->Reply(ErrorReply(fault));
  if (on_failure_) on_failure_();
}

}  // namespace coppice
