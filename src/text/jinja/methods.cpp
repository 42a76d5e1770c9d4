// Methods of strings, lists, dicts and the loop variable. Methods that would change a list or a dict do not
// exist: Hugging Face renders templates in Jinja's immutable sandbox, which rejects them.
#include <algorithm>
#include <unordered_map>

#include "text/jinja/operators.h"
#include "text/jinja/text.h"
#include "text/unicode/unicode.h"

namespace coppice::jinja {
namespace {

using B = Budget;
using V = Value;
using A = CallArguments;
using Method = Value (*)(Budget&, const Value& self, const CallArguments&);
using MethodTable = std::unordered_map<std::string_view, Method>;

Value StripMethod(Budget& budget, const Value& self, const CallArguments& arguments, Ends ends) {
  const Bound bound("strip", arguments, {"chars"});
  budget.Work(self.text().size());
  const bool all_space = bound.At(0) == nullptr || bound.At(0)->IsNone();
  if (!all_space && bound.RequiredText(0).empty()) return self;
  const std::string_view stripped =
      Strip(self.text(), ends, all_space ? std::string_view() : std::string_view(bound.RequiredText(0)));
  return stripped.size() == self.text().size() ? self : Value::String(budget, stripped);
}

std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  text = Strip(text, Ends::kLeft);
  while (!text.empty()) {
    if (limit-- == 0) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !IsSpace(DecodeAt(text, end).value)) end += DecodeAt(text, end).bytes;
    parts.push_back(text.substr(0, end));
    text = Strip(text.substr(end), Ends::kLeft);
  }
  return parts;
}

std::vector<std::string_view> SplitAtSpaceFromRight(std::string_view text, int64_t limit) {
  std::vector<std::string_view> words = SplitAtSpace(text, -1);
  if (limit < 0 || words.size() <= static_cast<size_t>(limit)) return words;
  const size_t joined = words.size() - static_cast<size_t>(limit);  // the first words stay joined
  const char* const begin = text.data();
  const std::string_view last = words[joined - 1];
  std::vector<std::string_view> parts = {{begin, static_cast<size_t>(last.data() + last.size() - begin)}};
  parts.insert(parts.end(), words.begin() + static_cast<std::ptrdiff_t>(joined), words.end());
  return parts;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t limit,
                                      bool right) {
  std::vector<std::string_view> parts;
  while (limit-- != 0) {
    const size_t at = right ? FindLast(text, separator) : FindFirst(text, separator);
    if (at == std::string_view::npos) break;
    const std::string_view after = text.substr(at + separator.size());
    parts.push_back(right ? after : text.substr(0, at));
    text = right ? text.substr(0, at) : after;
  }
  parts.push_back(text);
  if (right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value StringList(Budget& budget, const std::vector<std::string_view>& parts,
                 ListKind kind = ListKind::kList) {
  budget.FitsTimes(parts.size(), 2 * sizeof(Value) + 96);
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::String(budget, part));
  return Value::List(budget, std::move(items), kind);
}

Value SplitMethod(Budget& budget, const Value& self, const CallArguments& arguments, bool right) {
  const Bound bound("split", arguments, {"sep", "maxsplit"});
  const std::string& text = self.text();
  budget.Work(text.size());
  budget.FitsTimes(text.size(), sizeof(std::string_view));
  const int64_t limit = bound.Int(1, -1);
  if (bound.At(0) == nullptr || bound.At(0)->IsNone()) {
    return StringList(budget, right ? SplitAtSpaceFromRight(text, limit) : SplitAtSpace(text, limit));
  }
  const std::string& separator = bound.RequiredText(0);
  if (separator.empty()) throw Fault("split: empty separator");
  return StringList(budget, SplitAt(text, separator, limit, right));
}

Value SplitLines(Budget& budget, const Value& self, const CallArguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"});
  const std::string_view text = self.text();
  budget.Work(text.size());
  std::vector<std::string_view> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of("\n\r", begin), text.size());
    size_t next = std::min(end + 1, text.size());
    if (end + 1 < text.size() && text[end] == '\r' && text[end + 1] == '\n') ++next;
    lines.push_back(text.substr(begin, (bound.Bool(0, false) ? next : end) - begin));
    begin = next;
  }
  return StringList(budget, lines);
}

// startswith and endswith: the prefix is a string or a tuple of strings; the range is optional.
Value AffixMethod(Budget& budget, const Value& self, const CallArguments& arguments, bool at_end) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"});
  const bool ranged = bound.At(1) != nullptr;
  const Value whole =
      ranged ? Slice(budget, self, *bound.At(1), bound.At(2) ? *bound.At(2) : Value(None{}), None{}) : self;
  const std::string_view text = whole.text();
  const auto matches = [&](const Value& affix) {
    if (!affix.IsString()) throw Fault("startswith and endswith take a str or a tuple of str");
    budget.Work(affix.text().size());
    return at_end ? text.ends_with(affix.text()) : text.starts_with(affix.text());
  };
  const Value& affix = bound.Required(0);
  if (!affix.IsList(ListKind::kTuple)) return Value(matches(affix));
  return Value(std::any_of(affix.items().begin(), affix.items().end(), matches));
}

