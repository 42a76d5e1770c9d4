#include "engine/chat_renderer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <exception>
#include <set>
#include <utility>

#include "base/error.h"
#include "engine/escaped_character.h"
#include "engine/thinking.h"
#include "text/jinja/text.h"
#include "text/unicode/unicode.h"

namespace coppice {

using nlohmann::ordered_json;

namespace {

// The name within a control token's written form: "im_start" of "<|im_start|>".
std::string_view NameWithin(std::string_view written) {
  const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  while (!written.empty() && !is_letter(written.front())) written.remove_prefix(1);
  while (!written.empty() && !is_letter(written.back())) written.remove_suffix(1);
  return written;
}

// Templates put roles between the brackets of control tokens ("<|user|>"). A role must therefore not be the
// name of any other control token.
void CheckRoles(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer) {
  std::set<std::string_view> unusual;
  for (const ChatMessage& m : messages) {
    static const std::set<std::string_view> kUsual{"system",    "developer", "user", "human",
                                                   "assistant", "model",     "tool", "function"};
    if (!kUsual.contains(m.role)) unusual.insert(m.role);
  }
  if (unusual.empty()) return;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsControl(id)) continue;
    const std::string written = tokenizer.Piece(id, true);
    const auto found = unusual.find(NameWithin(written));
    if (found != unusual.end())
      throw Error("the role {} is the name of the control token {}", *found, written);
  }
}

// Python's str.rstrip and str.strip.
std::string_view StrippedAtEnd(std::string_view text) {
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    const Char last = DecodeUtf8(text, at);
    if (at + last.size != text.size() || !jinja::IsSpace(last.code)) break;
    text.remove_suffix(last.size);
  }
  return text;
}

std::string_view Stripped(std::string_view text) {
  text = StrippedAtEnd(text);
  while (!text.empty()) {
    const Char first = DecodeUtf8(text, 0);
    if (!jinja::IsSpace(first.code)) break;
    text.remove_prefix(first.size);
  }
  return text;
}

constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

// The names under which templates read a message's reasoning, as transformers fills them in
// (_alias_reasoning_fields of utils/chat_template_utils.py).
ordered_json WithReasoning(ordered_json members) {
  ordered_json reasoning;
  for (const char* name : kReasoning) {
    if (reasoning.is_null() && members.contains(name)) reasoning = members[name];
  }
  if (reasoning.is_null()) return members;
  if (!members.contains("thinking")) {
    ordered_json more = {{"thinking", reasoning}};
    more.update(members);
    members = std::move(more);
  }
  members["reasoning_content"] = std::move(reasoning);
  return members;
}

}  // namespace

ChatRenderer::ChatRenderer(const std::vector<ChatMessage>& messages, const Tokenizer& tokenizer,
                           const ChatOptions& options, std::string_view must_show)
    : messages_(messages),
      options_(options),
      template_(ChatTemplateOf(tokenizer, !options.tools->empty())),
      thinking_in_parts_(ReadsThinkingInParts(ChatTemplateOf(tokenizer, !options.tools->empty()))),
      marks_(FreeMarks()) {
  if (!options.parse_messages) CheckRoles(messages, tokenizer);
  // OpenAI's clients say "developer" where most templates say "system".
  const bool knows_developer =
      ChatTemplateOf(tokenizer, !options.tools->empty()).find("developer") != std::string::npos;
  for (const ChatMessage& m : messages) {
    ThrowIfCancelled(options.cancelled);
    roles_.push_back(m.role == "developer" && !knows_developer ? "system" : m.role);
    AddMembers(m, tokenizer);
  }
  context_["tools"] = nullptr;
  context_["documents"] = nullptr;
  if (!options.tools->empty()) {
    context_["tools"] =
        WithTexts(*options.tools, [&](const std::string& text) { return Plain(text, tokenizer); });
  }
  for (const auto& [name, id] : {std::pair("bos_token", tokenizer.bos()), {"eos_token", tokenizer.eos()}}) {
    context_[name] = id ? tokenizer.Piece(*id, true) : std::string();
  }
  context_["add_generation_prompt"] = !options.continue_final_message;
  context_.update(*options.variables);
  Choose(must_show);
}

