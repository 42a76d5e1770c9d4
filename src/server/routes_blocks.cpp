// The routes of chats in other forms than OpenAI's completions.
#include <ctime>

#include "server/content_parts.h"
#include "server/messages_form.h"
#include "server/responses_form.h"
#include "server/server.h"
#include "server/tool_calls.h"

namespace coppice {

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
  AnswerTokens({request.body, {}}, request, exchange);
}

void Server::AnswerTokens(const ChatForm& chat, const HttpRequest& request, const ExchangePtr& exchange) {
  Parameters p = ParseParameters(chat.body, kChat, options_.defaults);
  p.prune = "none";  // so that no spans are searched
  Answer(exchange, {{"input_tokens", EncodeMessages(p, request.cancelled.get())->tokens.size()}});
}

template <typename Reply>
void Server::GenerateBlocks(const ChatForm& chat, const char* prefix, const HttpRequest& request,
                            const ExchangePtr& exchange) {
  Parameters p = ParseParameters(chat.body, kChat, options_.defaults);
  for (const std::string& name : chat.ignored) AddIgnored(name, p.ignored);
  p.owner = OwnerOf(request, p);
  if (p.n != 1) throw BadField("n", "this route gives one answer");
  const std::shared_ptr<const EncodedPrompt> prompt = EncodeMessages(p, request.cancelled.get());
  const CompiledForm form = forms_.Compiled(p, ToolsOf(p), request.cancelled.get());
  p.ignored.insert(p.ignored.end(), form.not_enforced.begin(), form.not_enforced.end());
  BlockReplyOptions options{.id = fmt::format("{}{:016x}", prefix, Random()),
                            .model = options_.alias,
                            .created = std::time(nullptr),
                            .parameters = p,
                            .prompt_tokens = std::ssize(prompt->tokens),
                            .question = prompt->question,
                            .tools = ToolsOf(p),
                            .admission = request.admission,
                            .on_tokens = TokenCounter(request)};
  exchange->Note(" id=" + options.id);
  const std::shared_ptr<Job> job = MakeJob(*prompt, p, form, kChat, 0);
  job->log_probs = false;
  job->id = options.id;
  job->events = std::make_shared<Reply>(std::move(options), metrics_, exchange);
  Start({job}, p, request, exchange);
}

}  // namespace coppice