int64_t FindIn(Budget& budget, const Value& self, const CallArguments& arguments, bool right) {
  const Bound bound("find", arguments, {"sub", "start", "end"});
  if (bound.At(1) != nullptr) throw Fault("find with a range is not supported");
  budget.Work(self.text().size());
  const std::string& part = bound.RequiredText(0);
  const size_t at = right ? FindLast(self.text(), part) : FindFirst(self.text(), part);
  if (at == std::string::npos) return -1;
  return static_cast<int64_t>(CountCodePoints(std::string_view(self.text()).substr(0, at)));
}

Value CountMethod(Budget& budget, const Value& self, const CallArguments& arguments) {
  const Bound bound("count", arguments, {"value"});
  int64_t count = 0;
  if (self.IsList()) {
    for (const Value& item : self.items()) count += Equals(budget, item, bound.Required(0)) ? 1 : 0;
    return Value(count);
  }
  const std::string& part = bound.RequiredText(0);
  if (part.empty()) return Value(Length(budget, self) + 1);
  budget.Work(self.text().size());
  for (size_t at = 0; (at = FindFirst(self.text(), part, at)) != std::string::npos; at += part.size())
    ++count;
  return Value(count);
}

Value IndexMethod(Budget& budget, const Value& self, const CallArguments& arguments) {
  if (self.IsString()) {
    const int64_t at = FindIn(budget, self, arguments, false);
    if (at < 0) throw Fault("index: substring not found");
    return Value(at);
  }
  const Bound bound("index", arguments, {"value"});
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (Equals(budget, self.items()[i], bound.Required(0))) return Value(static_cast<int64_t>(i));
  }
  throw Fault("index: the value is not in the list");
}

Value ReplaceMethod(Budget& budget, const Value& self, const CallArguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  return Value::String(
      &budget, Replaced(budget, self.text(), bound.RequiredText(0), bound.RequiredText(1), bound.Int(2, -1)));
}

Value JoinMethod(Budget& budget, const Value& self, const CallArguments& arguments) {
  const Bound bound("join", arguments, {"iterable"});
  const Value items = Elements(budget, bound.Required(0));
  return Value::String(&budget, Joined(budget, items.items(), self.text(), true));
}

Value RemoveAffix(Budget& budget, const Value& self, const CallArguments& arguments, bool at_end) {
  const Bound bound("removeprefix", arguments, {"prefix"});
  std::string_view text = self.text();
  const std::string& affix = bound.RequiredText(0);
  if (at_end ? text.ends_with(affix) : text.starts_with(affix)) {
    at_end ? text.remove_suffix(affix.size()) : text.remove_prefix(affix.size());
  }
  return Value::String(budget, text);
}

template <std::string (*Map)(std::string_view)>
Value MapMethod(Budget& budget, const Value& self, const CallArguments& arguments) {
  const Bound bound("a method of str", arguments, {});
  budget.Fits(self.text().size());
  budget.Work(8 * self.text().size());  // case mapping looks up each letter
  return Value::String(&budget, Map(self.text()));
}

// Whether the text is not empty and `Of` is true for every code point.
template <bool (*Of)(char32_t)>
Value AllMethod(Budget& budget, const Value& self, const CallArguments& arguments) {
  const Bound bound("a method of str", arguments, {});
  const std::string& text = self.text();
  budget.Work(4 * text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text, i);
    if (!Of(c.value)) return Value(false);
    i += c.bytes;
  }
  return Value(!text.empty());
}
bool IsAlnum(char32_t value) { return IsLetter(value) || IsNumber(value); }

template <bool kUpper>
Value CaseMethod(Budget& budget, const Value& self, const CallArguments& arguments) {
  const Bound bound("a method of str", arguments, {});
  budget.Work(8 * self.text().size());
  const std::string mapped = kUpper ? Upper(self.text()) : Lower(self.text());
  const std::string other = kUpper ? Lower(self.text()) : Upper(self.text());
  return Value(mapped == self.text() && other != self.text());
}

