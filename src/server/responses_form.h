// OpenAI's newer form of chats, POST /v1/responses. Nothing is stored: a request brings the conversation.
#pragma once

#include <string>
#include <string_view>

#include "server/block_reply.h"
#include "server/request_json.h"

namespace coppice {

// The same request as /v1/chat/completions takes it; fields that it does not know stay, and parts without
// effect are left out. Throws HttpError, naming the field.
ChatForm ChatOfResponses(std::string_view body);

// Begins an item's encrypted_content, where this server puts the thinking: some clients send nothing else of
// a reasoning item back.
inline constexpr std::string_view kKeptThinking = "coppice:";

class ResponsesReply final : public BlockReply {
 public:
  using BlockReply::BlockReply;

 private:
  void SendBegin() override;
  void SendBlock(size_t index, const Block& block) override;
  void SendText(size_t index, const Block& block, const std::string& text) override;
  void SendBlockEnd(size_t index, const Block& block) override;
  void SendEnd(const End& end) override;
  nlohmann::ordered_json Whole(const End& end) override;
  std::string ErrorEvents(const HttpFault& fault) override;

  // An event under its type, with its number.
  std::string TypedText(const std::string& type, nlohmann::ordered_json data);
  void SendTyped(const std::string& type, nlohmann::ordered_json data);
  nlohmann::ordered_json Response(const char* status) const;

  int64_t sent_ = 0;
};

}  // namespace coppice