void ChatRenderer::AddMembers(const ChatMessage& message, const Tokenizer& tokenizer) {
  const auto plain = [&](const std::string& text) { return Plain(text, tokenizer); };
  contents_.push_back(plain(message.content));
  ordered_json members = WithReasoning(WithTexts(*message.members, plain));
  if (!message.tool_calls->empty()) members["tool_calls"] = WithTexts(*message.tool_calls, plain);
  members_.push_back(std::move(members));
}

// Characters of the supplementary private use areas, of which there are more than 131,000.
ChatRenderer::Marks ChatRenderer::FreeMarks() const {
  constexpr char32_t kFirst = 0xF0000;
  constexpr char32_t kLast = 0x10FFFD;
  std::vector<bool> used(kLast - kFirst + 1);
  const auto use = [&](char32_t code) {
    if (code >= kFirst && code <= kLast) used[code - kFirst] = true;
  };
  const auto mark_used = [&](std::string_view text) {
    ForEachEscaped(text, use);
    for (size_t at = text.find_first_of("\xF3\xF4"); at != text.npos;
         at = text.find_first_of("\xF3\xF4", at + 1)) {
      use(DecodeUtf8(text, at).code);
    }
  };
  ForEachText(*options_.tools, mark_used);
  for (const ChatMessage& m : messages_) {
    mark_used(m.content);
    ForEachText(*m.members, mark_used);
    ForEachText(*m.tool_calls, mark_used);
  }
  Marks marks;
  auto free = used.begin();
  for (std::string* mark : {&marks.begin, &marks.end, &marks.plain, &marks.cut}) {
    free = std::find(free, used.end(), false);
    if (free == used.end()) throw Error("the messages hold every character of the private use areas");
    AppendUtf8(kFirst + static_cast<char32_t>(free++ - used.begin()), *mark);
  }
  return marks;
}

// Puts the mark `plain` before each text that would be encoded as a control token.
std::string ChatRenderer::Plain(const std::string& content, const Tokenizer& tokenizer) const {
  if (options_.parse_messages) return content;
  std::string marked;
  size_t done = 0;
  for (const size_t start : tokenizer.ControlStarts(content)) {
    marked.append(content, done, start - done);
    marked += marks_.plain;
    done = start;
  }
  return marked.append(content, done);
}

RenderedChat ChatRenderer::WithoutPlainMarks(const std::string& marked) const {
  RenderedChat rendered;
  std::vector<std::pair<std::string, size_t>> next{
      {marks_.plain, 0}};  // forms of the mark, and where each is
  for (const std::string& escaped : Escaped(DecodeUtf8(marks_.plain, 0).code)) next.emplace_back(escaped, 0);
  size_t done = 0;
  for (auto& [form, at] : next) at = marked.find(form);
  while (true) {
    const auto& [form, at] = *std::ranges::min_element(next, {}, &std::pair<std::string, size_t>::second);
    if (at == std::string::npos) break;
    rendered.text.append(marked, done, at - done);
    rendered.plain.push_back(rendered.text.size());
    done = at + form.size();
    for (auto& [other, place] : next) {
      if (place < done) place = marked.find(other, done);
    }
  }
  rendered.text.append(marked, done);
  return rendered;
}

std::vector<ChatRenderer::Offer> ChatRenderer::Offers() const {
  std::vector<Offer> offers;
  std::vector<bool> notes;
  for (const ChatMessage& m : messages_) notes.push_back(IsNote(m.content));
  for (std::vector<ChatTurn>& turns : Arrangements(roles_, notes)) {
    const auto has_none = [](const ChatMessage& m) { return !m.has_content; };
    if (offers.empty() && std::ranges::any_of(messages_, has_none)) offers.push_back({turns});
    offers.push_back({std::move(turns), true});
  }
  const auto reasons = [&](size_t i) {
    return !messages_[i].tool_calls->empty() && !Stripped(contents_[i]).empty() &&
           members_[i].contains("reasoning_content");
  };
  bool any = false;
  for (size_t i = 0; i < messages_.size(); ++i) any = any || reasons(i);
  const size_t count = any ? offers.size() : 0;
  for (size_t i = 0; i < count; ++i) {
    if (!offers[i].empty_for_null) continue;
    offers.push_back(offers[i]);
    offers.back().without_reasoning = true;
  }
  return offers;
}

