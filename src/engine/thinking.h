// What a model thinks, told apart from what it answers by the marks that its chat template writes.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// Whether the template reads what a message's author thought from the parts of its content alone, as
// Ministral's does: {"type": "thinking", "thinking": ...} in front of {"type": "text", ...}.
bool ReadsThinkingInParts(std::string_view chat_template);

// How a family of models marks its thinking.
struct ThinkingForm {
  std::string open = {};   // the mark in front of it, such as <think>
  std::string close = {};  // the mark behind it
  bool anywhere = false;   // thinking may also begin within the answer
  // The answer is messages with headers: <|channel|>analysis<|message|>...<|end|><|start|>assistant... of
  // gpt-oss, or " to=self<|message|>" of Muse Glimmer. There are no other marks then.
  bool channels = false;
  // Whether the template can turn it on or off. Templates without a switch may only show earlier thinking, of
  // other models: an answer in a form then begins at once, unless the prompt has begun the thinking.
  bool has_switch = false;
  std::string force = {};        // what ends the thinking where the model does not, as the template writes it
  std::string force_first = {};  // if not empty: the same for the first time
};

// The form whose marks this template has; nullopt if it has none.
std::optional<ThinkingForm> ThinkingFormOf(std::string_view chat_template);
// The texts that the marks are made of, each as a token where the vocabulary has it.
std::vector<std::string_view> ThinkingMarks(const ThinkingForm& form);

// Where an answer begins.
enum class ThinkingStart {
  kBefore,  // the model may begin to think
  kInside,  // the prompt ends with the mark that opens the thinking
  kClosed,  // the prompt ends with the mark that closes it
  kAnswer,  // the answer continues a text
};
// `prompt`: its text, or the last kThinkingTail bytes of it. `continued`: the text of the message that the
// answer continues, if it continues one.
ThinkingStart ThinkingStartOf(const ThinkingForm& form, std::string_view prompt,
                              std::optional<std::string_view> continued = {});
inline constexpr size_t kThinkingTail = 256;

struct Thinking {
  ThinkingForm form;
  ThinkingStart start = ThinkingStart::kBefore;
};

// What a request says about thinking; what it does not say is the template's default.
struct ThinkingWish {
  std::optional<bool> on = {};
  std::string effort = {};             // a word, such as "low"
  std::optional<int64_t> budget = {};  // tokens
};
// The variables that tell the template so, under each name that it knows: enable_thinking, thinking,
// thinking_mode, thinking_option, thinking_budget, reasoning_effort, reasoning_strength.
nlohmann::ordered_json ThinkingVariables(std::string_view chat_template, const ThinkingWish& wish);

// A part of an answer. White space at both ends of a thought, and in front of the answer that follows it, is
// left out.
struct ThinkingPart {
  bool is_thought = false;
  std::string text = {};
};

// Splits an answer's text that comes piece by piece. Holds back what may be the beginning of a mark.
class ThinkingSplitter {
 public:
  explicit ThinkingSplitter(Thinking thinking);

  std::vector<ThinkingPart> Push(std::string_view text);
  // A control token that is one of the marks. Where no mark can stand it is left out.
  std::vector<ThinkingPart> PushMark(std::string_view mark);
  // The answer has ended.
  std::vector<ThinkingPart> Flush();
  // What comes next is thought.
  bool thinking() const { return state_ == State::kThought; }
  // How often something was left out: a mark, a header, or white space.
  size_t left_out() const { return left_out_; }

 private:
  enum class State {
    kBegin,    // of the answer: white space, or a mark
    kThought,  // up to its mark
    kAfter,    // behind a thought: white space, or another mark
    kAnswer,
    // With channels.
    kHeader,   // up to <|message|>
    kBetween,  // behind a message
    kRaw,      // a message for somebody else, which stays as it is, with its header
  };
  using Parts = std::vector<ThinkingPart>;

  // Each takes something from the front of held_ and returns true, or returns false: more text is needed.
  bool Step(bool at_end, Parts& parts);
  bool TakeBegin(bool at_end, Parts& parts);
  bool TakeThought(bool at_end, Parts& parts);
  bool TakeAnswer(bool at_end, Parts& parts);
  bool TakeHeader(bool at_end, Parts& parts);
  bool TakeMessage(bool at_end, Parts& parts);
  bool TakeBetween(bool at_end, Parts& parts);
  void BeginMessage(std::string header, Parts& parts);
  void Drop(size_t bytes);
  void Think(size_t bytes, Parts& parts);
  void Say(size_t bytes, Parts& parts);
  void Add(bool is_thought, std::string text, Parts& parts);

  const ThinkingForm form_;
  State state_ = State::kBegin;
  std::string held_;
  bool after_start_ = false;    // the header follows <|start|>
  bool thought_begun_ = false;  // this one has a text
  bool has_thought_ = false;    // an earlier message or block was thought
  bool has_text_ = false;       // an earlier message was text
  bool new_text_ = false;       // the message has no text yet
  size_t left_out_ = 0;
};

}  // namespace coppice
