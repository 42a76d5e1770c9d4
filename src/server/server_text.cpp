// Routes between text and tokens.
#include "base/error.h"
#include "engine/chat_prompt.h"
#include "server/server.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

std::string WholeText(const std::vector<std::string>& pieces) {
  Utf8Stream stream;
  std::string text;
  for (const std::string& piece : pieces) text += stream.Push(piece);
  return text + stream.Flush();
}

// Messages as the template takes them. Throws HttpError for what it does not.
template <typename Use>
auto WithMessages(const Parameters& p, const Tokenizer& tokenizer, Use use) {
  if (tokenizer.chat_template().empty()) throw BadField("messages", "the model has no chat template");
  try {
    std::vector<ChatMessage> messages = ParseMessages(*p.messages, "messages");
    OwnedJson<ordered_json> variables = p.template_variables;
    if (!variables->contains("add_generation_prompt")) {
      variables->emplace("add_generation_prompt", p.add_generation_prompt);
    }
    return use(messages, *variables);
  } catch (const Error& error) {
    throw HttpError({400, "invalid_request_error", error.what(), "messages"});
  }
}

}  // namespace

void Server::Tokenize(const HttpRequest& request, const ExchangePtr& exchange) {
  const Parameters p = ParseParameters(request.body, kTokenize, {});
  // llama.cpp's form ("content") adds nothing unless told to, vLLM's ("prompt") does.
  const EncodeOptions how{.add_special = p.add_special.value_or(p.form_is_openai),
                          .parse_special = p.parse_special};
  const std::vector<int32_t> ids = tokenizer().Encode(std::get<std::string>(p.prompts.front()), how);
  OwnedJson<ordered_json> owned = ordered_json(
      {{"tokens", ordered_json::array()}, {"count", ids.size()}, {"max_model_len", engine_->context()}});
  ordered_json& tokens = (*owned)["tokens"];
  for (const int32_t id : ids) {
    if (p.with_pieces) {
      tokens.push_back({{"id", id}, {"piece", TokenLabel(tokenizer().Piece(id, true))}});
    } else {
      tokens.push_back(id);
    }
  }
  Answer(exchange, *owned);
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
  const Parameters p = ParseParameters(request.body, kApplyTemplate, {});
  const std::string text =
      WithMessages(p, tokenizer(), [&](const auto& messages, const ordered_json& variables) {
        return RenderChat(messages, tokenizer(), variables);
      });
  Answer(exchange, {{"prompt", text}});
}

std::shared_ptr<const EncodedPrompt> Server::Encode(const PromptInput& input, const Parameters& p) const {
  auto prompt = std::make_shared<EncodedPrompt>();
  const auto* text = std::get_if<std::string>(&input);
  if (text != nullptr) {
    prompt->tokens =
        tokenizer().Encode(*text, {.add_special = p.add_special.value_or(true), .parse_special = true});
  } else {
    prompt->tokens = std::get<std::vector<int32_t>>(input);  // as they are: no BOS
  }
  if (!p.echo) return prompt;
  // Control tokens show as they are written, but for a BOS in front, which is no part of the text.
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

std::shared_ptr<const EncodedPrompt> Server::EncodeMessages(const Parameters& p) const {
  auto prompt = std::make_shared<EncodedPrompt>();
  ChatPrompt chat = WithMessages(p, tokenizer(), [&](auto& messages, const ordered_json& variables) {
    // A template that hides a message's text cannot protect it, which matters only where something is pruned.
    for (ChatMessage& message : messages) message.is_protected = message.is_protected && p.prune != "none";
    return EncodeChat(messages, tokenizer(), p.add_special.value_or(true), variables);
  });
  prompt->tokens = std::move(chat.tokens);
  prompt->protected_spans = std::move(chat.protected_spans);
  return prompt;
}

}  // namespace coppice