// The first offer that the template takes.
void ChatRenderer::Choose(std::string_view must_show) {
  std::exception_ptr refusal;
  std::optional<std::pair<Offer, RenderedChat>> unshown;
  for (Offer& offer : Offers()) {
    offer_ = std::move(offer);
    try {
      std::string text = Render({});
      CheckContinues(text);
      CutWhereTheAnswerBegins(text);
      whole_ = WithoutPlainMarks(text);
    } catch (const ChatTemplateLimit&) {
      throw;  // another offer would take as long
    } catch (const Error&) {
      if (refusal == nullptr) refusal = std::current_exception();
      continue;
    }
    if (whole_.text.find(Stripped(must_show)) != std::string::npos) return;
    if (!unshown) unshown.emplace(std::move(offer_), std::move(whole_));
  }
  if (!unshown) std::rethrow_exception(refusal);
  offer_ = std::move(unshown->first);
  whole_ = std::move(unshown->second);
}

std::string ChatRenderer::Render(const std::vector<int>& marked) {
  ordered_json list = ordered_json::array();
  for (const ChatTurn& turn : offer_.turns) list.push_back(TurnJson(turn, marked));
  context_["messages"] = std::move(list);
  return template_.Render(context_, options_.cancelled);
}

ordered_json ChatRenderer::TurnJson(const ChatTurn& turn, const std::vector<int>& marked) const {
  ordered_json json = members_[turn.messages.front()];
  bool has_content = offer_.empty_for_null;
  for (const size_t i : turn.messages) {
    has_content = has_content || messages_[i].has_content;
    if (i == turn.messages.front()) continue;
    for (const auto& [key, value] : members_[i].items()) {
      if (!json.contains(key)) {
        json[key] = value;
      } else if (key == "tool_calls") {
        json[key].insert(json[key].end(), value.begin(), value.end());
      }
    }
  }
  json["role"] = turn.role;
  if (has_content) json["content"] = Content(turn, marked);
  const bool has_calls = json.contains("tool_calls") && !json["tool_calls"].empty();
  if (offer_.without_reasoning && has_calls && has_content && json["content"] != "") {
    for (const char* name : kReasoning) json.erase(name);
  }
  if (thinking_in_parts_ && turn.role == "assistant" && json.contains("reasoning_content")) PutInParts(json);
  return json;
}

void ChatRenderer::PutInParts(ordered_json& message) {
  const ordered_json thought = message["reasoning_content"];
  if (!thought.is_string() || thought == "") return;
  const ordered_json text = std::exchange(message["content"], ordered_json::array());
  message["content"].push_back({{"type", "thinking"}, {"thinking", thought}});
  if (text.is_string() && text != "") message["content"].push_back({{"type", "text"}, {"text", text}});
}

// The texts of a turn's messages, those of `marked` between marks.
std::string ChatRenderer::Content(const ChatTurn& turn, const std::vector<int>& marked) const {
  std::string text;
  for (const size_t i : turn.messages) {
    const bool is_blank = Stripped(contents_[i]).empty();
    if (is_blank && turn.messages.size() > 1) continue;
    const auto place = std::ranges::lower_bound(marked, static_cast<int>(i));
    const bool is_marked = place != marked.end() && *place == static_cast<int>(i) && !is_blank;
    if (!text.empty()) text += "\n\n";
    text += is_marked ? Marked(contents_[i], place - marked.begin()) : contents_[i];
  }
  if (options_.continue_final_message && turn == offer_.turns.back()) {
    if (turn.messages.back() + 1 != messages_.size())
      throw Error("the chat template does not show the last message last, so it cannot be continued");
    text += marks_.cut + " ";
  }
  return text;
}

