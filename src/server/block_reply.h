// Replies that list an answer's texts and calls as blocks: Anthropic's messages and OpenAI's responses.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "formats/json.h"
#include "server/bare_calls.h"
#include "server/errors.h"
#include "server/http/http.h"
#include "server/job.h"
#include "server/metrics.h"
#include "server/parameters.h"
#include "server/request_json.h"
#include "server/timings.h"
#include "server/tool_calls.h"
#include "server/tool_check.h"

namespace coppice {

struct BlockReplyOptions {
  std::string id;
  std::string model;
  int64_t created = 0;
  Parameters parameters;
  int64_t prompt_tokens = 0;
  std::chrono::seconds kept_for{};  // above 0: the client marked the prompt to be kept, and it is
  std::vector<PositionSpan> question;
  std::optional<ToolFormat> tools = {};                // the answer may call functions, in this form
  std::shared_ptr<void> admission = {};                // released when the reply ends
  std::function<void(int64_t tokens)> on_tokens = {};  // generated; may be empty
  ErrorForm errors = {};
  bool returns_thinking = false;                       // as ChatForm has it
  std::map<std::string, FunctionName> functions = {};  // as ChatForm has them
};

// Collects the events of one job. A form derives from it and writes the reply. Thread-safe.
class BlockReply : public JobEvents {
 public:
  // `exchange` takes the reply; `metrics` must outlive this object.
  BlockReply(BlockReplyOptions options, Metrics& metrics, std::shared_ptr<Exchange> exchange);

  void OnPrefix(int64_t tokens) final;
  void OnHeld() final;
  void OnProgress(int64_t processed, int64_t total, double ms) final;
  void OnLogProbs(const TokenLogProbs&) final {}
  void OnThought(const std::string& text) final;
  void OnText(int32_t id, const std::string& text) final;
  void OnDone(const JobResult& result) final;
  void OnError(const HttpFault& fault) final;

 protected:
  struct Block {
    std::string id;
    std::string text;
    std::optional<ToolCall> call;  // instead of the text
    bool is_thought = false;
    bool is_cut = false;  // the answer ended within the call's arguments
  };
  // The figures of the answer, which are whole at its end.
  struct End {
    std::string finish_reason;  // "stop", "length" or "tool_calls"
    std::string stop_string;
    int64_t sampled = 0;
    int64_t thinking = 0;
    nlohmann::ordered_json more;  // members beyond the form's own: prune, timings
  };

  // A stream's parts, in this order: the begin, each block's begin, texts and end, and the end. A call's
  // texts are pieces of its arguments. `block` has each text already.
  virtual void SendBegin() = 0;
  virtual void SendBlock(size_t index, const Block& block) = 0;
  virtual void SendText(size_t index, const Block& block, const std::string& text) = 0;
  virtual void SendBlockEnd(size_t index, const Block& block) = 0;
  virtual void SendEnd(const End& end) = 0;
  // The reply without a stream.
  virtual nlohmann::ordered_json Whole(const End& end) = 0;
  // The last events of a stream that fails.
  virtual std::string ErrorEvents(const HttpFault& fault) = 0;

  // An event with a name.
  static std::string EventText(const std::string& name, const nlohmann::ordered_json& data);
  void Send(const std::string& name, const nlohmann::ordered_json& data) { Send(EventText(name, data)); }
  void Send(std::string events) { exchange_->Send(std::move(events)); }
  const BlockReplyOptions& options() const { return options_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  int64_t cached() const { return cached_; }

 private:
  void Begin();
  void AddParts(const std::vector<AnswerPart>& parts);
  void AddText(const std::string& text, bool is_thought = false);
  void BeginCall(const std::string& name);
  void AddArguments(const std::string& piece);
  void EndCall(bool is_cut);
  void CloseText();
  void EndRequest();

  const BlockReplyOptions options_;
  Metrics& metrics_;
  const std::shared_ptr<Exchange> exchange_;
  std::mutex mutex_;
  std::optional<AnswerParser> parser_;
  std::vector<Block> blocks_;
  bool text_is_open_ = false;
  bool begun_ = false;
  size_t calls_ = 0;
  bool skips_call_ = false;  // the call that is being read is one too many
  CallChecks call_checks_;
  OwnedJson<nlohmann::ordered_json> call_errors_ = nlohmann::ordered_json::array();  // as CallChecks has them
  int64_t cached_ = 0;
  std::optional<ReuseReport> reuse_;
  ReplyFigures figures_;
  LogFields result_fields_;  // as ResultFields() has them, once the answer is whole
  int64_t generated_ = 0;
  std::shared_ptr<void> admission_;
};

}  // namespace coppice
