// Follows an answer through its marks.
#include <algorithm>
#include <array>
#include <utility>

#include "engine/marks.h"
#include "engine/thinking.h"

namespace coppice {

namespace {

constexpr std::string_view kStartMark = "<|start|>";
constexpr std::string_view kMessageMark = "<|message|>";
constexpr std::string_view kChannelMark = "<|channel|>";
constexpr size_t kMaxHeader = 1024;  // bytes

// Of a message in channels. A message that lacks its end is followed by the next one's header.
constexpr std::array<std::string_view, 7> kMessageEnds{"<|end|>", "<|return|>", "<|call|>",  "<|eom|>",
                                                       "<|eot|>", kStartMark,   kChannelMark};

}  // namespace

ThinkingSplitter::ThinkingSplitter(Thinking thinking) : form_(std::move(thinking.form)) {
  switch (thinking.start) {
    case ThinkingStart::kInside:
      state_ = State::kThought;
      break;
    case ThinkingStart::kAnswer:
      state_ = State::kAnswer;
      break;
    default:
      state_ = form_.channels ? State::kHeader : State::kBegin;
  }
}

std::vector<ThinkingPart> ThinkingSplitter::Push(std::string_view text) {
  held_ += text;
  Parts parts;
  while (Step(false, parts)) {
  }
  return parts;
}

std::vector<ThinkingPart> ThinkingSplitter::PushMark(std::string_view mark) {
  bool counts = true;
  if (form_.channels) {
    const bool in_text = state_ == State::kThought || state_ == State::kAnswer;
    counts = !in_text || std::ranges::find(kMessageEnds, mark) != kMessageEnds.end();
  } else if (state_ == State::kThought) {
    counts = form_.close.starts_with(mark);
  } else {
    counts = form_.open.starts_with(mark) && (state_ != State::kAnswer || form_.anywhere);
  }
  if (counts) return Push(mark);
  ++left_out_;
  return {};
}

std::vector<ThinkingPart> ThinkingSplitter::Flush() {
  Parts parts;
  while (Step(true, parts)) {
  }
  return parts;
}

bool ThinkingSplitter::Step(bool at_end, Parts& parts) {
  if (held_.empty()) return false;
  switch (state_) {
    case State::kBegin:
    case State::kAfter:
      return TakeBegin(at_end, parts);
    case State::kHeader:
      return TakeHeader(at_end, parts);
    case State::kBetween:
      return TakeBetween(at_end, parts);
    case State::kThought:
      return form_.channels ? TakeMessage(at_end, parts) : TakeThought(at_end, parts);
    case State::kAnswer:
    case State::kRaw:
      return form_.channels ? TakeMessage(at_end, parts) : TakeAnswer(at_end, parts);
  }
  return false;
}

bool ThinkingSplitter::TakeBegin(bool at_end, Parts& parts) {
  const size_t first = held_.find_first_not_of(kBlanks);
  if (first == held_.npos) {
    if (at_end && state_ == State::kBegin) {
      Say(held_.size(), parts);
    } else if (at_end) {
      Drop(held_.size());
    }
    return false;
  }
  const std::string_view rest = std::string_view(held_).substr(first);
  if (!at_end && IsPartOf(rest, form_.open)) return false;
  if (rest.starts_with(form_.open)) {
    Drop(first + form_.open.size());
    state_ = State::kThought;
    thought_begun_ = false;
    return true;
  }
  if (state_ == State::kAfter && first > 0) Drop(first);
  state_ = State::kAnswer;
  return true;
}

bool ThinkingSplitter::TakeThought(bool at_end, Parts& parts) {
  const size_t at = held_.find(form_.close);
  if (at != held_.npos) {
    Think(WithoutBlanksAtEnd(std::string_view(held_).substr(0, at)).size(), parts);
    Drop(held_.find(form_.close) + form_.close.size());
    state_ = State::kAfter;
    return true;
  }
  const size_t begun = at_end ? 0 : BegunMark(held_, form_.close);
  Think(WithoutBlanksAtEnd(std::string_view(held_).substr(0, held_.size() - begun)).size(), parts);
  if (at_end) Drop(held_.size());
  return false;
}

bool ThinkingSplitter::TakeAnswer(bool at_end, Parts& parts) {
  if (!form_.anywhere) {
    Say(held_.size(), parts);
    return false;
  }
  const size_t at = held_.find(form_.open);
  if (at == held_.npos) {
    Say(held_.size() - (at_end ? 0 : BegunMark(held_, form_.open)), parts);
    return false;
  }
  Say(at, parts);
  state_ = State::kAfter;  // which takes the mark
  return true;
}

// A header ends with <|message|>. What cannot be one is the answer: the model writes no channels.
bool ThinkingSplitter::TakeHeader(bool at_end, Parts& parts) {
  const size_t first = std::min(held_.find_first_not_of(kBlanks), held_.size());
  const std::string_view rest = std::string_view(held_).substr(first);
  const auto begins = [&](std::string_view mark) { return rest.starts_with(mark) || mark.starts_with(rest); };
  const bool may_be = after_start_ || begins("to=") || begins(kChannelMark) || begins(kMessageMark) ||
                      begins("<|constrain|>");
  const size_t at = may_be ? held_.find(kMessageMark) : held_.npos;
  if (at <= kMaxHeader) {
    std::string header = held_.substr(0, at);
    held_.erase(0, at);
    BeginMessage(std::move(header), parts);
    return true;
  }
  if (may_be && !at_end && held_.size() <= kMaxHeader + kMessageMark.size()) return false;
  if (at_end && may_be && (after_start_ || rest.starts_with("<|"))) {
    Drop(held_.size());  // the answer was cut here
    return false;
  }
  state_ = State::kAnswer;
  return true;
}

// held_ begins with <|message|>.
void ThinkingSplitter::BeginMessage(std::string header, Parts& parts) {
  const auto has = [&](std::string_view text) { return header.find(text) != header.npos; };
  const auto word_behind = [&](std::string_view mark) {
    const size_t at = header.find(mark);
    if (at == header.npos) return std::string();
    const size_t begin = at + mark.size();
    return header.substr(begin, std::min(header.find_first_of(" \t\r\n<", begin), header.size()) - begin);
  };
  const std::string recipient = word_behind("to=");
  const bool to_reader = recipient.empty() || recipient == "user" || recipient == "all";
  const bool is_thought = recipient == "self" || (to_reader && word_behind(kChannelMark) == "analysis");
  thought_begun_ = false;
  new_text_ = true;
  if (is_thought || to_reader) {
    ++left_out_;
    held_.erase(0, kMessageMark.size());
    state_ = is_thought ? State::kThought : State::kAnswer;
    return;
  }
  // Its reader is a function, or a tool that this program does not have.
  const std::string begin = after_start_ && !has(kStartMark) ? std::string(kStartMark) : std::string();
  held_.insert(0, begin + header);
  state_ = State::kRaw;
  Say(begin.size() + header.size() + kMessageMark.size(), parts);
}

bool ThinkingSplitter::TakeMessage(bool at_end, Parts& parts) {
  size_t at = held_.npos;
  std::string_view mark;
  size_t begun = 0;
  for (const std::string_view end : kMessageEnds) {
    if (const size_t found = held_.find(end); found < at) {
      at = found;
      mark = end;
    }
    if (!at_end) begun = std::max(begun, BegunMark(held_, end));
  }
  const bool ends = at != held_.npos;
  const size_t size = ends ? at : held_.size() - begun;
  const bool thinks = state_ == State::kThought;
  if (thinks) {
    const size_t before = held_.size();
    Think(WithoutBlanksAtEnd(std::string_view(held_).substr(0, size)).size(), parts);
    if (ends) Drop(size - (before - held_.size()));
  } else {
    Say(size, parts);
  }
  if (!ends) {
    if (at_end && thinks) Drop(held_.size());
    return false;
  }
  if (mark == kStartMark || mark == kChannelMark) {
    state_ = State::kBetween;
    return true;
  }
  if (state_ == State::kRaw) {
    Say(mark.size(), parts);
  } else {
    Drop(mark.size());
  }
  state_ = State::kBetween;
  return true;
}

bool ThinkingSplitter::TakeBetween(bool at_end, Parts&) {
  const size_t first = held_.find_first_not_of(kBlanks);
  if (first == held_.npos) {
    if (at_end) Drop(held_.size());
    return false;
  }
  const std::string_view rest = std::string_view(held_).substr(first);
  if (!at_end && (IsPartOf(rest, kStartMark) || IsPartOf(rest, kChannelMark))) return false;
  after_start_ = rest.starts_with(kStartMark);
  if (first > 0) Drop(first);
  if (after_start_) Drop(kStartMark.size());
  const bool is_header = after_start_ || held_.starts_with(kChannelMark);
  state_ = is_header ? State::kHeader : State::kAnswer;
  new_text_ = !is_header;
  // An answer that ends behind <|start|> has nothing more.
  return !held_.empty();
}

void ThinkingSplitter::Drop(size_t bytes) {
  held_.erase(0, bytes);
  ++left_out_;
}

// The first bytes of held_, which do not end with white space, are thought.
void ThinkingSplitter::Think(size_t bytes, Parts& parts) {
  if (bytes == 0) return;
  size_t first = 0;
  if (!thought_begun_) first = std::min(held_.find_first_not_of(kBlanks), bytes);
  if (first < bytes) {
    std::string text = held_.substr(first, bytes - first);
    if (!thought_begun_ && has_thought_) text.insert(0, "\n\n");
    thought_begun_ = has_thought_ = true;
    Add(true, std::move(text), parts);
  }
  held_.erase(0, bytes);
}

void ThinkingSplitter::Say(size_t bytes, Parts& parts) {
  if (bytes == 0) return;
  std::string text = held_.substr(0, bytes);
  held_.erase(0, bytes);
  if (form_.channels && new_text_ && has_text_ && state_ == State::kAnswer) text.insert(0, "\n\n");
  new_text_ = false;
  if (state_ == State::kAnswer) has_text_ = true;
  Add(false, std::move(text), parts);
}

void ThinkingSplitter::Add(bool is_thought, std::string text, Parts& parts) {
  if (parts.empty() || parts.back().is_thought != is_thought) {
    parts.push_back({is_thought, std::move(text)});
  } else {
    parts.back().text += text;
  }
}

}  // namespace coppice
