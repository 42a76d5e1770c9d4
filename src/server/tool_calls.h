// Finds calls of functions in an answer's text, in the forms that the chat templates of models teach them.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/call_object.h"
#include "server/tool_parts.h"

namespace coppice {

enum class ToolFormat {
  kHermes,   // <tool_call>{"name": N, "arguments": A}</tool_call>: Qwen, SmolLM2, Hermes; the general form
  kLlama,    // the answer is {"name": N, "parameters": A}, perhaps behind <|python_tag|>: Llama 3.1 and 3.2
  kMistral,  // [TOOL_CALLS][{"name": N, "arguments": A}, ...], or [TOOL_CALLS]N[ARGS]A
  // <tool_call><function=N><parameter=K>\nV\n</parameter>...</function></tool_call>: Qwen3-Coder, Qwen3.5,
  // Nemotron 3. Some models leave the outer tags out; Hermes' form is taken, too.
  kXml,
  kChannels,  // a message with the header " to=functions.N", before or behind its channel, and A: gpt-oss
  kPython,    // <|tool_call_start|>[N(K="V", ...), ...]<|tool_call_end|>: LFM2
  kGemma4,    // <|tool_call>call:N{K:<|"|>V<|"|>,...}<tool_call|>
  // <tool_call>N\n<arg_key>K</arg_key>\n<arg_value>V</arg_value>\n...</tool_call>, with or without the line
  // breaks: GLM 4.5 and later, Ling 3, Laguna
  kArgKeys,
  // <minimax:tool_call><invoke name="N"><parameter name="K">V</parameter>...</invoke>...</minimax:tool_call>:
  // MiniMax M2
  kInvokes,
  // A message with the header " to=N" and <atem:function_calls>, in which are <atem:invoke name="N"> and
  // parameters as with kInvokes: Muse Glimmer.
  kAtem,
};

inline constexpr size_t kMaxCalls = 256;           // of one list, as kMaxTools
inline constexpr size_t kMaxCallArguments = 1024;  // of one call in a form of its own

// Whether calls are messages with headers of their own (ThinkingForm::channels).
inline bool CallsAreMessages(ToolFormat format) {
  return format == ToolFormat::kChannels || format == ToolFormat::kAtem;
}

// The form that a template with this text asks for.
ToolFormat ToolFormatOf(std::string_view chat_template);
// The texts that a form is made of. Where the tokenizer has control tokens for them, their text must reach
// the parser too.
std::vector<std::string_view> ToolMarks(ToolFormat format);

// A call's id: of its own for each `number` in each `answer`. Mistral's templates take nine letters and
// digits.
std::string ToolCallId(ToolFormat format, std::string_view answer, size_t number);

// Takes an answer's text piece by piece. Holds text back while it may belong to a call; what turns out to be
// none is text. White space between calls is left out.
//
// A call whose arguments are one JSON object is told as it is written: from where its name is known and its
// arguments begin it is a call, whatever follows. Its arguments are the model's own text, up to the end of
// the object. In other forms, a call is told when it is whole, with arguments as DumpJson() writes them.
class ToolCallParser {
 public:
  // `names`: the functions that may be called; what names another is text. `tools`: their definitions, which
  // must outlive this object, for the types of arguments; may be null.
  ToolCallParser(ToolFormat format, std::vector<std::string> names,
                 const nlohmann::ordered_json* tools = nullptr)
      : format_(format), functions_{std::move(names), tools} {}

  std::vector<AnswerPart> Push(std::string_view text);
  // The answer has ended.
  std::vector<AnswerPart> Flush();
  bool has_calls() const { return calls_ > 0; }
  size_t held_bytes() const { return held_.size() + mark_.size() + name_mark_.size(); }

 private:
  std::vector<AnswerPart> Parse(bool at_end);
  // Each takes something from the front of held_ and returns true, or returns false: more text is needed.
  bool TakeText(bool at_end, std::vector<AnswerPart>& parts);
  bool TakeCall(bool at_end, std::vector<AnswerPart>& parts);
  // Of the forms of call_forms.h.
  bool TakeBlock(bool at_end, std::vector<AnswerPart>& parts);
  bool TakeMessage(bool at_end, std::vector<AnswerPart>& parts);
  // The mark of kAtem's calls, behind a header.
  bool TakeBlockMark(bool at_end, std::vector<AnswerPart>& parts);
  // Whether the block may end behind its end mark, which ends at `end`; nullopt: more text is needed.
  std::optional<bool> MayEndBlock(size_t end, bool at_end) const;
  void EmitCalls(std::vector<ToolCall> calls, std::vector<AnswerPart>& parts);
  void NoteCalls(int count);
  // A call begins, whose arguments begin behind `skip` bytes of held_. `is_member`: of an object.
  void BeginCall(std::string name, size_t skip, bool is_member, std::vector<AnswerPart>& parts);
  bool TakeArguments(bool at_end, std::vector<AnswerPart>& parts);
  bool TakeRestOfObject(bool at_end);
  bool StripLeftOver(bool at_end);
  enum class Next { kCall, kText, kUnknown };
  // Takes what stands between calls, and says what follows it; kUnknown: more text is needed.
  Next TakeSeparators(bool at_end);
  // The name in front of the arguments, in Mistral's later form; empty if there is none. nullopt: more text
  // is needed.
  std::optional<std::string> TakeName(bool at_end);
  void Emit(std::string text, std::vector<AnswerPart>& parts);
  void GiveUp(size_t bytes, std::vector<AnswerPart>& parts);

  const ToolFormat format_;
  const CallableFunctions functions_;
  std::string held_;
  bool in_calls_ = false;
  std::string mark_;         // what introduced the calls; it is text if no call follows
  std::string name_;         // taken by TakeName()
  std::string name_mark_;    // its text, with what follows it
  bool at_start_ = true;     // the answer has neither text nor calls yet
  bool after_call_ = false;  // no text since the last call
  int calls_ = 0;
  CallHead head_;  // of the object at the front of held_
  ObjectEnd end_;  // of the object at the front of held_, or of the arguments or the object being left
  bool in_arguments_ = false;
  bool leaves_object_ = false;  // what follows the arguments is the rest of their object
  size_t searched_ = 0;         // of held_: up to there no end mark of the block begins
  int tries_ = 0;               // end marks that did not end it
};

}  // namespace coppice
