// The text that a chat template makes of messages, and where in it they stand.
#pragma once

#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat_prompt.h"
#include "engine/chat_turns.h"
#include "text/jinja/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

struct RenderedChat {
  std::string text;
  std::vector<size_t> plain;  // as EncodeOptions::plain
};

// The range of a message in the chat's text, in bytes. None if the template changes the message.
using MessageRange = std::optional<std::pair<size_t, size_t>>;

// The template gets a message as transformers 5 gives it (apply_chat_template): every member but those that
// are null; the text of reasoning_content, thinking or reasoning under the first two of these names, and as a
// part of the content where the template reads it there alone; tools and documents as none where there are
// none. Where the template refuses the messages, they are offered again: a content of null as an empty text,
// messages joined as Arrangements() says, and last without the reasoning of a message that has both a text
// and calls, which gpt-oss' template refuses.
class ChatRenderer {
 public:
  // Renders the chat. `messages`, `tokenizer` and `options` must outlive it. `must_show` is a text that this
  // program put into the messages, or empty: where the template leaves it out, as one does that knows no
  // system role, messages are joined until it is there. Throws Error with the template's first refusal, and
  // if options.continue_final_message is set but the template does not show the last message.
  ChatRenderer(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
               const ChatOptions& options, std::string_view must_show = {});

  // The chat's text, which ends where the answer begins.
  const RenderedChat& whole() const { return whole_; }

  // The ranges of the messages `indices` in whole(). Renders the chat once more, with marks around the
  // messages, because the same words may occur elsewhere too. If marks change what the template writes
  // elsewhere, renders once for each message.
  std::vector<MessageRange> Find(const std::vector<int>& indices);

  // The chat's text if there were no tools. Throws Error if the template refuses that.
  std::string TextWithoutTools();

 private:
  // Characters that occur in no message.
  struct Marks {
    std::string begin, end;  // of a message's text, on both sides of its number; of the same length
    std::string plain;       // the byte after it is plain text, not part of a control token
    std::string cut;         // the end of the message that the answer continues
  };
  // One way to offer the messages to the template.
  struct Offer {
    std::vector<ChatTurn> turns;
    bool empty_for_null = false;     // a content of null is an empty text
    bool without_reasoning = false;  // of messages that have both a text and calls
  };

  Marks FreeMarks() const;
  std::string Plain(const std::string& content, const Tokenizer& tokenizer) const;
  void AddMembers(const ChatMessage& message, const Tokenizer& tokenizer);
  std::vector<Offer> Offers() const;
  void Choose(std::string_view must_show);
  nlohmann::ordered_json TurnJson(const ChatTurn& turn, const std::vector<int>& marked) const;
  // The message's reasoning and content as parts of its content.
  static void PutInParts(nlohmann::ordered_json& message);
  std::string Content(const ChatTurn& turn, const std::vector<int>& marked) const;
  std::string Marked(const std::string& content, ptrdiff_t mark) const;
  std::string Render(const std::vector<int>& marked);
  void CutWhereTheAnswerBegins(std::string& text) const;
  void CheckContinues(const std::string& rendered) const;
  RenderedChat WithoutPlainMarks(const std::string& marked) const;
  bool FindMarked(const std::vector<int>& indices, std::vector<MessageRange>& ranges);

  const std::vector<ChatMessage>& messages_;
  const ChatOptions& options_;
  ChatTemplate template_;
  bool thinking_in_parts_;
  std::vector<std::string> roles_;               // as the template gets them
  std::vector<std::string> contents_;            // with marks_.plain
  std::vector<nlohmann::ordered_json> members_;  // of each message, with marks_.plain
  Marks marks_;
  nlohmann::ordered_json context_;
  Offer offer_;
  RenderedChat whole_;
};

}  // namespace coppice
