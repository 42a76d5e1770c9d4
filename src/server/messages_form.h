// Anthropic's form of chats, POST /v1/messages.
#pragma once

#include <string>
#include <string_view>

#include "server/block_reply.h"
#include "server/request_json.h"

namespace coppice {

// The same request as /v1/chat/completions takes it; fields that it does not know stay, and parts without
// effect are left out. Throws HttpError, naming the field.
ChatForm ChatOfMessages(std::string_view body);

class MessagesReply final : public BlockReply {
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

  nlohmann::ordered_json Message() const;
  nlohmann::ordered_json Usage(int64_t sampled) const;
};

}  // namespace coppice
