#include "server/next_turn.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/answer_reader.h"
#include "engine/documents/common_prefix.h"
#include "engine/reused_point.h"
#include "server/bare_calls.h"
#include "server/plan_context.h"
#include "server/request_json.h"
#include "server/server.h"
#include "server/text_stream.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

// What stands behind the beginning of the next turn may be anything; these two have no token in common.
constexpr const char* kProbes[] = {"1", "x"};

// The answer, to its stop string.
TurnAnswer AnswerOf(const Job& job, std::span<const int32_t> tokens, const Tokenizer& tokenizer) {
  AnswerReader reader(tokenizer, job.split(), job.written_tokens);
  TextStream stream(job.stop);
  TurnAnswer answer{job.next_turn, "", ""};
  const auto add = [&](const AnswerReader::Piece& piece) {
    answer.thought += piece.thought;
    answer.text += stream.Push(piece.text);
  };
  for (const int32_t id : tokens) {
    if (stream.stopped() || std::ranges::find(job.stop_token_ids, id) != job.stop_token_ids.end()) break;
    add(reader.Push(id));
  }
  add(reader.Flush());
  answer.text += stream.Flush();
  return answer;
}

// Whether the client sends the thinking of its answers back: as far as the chat shows. At first most do.
bool ReturnsThinking(const Parameters& chat) {
  return chat.shows_thinking && std::ranges::all_of(*chat.messages, [](const ordered_json& message) {
           return TextMember(message, "role") != "assistant" || message.contains("reasoning_content") ||
                  message.contains("reasoning") || message.contains("thinking");
         });
}

}  // namespace

bool MayGoOn(const Parameters& chat) {
  if (chat.messages->empty() || TextMember(chat.messages->back(), "role") == "assistant") return false;
  const auto users =
      std::ranges::count_if(*chat.messages, [](const auto& m) { return TextMember(m, "role") == "user"; });
  return users > 1 || !chat.tools->empty() || !chat.conversation.empty() || chat.cache_lifetime.count() > 0;
}

Parameters WithNextMessage(const TurnAnswer& answer, const std::string& probe) {
  const NextTurn& turn = *answer.turn;
  Parameters p = turn.chat;
  std::string text;
  std::vector<ToolCall> calls;
  if (turn.tools) {
    AnswerParser parser(*turn.tools, *p.tools, p.form == AnswerForm::kFree);
    std::vector<AnswerPart> parts = parser.Push(answer.text);
    for (AnswerPart& part : parser.Flush()) parts.push_back(std::move(part));
    for (const AnswerPart& part : parts) {
      if (part.kind == AnswerPart::Kind::kText) text += part.text;
      if (part.kind == AnswerPart::Kind::kCall) calls.push_back({part.text, ""});
      if (part.kind == AnswerPart::Kind::kArguments) calls.back().arguments += part.text;
    }
    if (calls.size() > 1 && !p.parallel_tool_calls) calls.resize(1);
  } else {
    text = answer.text;
  }
  if (text.empty() && calls.empty()) {
    p.messages = {};
    return p;
  }
  ordered_json said = {{"role", "assistant"}, {"content", text}};
  if (text.empty() && turn.empty_is_null) said["content"] = nullptr;
  if (!answer.thought.empty() && ReturnsThinking(p)) said["reasoning_content"] = answer.thought;
  std::vector<ordered_json> results;
  for (const ToolCall& call : calls) {
    const std::string id = ToolCallId(*turn.tools, turn.calls_id, results.size());
    said["tool_calls"].push_back({{"id", id},
                                  {"type", "function"},
                                  {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    results.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", probe}});
  }
  p.messages->push_back(std::move(said));
  for (ordered_json& result : results) p.messages->push_back(std::move(result));
  if (results.empty()) p.messages->push_back({{"role", "user"}, {"content", probe}});
  return p;
}

// Null where nothing is read ahead.
std::shared_ptr<const NextTurn> Server::NextTurnOf(const Parameters& p, const std::string& calls_id,
                                                   bool empty_is_null) const {
  if (!options_.next_turn || !p.cache_prompt || engine_->documents() == nullptr || !MayGoOn(p))
    return nullptr;
  auto turn = std::make_shared<NextTurn>(
      NextTurn{.chat = p, .tools = ToolsOf(p), .calls_id = calls_id, .empty_is_null = empty_is_null});
  turn->chat.prune = "none";  // so that no spans are searched
  turn->chat.prune_asked = false;
  turn->chat.protection = {};
  turn->chat.question = std::vector<PositionSpan>();
  turn->chat.continue_final_message.reset();
  return turn;
}

// After an answer: lets the scheduler read what the next turn begins with, while nothing else computes.
void Server::ReadNextTurn(const Job& job, const ::coppice::Answer& answer) {
  if (!job.next_turn) return;
  try {
    auto ahead = std::make_shared<Job>();
    ahead->request.tokens = job.request.tokens;
    ahead->request.documents_owner = job.request.documents_owner;
    ahead->request.documents_hint = {.conversation = job.request.documents_hint.conversation,
                                     .is_own_read = true};
    // Where only new texts are pruned, this turn's are earlier ones in the next.
    ahead->request.prune = job.request.protection.apart ? "none" : job.request.prune;
    ahead->request.max_tokens = 0;
    ahead->beginning = std::make_shared<const TurnAnswer>(AnswerOf(job, answer.tokens, tokenizer()));
    ahead->events = std::make_shared<NoEvents>();
    scheduler_->Complete(std::move(ahead));
  } catch (const std::bad_alloc&) {  // the next turn reads it
  }
}

// Whether reading the prompt leaves something for later ones, under its method.
bool Server::CanKeep(const Request& request) const {
  if (request.tokens.empty()) return false;
  const int64_t count = std::ssize(request.tokens);
  const ResolvedPrune resolved = engine_->ResolvePrune(request.prune, count, PromptStates::kKept);
  const LayerPoint point = ReusedPoint(resolved.spec, PlanContext(*engine_, count));
  if (point == LayerPoint()) return false;
  const ModelShape& shape = engine_->model().config().shape;
  return engine_->documents()->Fits(PrefixBytes(shape, engine_->backend().cache_dtype(), point, count));
}

// Returns false if there was nothing to read, or another request has come.
bool Server::ReadBeginning(Job& job, const JobTurns& turns) {
  try {
    const auto pause = [&] {
      if (job.cancelled) throw Cancelled();
      turns.pause();
    };
    Request request = job.request;
    std::vector<int32_t> ends[2];
    for (size_t i = 0; i < 2; ++i) {
      pause();
      const Parameters next = WithNextMessage(*job.beginning, kProbes[i]);
      if (next.messages->empty()) return false;
      ends[i] = EncodeMessages(next, &job.cancelled)->tokens;
    }
    ends[0].resize(static_cast<size_t>(InCommon(ends[0], ends[1])));
    request.tokens = std::move(ends[0]);
    if (!CanKeep(request)) return false;
    request.cancelled = &job.cancelled;
    request.pause = pause;
    request.on_prefix = [&job](int64_t tokens) { job.cached = tokens; };
    engine_->Generate(request);
    return true;
  } catch (const std::exception&) {  // nobody waits for it: the next turn reads what is missing, or fails
    return false;
  }
}

}  // namespace coppice
