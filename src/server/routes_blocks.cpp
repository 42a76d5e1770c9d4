// The routes of chats in other forms than OpenAI's completions.
#include <ctime>

#include "server/content_parts.h"
#include "server/messages_form.h"
#include "server/responses_form.h"
#include "server/server.h"
#include "server/tool_calls.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

// Parameters of a chat in another form. A fault names the client's own field.
Parameters ParametersOf(const ChatForm& chat, const Parameters& defaults) {
  try {
    Parameters p = ParseParameters(chat.body, kChat, defaults);
    for (const std::string& name : chat.ignored) AddIgnored(name, p.ignored);
    return p;
  } catch (const HttpError& error) {
    HttpFault fault = error.fault();
    const auto sent = chat.sent_names.find(fault.param);
    if (sent == chat.sent_names.end()) throw;
    if (fault.message.starts_with(fault.param + ":"))
      fault.message = sent->second + fault.message.substr(fault.param.size());
    fault.param = sent->second;
    throw HttpError(fault);
  }
}

}  // namespace

void Server::Messages(const HttpRequest& request, const ExchangePtr& exchange) {
  GenerateBlocks<MessagesReply>(ChatOfMessages(request.body), "msg_", request, exchange);
}

void Server::Responses(const HttpRequest& request, const ExchangePtr& exchange) {
  GenerateBlocks<ResponsesReply>(ChatOfResponses(request.body), "resp_", request, exchange);
}

void Server::CountMessageTokens(const HttpRequest& request, const ExchangePtr& exchange) {
  AnswerTokens(ChatOfMessages(request.body), request, exchange);
}

void Server::CountChatTokens(const HttpRequest& request, const ExchangePtr& exchange) {
  AnswerTokens({.body = request.body}, request, exchange);
}

void Server::AnswerTokens(const ChatForm& chat, const HttpRequest& request, const ExchangePtr& exchange) {
  Parameters p = ParametersOf(chat, options_.defaults);
  p.prune = "none";  // so that no spans are searched
  // Of prompts that are too long as well: that is what clients want to know.
  ordered_json answer = {{"input_tokens", EncodeMessages(p, request.cancelled.get())->tokens.size()}};
  if (!p.ignored.empty()) answer["ignored_parameters"] = p.ignored;
  Answer(exchange, answer);
}

template <typename Reply>
void Server::GenerateBlocks(const ChatForm& chat, const char* prefix, const HttpRequest& request,
                            const ExchangePtr& exchange) {
  Parameters p = ParametersOf(chat, options_.defaults);
  p.owner = OwnerOf(request, p);
  if (p.n != 1) throw BadField("n", "this route gives one answer");
  const std::shared_ptr<const EncodedPrompt> prompt = EncodeMessages(p, request.cancelled.get());
  CheckPrompt(*prompt, p, "messages");
  const CompiledForm form = forms_.Compiled(p, ToolsOf(p), request.cancelled.get(), prompt->thinking);
  p.ignored.insert(p.ignored.end(), form.not_enforced.begin(), form.not_enforced.end());
  BlockReplyOptions options{.id = fmt::format("{}{:016x}", prefix, Random()),
                            .model = options_.alias,
                            .created = std::time(nullptr),
                            .parameters = p,
                            .prompt_tokens = std::ssize(prompt->tokens),
                            .question = prompt->question,
                            .tools = ToolsOf(p),
                            .admission = request.admission,
                            .on_tokens = TokenCounter(request),
                            .errors = ErrorFormFor(request),
                            .returns_thinking = chat.returns_thinking,
                            .functions = chat.functions};
  exchange->Note(LogNote::Of("id", options.id));
  const std::string calls_id = options.id;
  const std::shared_ptr<Job> job = MakeJob(*prompt, p, form, kChat, 0);
  const bool is_marked = p.cache_lifetime.count() > 0 && p.cache_prompt && engine_->documents() != nullptr;
  if (is_marked && CanKeep(job->request)) options.kept_for = p.cache_lifetime;
  job->log_probs = false;
  job->next_turn = NextTurnOf(p, calls_id, false);
  job->id = options.id;
  job->events = std::make_shared<Reply>(std::move(options), metrics_, exchange);
  Start({job}, p, request, exchange);
}

}  // namespace coppice