// Leaves white space at the ends outside the marks, because templates trim it.
std::string ChatRenderer::Marked(const std::string& content, ptrdiff_t mark) const {
  const std::string number = std::to_string(mark);
  const char* space = " \t\r\n";
  const size_t begin = std::min(content.find_first_not_of(space), content.size());
  const size_t end = std::max(content.find_last_not_of(space) + 1, begin);  // npos + 1 is 0
  return content.substr(0, begin) + marks_.begin + number + marks_.begin +
         content.substr(begin, end - begin) + marks_.end + number + marks_.end + content.substr(end);
}

void ChatRenderer::CheckContinues(const std::string& rendered) const {
  if (!options_.continue_final_message) return;
  const bool is_shown = rendered.find(Stripped(contents_.back())) != std::string::npos;
  if (!is_shown || rendered.find(marks_.cut) == std::string::npos)
    throw Error("the chat template does not show the last message as it is, so it cannot be continued");
}

// transformers' rule (render_jinja_template of utils/chat_template_utils.py): a mark and a space follow the
// message. Where the template keeps the space, it keeps white space, and the text ends at the mark; where it
// does not, it trims messages, and the text before the mark is trimmed.
void ChatRenderer::CutWhereTheAnswerBegins(std::string& text) const {
  if (!options_.continue_final_message) return;
  const size_t at = text.rfind(marks_.cut);
  if (at == std::string::npos) return;
  const bool keeps_space = text.compare(at + marks_.cut.size(), 1, " ") == 0;
  text.resize(at);
  if (!keeps_space) text.resize(StrippedAtEnd(text).size());
}

std::vector<MessageRange> ChatRenderer::Find(const std::vector<int>& indices) {
  std::vector<MessageRange> ranges(indices.size());
  if (indices.empty() || FindMarked(indices, ranges) || indices.size() == 1) return ranges;
  for (size_t i = 0; i < indices.size(); ++i) {
    std::vector<MessageRange> one(1);
    FindMarked({indices[i]}, one);
    ranges[i] = one.front();
  }
  return ranges;
}

// Fills `ranges` from one rendering. Returns false, with nothing found, if it differs from whole() in more
// than its marks.
bool ChatRenderer::FindMarked(const std::vector<int>& indices, std::vector<MessageRange>& ranges) {
  std::string rendered = Render(indices);
  CutWhereTheAnswerBegins(rendered);
  const std::string with = WithoutPlainMarks(rendered).text;
  std::string plain;
  std::vector<std::vector<size_t>> begins(indices.size()), ends(indices.size());
  for (size_t at = 0; at < with.size();) {
    const bool begin = with.compare(at, marks_.begin.size(), marks_.begin) == 0;
    if (!begin && with.compare(at, marks_.end.size(), marks_.end) != 0) {
      plain += with[at++];
      continue;
    }
    const size_t number_end = with.find(begin ? marks_.begin : marks_.end, at + 1);
    size_t number = 0;
    at += marks_.begin.size();
    if (number_end == std::string::npos ||
        std::from_chars(with.data() + at, with.data() + number_end, number).ptr != with.data() + number_end ||
        number >= indices.size())
      return false;
    (begin ? begins : ends)[number].push_back(plain.size());
    at = number_end + marks_.begin.size();
  }
  if (plain != whole_.text) return false;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (begins[i].size() == 1 && ends[i].size() == 1 && begins[i].front() <= ends[i].front())
      ranges[i] = std::pair(begins[i].front(), ends[i].front());
  }
  return true;
}

std::string ChatRenderer::TextWithoutTools() {
  const ordered_json tools = context_["tools"];
  const auto text = [&](ordered_json none) {
    context_["tools"] = std::move(none);
    std::string rendered = Render({});
    CutWhereTheAnswerBegins(rendered);
    return WithoutPlainMarks(rendered).text;
  };
  try {
    std::string without = text(nullptr);
    context_["tools"] = tools;
    return without;
  } catch (const ChatTemplateLimit&) {
    throw;
  } catch (const Error&) {
    // A template for tools may look at them without asking whether there are any.
    std::string without = text(ordered_json::array());
    context_["tools"] = tools;
    return without;
  }
}

}  // namespace coppice
