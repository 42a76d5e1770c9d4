// Routes between text and tokens.
#include <fmt/format.h>

#include <iterator>
#include <span>
#include <unordered_map>

#include "base/error.h"
#include "engine/answer_reader.h"
#include "engine/chat_prompt.h"
#include "server/chat_options.h"
#include "server/server.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

constexpr size_t kRestOfTokenize = 128;  // bytes of its reply beside the list of tokens
constexpr int64_t kRestOfRender = 32;    // bytes around a list of ids

std::string WholeText(const std::vector<std::string>& pieces) {
  Utf8Stream stream;
  std::string text;
  for (const std::string& piece : pieces) text += stream.Push(piece);
  return text + stream.Flush();
}

// How /tokenize lists a token: its id, or with `pieces` its id and text. The text of each id is made once.
class TokenItems {
 public:
  explicit TokenItems(const Tokenizer* pieces) : pieces_(pieces) {}

  const std::string& operator[](int32_t id) {
    std::string& item = items_[id];
    if (!item.empty()) return item;
    item = pieces_ == nullptr ? std::to_string(id)
                              : DumpJson({{"id", id}, {"piece", TokenLabel(pieces_->Piece(id, true))}});
    return item;
  }

 private:
  const Tokenizer* pieces_;
  std::unordered_map<int32_t, std::string> items_;
};

// The beginning of /tokenize's reply, up to the end of its list. Written directly into memory of the right
// size, because a JSON document takes 600 bytes for a token with its piece, and a text that grows takes up to
// three times its length. Throws HttpError if `exchange` has no room for it.
std::string TokenListBegun(std::span<const int32_t> ids, const Tokenizer* pieces,
                           const std::atomic<bool>* cancelled, Exchange& exchange) {
  TokenItems items(pieces);
  size_t bytes = 2;
  for (const int32_t id : ids) {
    ThrowIfCancelled(cancelled);
    bytes += items[id].size() + 1;
  }
  if (!exchange.Hold(static_cast<int64_t>(bytes))) throw HttpError(NoRoomForReplies());
  std::string list;
  list.reserve(bytes + kRestOfTokenize);
  list += "{\"tokens\":[";
  for (const int32_t id : ids) {
    ThrowIfCancelled(cancelled);
    if (list.back() != '[') list += ',';
    list += items[id];
  }
  list += ']';
  return list;
}

// Appends a list of ids to a reply. Throws HttpError if `exchange` has no room for it.
void AddIds(std::span<const int32_t> ids, const std::atomic<bool>* cancelled, Exchange& exchange,
            std::string& reply) {
  constexpr int64_t kIdBytes = 11;  // at most ten digits and a comma
  const int64_t bytes = std::ssize(reply) + kIdBytes * std::ssize(ids) + kRestOfRender;
  if (!exchange.Hold(bytes)) throw HttpError(NoRoomForReplies());
  reply.reserve(static_cast<size_t>(bytes));  // a text that grows takes up to three times its length
  reply += '[';
  for (const int32_t id : ids) {
    ThrowIfCancelled(cancelled);
    if (reply.back() != '[') reply += ',';
    fmt::format_to(std::back_inserter(reply), "{}", id);
  }
  reply += ']';
}

// Ids stay as they are, and only a text at the beginning gets BOS.
std::vector<int32_t> TokensOf(const PromptInput& input, const Tokenizer& tokenizer, EncodeOptions how) {
  if (const auto* text = std::get_if<std::string>(&input)) return tokenizer.Encode(*text, how);
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&input)) return *ids;
  std::vector<int32_t> tokens;
  for (const PromptPart& part : std::get<std::vector<PromptPart>>(input)) {
    if (const auto* id = std::get_if<int32_t>(&part)) {
      tokens.push_back(*id);
    } else {
      const std::vector<int32_t> more = tokenizer.Encode(std::get<std::string>(part), how);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    how.add_special = false;
  }
  return tokens;
}

// Calls `use` with the messages and options in the form that the template takes. Throws HttpError if they do
// not fit it.
template <typename Use>
auto WithMessages(const Parameters& p, const Tokenizer& tokenizer, const std::atomic<bool>* cancelled,
                  Use use) {
  try {
    const std::vector<ChatMessage> messages = ParseMessages(*p.messages, "messages");
    ChatOptions options = ChatOptionsOf(p, messages, tokenizer, cancelled);
    return use(messages, options);
  } catch (const Error& error) {
    throw HttpError({400, "invalid_request_error", error.what(), "messages"});
  }
}

}  // namespace

void Server::Tokenize(const HttpRequest& request, const ExchangePtr& exchange) {
  const Parameters p = ParseParameters(request.body, kTokenize, {});
  // llama.cpp's form ("content") adds special tokens only on request, vLLM's ("prompt") by default.
  const EncodeOptions how{.add_special = p.add_special.value_or(p.form_is_openai),
                          .parse_special = p.parse_special.value_or(true),
                          .cancelled = request.cancelled.get()};
  const std::vector<int32_t> ids = tokenizer().Encode(std::get<std::string>(p.prompts.front()), how);
  std::string body =
      TokenListBegun(ids, p.with_pieces ? &tokenizer() : nullptr, request.cancelled.get(), *exchange);
  body += fmt::format(",\"count\":{},\"max_model_len\":{}}}", ids.size(), engine_->context());
  metrics_.CountRequest(200);
  exchange->Reply({.status = 200, .body = std::move(body)});
}