const MethodTable& StringMethods() {
  static const MethodTable kTable = {
      {"strip", [](B& b, const V& s, const A& a) { return StripMethod(b, s, a, Ends::kBoth); }},
      {"lstrip", [](B& b, const V& s, const A& a) { return StripMethod(b, s, a, Ends::kLeft); }},
      {"rstrip", [](B& b, const V& s, const A& a) { return StripMethod(b, s, a, Ends::kRight); }},
      {"split", [](B& b, const V& s, const A& a) { return SplitMethod(b, s, a, false); }},
      {"rsplit", [](B& b, const V& s, const A& a) { return SplitMethod(b, s, a, true); }},
      {"splitlines", SplitLines},
      {"startswith", [](B& b, const V& s, const A& a) { return AffixMethod(b, s, a, false); }},
      {"endswith", [](B& b, const V& s, const A& a) { return AffixMethod(b, s, a, true); }},
      {"find", [](B& b, const V& s, const A& a) { return V(FindIn(b, s, a, false)); }},
      {"rfind", [](B& b, const V& s, const A& a) { return V(FindIn(b, s, a, true)); }},
      {"index", IndexMethod},
      {"count", CountMethod},
      {"replace", ReplaceMethod},
      {"join", JoinMethod},
      {"format", [](B& b, const V& s, const A& a) { return StringFormat(b, s.text(), a); }},
      {"removeprefix", [](B& b, const V& s, const A& a) { return RemoveAffix(b, s, a, false); }},
      {"removesuffix", [](B& b, const V& s, const A& a) { return RemoveAffix(b, s, a, true); }},
      {"upper", MapMethod<Upper>},
      {"lower", MapMethod<Lower>},
      {"title", MapMethod<TitleCase>},
      {"capitalize", MapMethod<Capitalize>},
      {"isdigit", AllMethod<IsDecimal>},
      {"isnumeric", AllMethod<IsDecimal>},
      {"isdecimal", AllMethod<IsDecimal>},
      {"isalpha", AllMethod<IsLetter>},
      {"isalnum", AllMethod<IsAlnum>},
      {"isspace", AllMethod<IsSpace>},
      {"isupper", CaseMethod<true>},
      {"islower", CaseMethod<false>}};
  return kTable;
}

Value DictGet(Budget& budget, const Value& self, const CallArguments& arguments) {
  const Bound bound("get", arguments, {"key", "default"});
  const Value* found = self.dict().Find(budget, bound.Required(0));
  if (found != nullptr) return *found;
  return bound.At(1) != nullptr ? *bound.At(1) : Value(None{});
}

Value DictView(Budget& budget, const Value& self, const CallArguments& arguments, ListKind kind) {
  const Bound bound("a method of dict", arguments, {});
  std::vector<Value> items;
  budget.FitsTimes(self.dict().entries.size(), 4 * sizeof(Value) + 96);
  for (const auto& [key, value] : self.dict().entries) {
    if (kind == ListKind::kItems) {
      items.push_back(Value::List(budget, {key, value}, ListKind::kTuple));
    } else {
      items.push_back(kind == ListKind::kKeys ? key : value);
    }
  }
  return Value::List(budget, std::move(items), kind);
}

Value Copy(Budget&, const Value& self, const CallArguments& arguments) {
  const Bound bound("copy", arguments, {});
  return self;
}

const MethodTable& DictMethods() {
  static const MethodTable kTable = {
      {"get", DictGet},
      {"items", [](B& b, const V& s, const A& a) { return DictView(b, s, a, ListKind::kItems); }},
      {"keys", [](B& b, const V& s, const A& a) { return DictView(b, s, a, ListKind::kKeys); }},
      {"values", [](B& b, const V& s, const A& a) { return DictView(b, s, a, ListKind::kValues); }},
      {"copy", Copy}};
  return kTable;
}

const MethodTable& ListMethods() {
  static const MethodTable kTable = {{"index", IndexMethod}, {"count", CountMethod}, {"copy", Copy}};
  return kTable;
}

Value Cycle(Budget&, const Value& self, const CallArguments& arguments) {
  if (arguments.positional.empty()) throw Fault("loop.cycle takes at least one value");
  return arguments.positional[self.loop().index0 % arguments.positional.size()];
}

const MethodTable& LoopMethods() {
  static const MethodTable kTable = {{"cycle", Cycle}};
  return kTable;
}

}  // namespace

bool ChangesItsObject(const Value& value, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (value.IsList(ListKind::kList))
    return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  return value.IsDict() && std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
}

namespace {

Method FindMethod(const Value& value, std::string_view name) {
  const MethodTable* table = nullptr;
  if (value.IsString()) table = &StringMethods();
  if (value.IsDict()) table = &DictMethods();
  if (value.IsSequence()) table = &ListMethods();
  if (value.type() == Type::kLoop) table = &LoopMethods();
  if (table == nullptr) return nullptr;
  const auto found = table->find(name);
  return found == table->end() ? nullptr : found->second;
}

}  // namespace

bool HasMethod(const Value& value, std::string_view name) { return FindMethod(value, name) != nullptr; }

Value CallMethod(Budget& budget, const Value& self, std::string_view name, const CallArguments& arguments) {
  return FindMethod(self, name)(budget, self, arguments);
}

}  // namespace coppice::jinja