void Server::Detokenize(const HttpRequest& request, const ExchangePtr& exchange) {
  const Parameters p = ParseParameters(request.body, kDetokenize, {});
  for (const int32_t id : p.tokens) {
    if (id >= tokenizer().vocab_size())
      throw BadField("tokens", fmt::format("{} is not in the vocabulary", id));
  }
  const std::string text = WholeText({tokenizer().Decode(p.tokens, true)});
  Answer(exchange, {{"content", text}, {"prompt", text}});  // llama.cpp's name, vLLM's name
}

void Server::ApplyTemplate(const HttpRequest& request, const ExchangePtr& exchange) {
  Parameters defaults;
  defaults.verbatim_prompts = options_.defaults.verbatim_prompts;
  const Parameters p = ParseParameters(request.body, kApplyTemplate, defaults);
  const std::string text = WithMessages(p, tokenizer(), request.cancelled.get(),
                                        [&](const auto& messages, const ChatOptions& options) {
                                          return RenderChat(messages, tokenizer(), options);
                                        });
  ordered_json answer = {{"prompt", text}};
  if (!p.ignored.empty()) answer["ignored_parameters"] = p.ignored;
  Answer(exchange, answer);
}

// vLLM's routes that show the tokens a request's prompts have, which routers look up. They refuse a field
// that is wrong and a prompt that does not fit, as the requests themselves do, but do not compile the form
// that an answer must have.
void Server::RenderPrompts(const HttpRequest& request, const ExchangePtr& exchange) {
  Parameters p = ParseParameters(request.body, kCompletions, options_.defaults);
  DecidePrune(p);
  p.echo = false;  // so that no pieces are made
  std::string body = "[";
  for (const PromptInput& input : p.prompts) {
    body += body.size() > 1 ? ",{\"token_ids\":" : "{\"token_ids\":";
    AddIds(Encode(input, "prompt", p, request.cancelled.get())->tokens, request.cancelled.get(), *exchange,
           body);
    body += '}';
  }
  metrics_.CountRequest(200);
  body += ']';
  exchange->Reply({.status = 200, .body = std::move(body)});
}

void Server::RenderMessages(const HttpRequest& request, const ExchangePtr& exchange) {
  const Parameters p = ParseParameters(request.body, kChat, options_.defaults);
  std::string body = "{\"token_ids\":";
  const std::shared_ptr<const EncodedPrompt> prompt = EncodeMessages(p, request.cancelled.get());
  CheckPrompt(*prompt, p, "messages");
  AddIds(prompt->tokens, request.cancelled.get(), *exchange, body);
  metrics_.CountRequest(200);
  body += '}';
  exchange->Reply({.status = 200, .body = std::move(body)});
}

std::shared_ptr<const EncodedPrompt> Server::Encode(const PromptInput& input, const std::string& field,
                                                    const Parameters& p,
                                                    const std::atomic<bool>* cancelled) const {
  auto prompt = std::make_shared<EncodedPrompt>();
  const auto* text = std::get_if<std::string>(&input);
  prompt->tokens = TokensOf(input, tokenizer(),
                            {.add_special = p.add_special.value_or(true),
                             .parse_special = p.parse_special.value_or(true),
                             .cancelled = cancelled});
  prompt->question = p.question.value_or(std::vector<PositionSpan>());
  CheckPrompt(*prompt, p, field);  // before its pieces take many times its memory
  if (!p.echo) return prompt;
  // Control tokens are shown in written form, except a leading BOS, which is not part of the text.
  prompt->pieces = PiecesOf(tokenizer(), prompt->tokens);
  for (size_t i = 0; i < prompt->tokens.size(); ++i) {
    const int32_t id = prompt->tokens[i];
    if (tokenizer().IsControl(id) && !(i == 0 && tokenizer().bos() == id)) {
      prompt->pieces[i] = tokenizer().Piece(id, true);
    }
  }
  prompt->text = text != nullptr ? *text : WholeText(prompt->pieces);
  return prompt;
}

std::shared_ptr<const EncodedPrompt> Server::EncodeMessages(const Parameters& p,
                                                            const std::atomic<bool>* cancelled) const {
  auto prompt = std::make_shared<EncodedPrompt>();
  ChatPrompt chat = WithMessages(p, tokenizer(), cancelled, [&](const auto& messages, ChatOptions& options) {
    // If the template changes a message's text, the message cannot be protected; that matters only with
    // pruning.
    options.span_limit = p.prune == "none" ? 0 : engine_->context();
    ChatPrompt encoded = EncodeChat(messages, tokenizer(), options);
    std::optional<std::string_view> continued;
    if (options.continue_final_message) continued = messages.back().content;
    prompt->thinking = ThinkingOf(tokenizer(), ChatTemplateOf(tokenizer(), !options.tools->empty()),
                                  encoded.tokens, continued);
    return encoded;
  });
  prompt->tokens = std::move(chat.tokens);
  prompt->protected_spans = std::move(chat.protected_spans);
  prompt->apart = chat.apart;
  prompt->question = p.question.value_or(std::move(chat.question));
  return prompt;
}

}  // namespace coppice
