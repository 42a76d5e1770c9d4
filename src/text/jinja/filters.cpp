// The filters that chat templates use. Filters that Jinja implements as Python generators return generators:
// always true, without a length.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "text/jinja/operators.h"
#include "text/jinja/text.h"

namespace coppice::jinja {
namespace {

using B = Budget;
using V = Value;
using A = CallArguments;
using Filter = Value (*)(Budget&, const Value&, const CallArguments&);

std::vector<Value> Items(Budget& budget, const Value& value) {
  const Value elements = Elements(budget, value);
  budget.FitsTimes(elements.items().size(), sizeof(Value));
  return elements.items();
}

// name, name.name or 0: the argument of attribute= and selectattr.
Value DottedAttribute(Budget& budget, Value value, const Value& path) {
  if (path.IsIntegral()) return Subscript(budget, value, path);
  if (!path.IsString()) throw Fault("an attribute must be named by a str, not {}", path.TypeName());
  std::string_view rest = path.text();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view name = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool number = error == std::errc{} && end == name.data() + name.size() && name[0] != '-';
    value = Subscript(budget, value, number ? Value(index) : Value::String(budget, name));
    if (dot == rest.size()) return value;
    rest.remove_prefix(dot + 1);
  }
}

Value KeyOf(Budget& budget, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = attribute == nullptr || attribute->IsNone() ? item : DottedAttribute(budget, item, *attribute);
  if (case_sensitive || !key.IsString()) return key;
  budget.Work(key.text().size());
  return Value::String(&budget, Lower(key.text()));
}

Value Default(B& b, const V& value, const A& a) {
  const Bound bound("default", a, {"default_value", "boolean"});
  if (!value.IsUndefined() && (value.Truth() || !bound.Bool(1, false))) return value;
  return bound.At(0) != nullptr ? *bound.At(0) : Value::String(b, "");
}

Value Trim(B& b, const V& value, const A& a) {
  const Bound bound("trim", a, {"chars"});
  const Value text = value.IsUndefined() ? Value::String(b, "") : ToString(b, value);
  return CallMethod(b, text, "strip", a.positional.empty() && a.named.empty() ? A{} : A{{*bound.At(0)}, {}});
}

JsonStyle StyleOf(const Bound& bound) {
  JsonStyle style;
  style.ensure_ascii = bound.Bool(0, false);
  style.sort_keys = bound.Bool(3, false);
  const Value* indent = bound.At(1);
  if (indent != nullptr && !indent->IsNone()) {
    style.multiline = true;
    style.item_separator = ",";
    const int64_t width = indent->IsString() ? 0 : std::max<int64_t>(bound.Int(1, 0), 0);
    if (width > 64) throw Fault("tojson: an indent of {} is too wide", width);
    style.indent = indent->IsString() ? indent->text() : std::string(static_cast<size_t>(width), ' ');
  }
  const Value* separators = bound.At(2);
  if (separators != nullptr && !separators->IsNone()) {
    if (!separators->IsSequence() || separators->items().size() != 2 || !separators->items()[0].IsString() ||
        !separators->items()[1].IsString()) {
      throw Fault("tojson: separators must be two strings");
    }
    style.item_separator = separators->items()[0].text();
    style.key_separator = separators->items()[1].text();
  }
  return style;
}

Value ToJsonFilter(B& b, const V& value, const A& a) {
  // The parameters are those of the filter that transformers installs, not of Jinja's.
  const Bound bound("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  return Value::String(&b, ToJson(b, value, StyleOf(bound)));
}

Value Join(B& b, const V& value, const A& a) {
  const Bound bound("join", a, {"d", "attribute"});
  std::vector<Value> items = Items(b, value);
  if (bound.At(1) != nullptr && !bound.At(1)->IsNone()) {
    for (Value& item : items) item = DottedAttribute(b, item, *bound.At(1));
  }
  const std::string separator = bound.At(0) != nullptr ? ToText(b, *bound.At(0)) : "";
  return Value::String(&b, Joined(b, items, separator, false));
}

template <std::string (*Map)(std::string_view)>
Value TextFilter(B& b, const V& value, const A& a) {
  const Bound bound("a filter of text", a, {});
  const std::string text = ToText(b, value);
  b.Work(8 * text.size());
  b.Fits(2 * text.size());
  return Value::String(&b, Map(text));
}

// Jinja's title filter. Unlike Python's title, words begin only after white space, hyphens and opening
// brackets.
std::string TitleWords(std::string_view text) {
  std::string out;
  bool begins = true;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text, i);
    const bool separator = IsSpace(c.value) || (c.value < 0x80 && std::string_view("-({[<").find(text[i]) !=
                                                                      std::string_view::npos);
    out += begins ? Upper(text.substr(i, c.bytes)) : Lower(text.substr(i, c.bytes));
    begins = separator;
    i += c.bytes;
  }
  return out;
}

std::string_view EscapeOf(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '\'':
      return "&#39;";
    case '"':
      return "&#34;";
    default:
      return {};
  }
}

Value EscapeFilter(B& b, const V& value, const A& a) {
  const Bound bound("escape", a, {});
  if (value.IsMarkup()) return value;
  const Value plain = ToString(b, value);
  const std::string_view text = plain.text();
  TextWriter out(b);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of("&<>'\"", begin), text.size());
    out.Append(text.substr(begin, end - begin));
    if (end < text.size()) out.Append(EscapeOf(text[end]));
    begin = end + 1;
  }
  return Value::Markup(b, Value::String(&b, out.Finish()));
}

Value ReplaceFilter(B& b, const V& value, const A& a) {
  const Bound bound("replace", a, {"old", "new", "count"});
  return Value::String(&b, Replaced(b, ToText(b, value), ToText(b, bound.Required(0)),
                                    ToText(b, bound.Required(1)), bound.Int(2, -1)));
}

Value FirstOrLast(B& b, const V& value, bool first) {
  if (!first && value.IsList(ListKind::kGenerator)) throw Fault("last: an iterator cannot be reversed");
  const Value items = Elements(b, value);
  if (items.items().empty()) return Value::MakeUndefined("No first or last item, sequence was empty.");
  return first ? items.items().front() : items.items().back();
}

Value ListFilter(B& b, const V& value, const A&) { return Value::List(b, Items(b, value)); }

Value Reverse(B& b, const V& value, const A&) {
  std::vector<Value> items = Items(b, value);
  std::reverse(items.begin(), items.end());
  if (value.IsString()) return Value::String(&b, Joined(b, items, "", true));
  return Value::List(b, std::move(items), ListKind::kGenerator);
}

Value Map(B& b, const V& value, const A& a) {
  if (!value.Truth()) return Value::List(b, {}, ListKind::kGenerator);  // includes none, as in Jinja
  std::vector<Value> items = Items(b, value);
  if (a.positional.empty()) {
    const Bound bound("map", a, {"attribute", "default"});
    for (Value& item : items) {
      item = DottedAttribute(b, item, bound.Required(0));
      if (item.IsUndefined() && bound.At(1) != nullptr) item = *bound.At(1);
    }
  } else {
    if (!a.positional[0].IsString()) throw Fault("map takes the name of a filter");
    const A rest{{a.positional.begin() + 1, a.positional.end()}, a.named};
    for (Value& item : items) item = ApplyFilter(b, a.positional[0].text(), item, rest);
  }
  return Value::List(b, std::move(items), ListKind::kGenerator);
}

// select, reject, selectattr, rejectattr, with the arguments [attribute,] [test, arguments of the test].
Value Select(B& b, const V& value, const A& a, bool by_attribute, bool wanted) {
  const size_t first = by_attribute ? 1 : 0;
  if (a.positional.size() < first) throw Fault("selectattr misses the attribute");
  const bool has_test = a.positional.size() > first;
  if (has_test && !a.positional[first].IsString()) throw Fault("select takes the name of a test");
  const A rest =
      has_test
          ? A{{a.positional.begin() + static_cast<std::ptrdiff_t>(first) + 1, a.positional.end()}, a.named}
          : A{};
  std::vector<Value> kept;
  if (!value.Truth()) return Value::List(b, {}, ListKind::kGenerator);  // includes none, as in Jinja
  const Value items = Elements(b, value);
  for (const Value& item : items.items()) {
    b.Work(B::kUnitsPerItem);
    const Value subject = by_attribute ? DottedAttribute(b, item, a.positional[0]) : item;
    const bool holds = has_test ? ApplyTest(b, a.positional[first].text(), subject, rest) : subject.Truth();
    if (holds == wanted) kept.push_back(item);
  }
  return Value::List(b, std::move(kept), ListKind::kGenerator);
}

using Keyed = std::vector<std::pair<Value, Value>>;

// The comparison can throw while stable_sort copies pairs. Everything is a value type, so nothing leaks.
void SortByKey(B& b, Keyed& keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return reverse ? Compare(b, y.first, x.first) < 0 : Compare(b, x.first, y.first) < 0;
  });
}

// With an attribute, or several separated by commas, the key is a list of their values: equal undefined ones
// then need no order.
Value SortKey(Budget& b, const Value& item, const Value* attribute, bool case_sensitive) {
  if (attribute == nullptr || !attribute->IsString()) return KeyOf(b, item, attribute, case_sensitive);
  std::vector<Value> keys;
  std::string_view rest = attribute->text();
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const Value name = Value::String(b, rest.substr(0, comma));
    keys.push_back(KeyOf(b, item, &name, case_sensitive));
    if (comma == rest.size()) return Value::List(b, std::move(keys));
    rest.remove_prefix(comma + 1);
  }
}

Value Sort(B& b, const V& value, const A& a) {
  const Bound bound("sort", a, {"reverse", "case_sensitive", "attribute"});
  Keyed keyed;
  std::vector<Value> items = Items(b, value);
  for (Value& item : items) {
    Value key = SortKey(b, item, bound.At(2), bound.Bool(1, false));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  SortByKey(b, keyed, bound.Bool(0, false));
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
  return Value::List(b, std::move(items));
}

Value Unique(B& b, const V& value, const A& a) {
  const Bound bound("unique", a, {"case_sensitive", "attribute"});
  std::vector<Value> kept, keys;
  const Value items = Elements(b, value);
  for (const Value& item : items.items()) {
    const Value key = KeyOf(b, item, bound.At(1), bound.Bool(0, false));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& seen) { return Equals(b, seen, key); }))
      continue;
    keys.push_back(key);
    kept.push_back(item);
  }
  return Value::List(b, std::move(kept), ListKind::kGenerator);
}

const DictObject& DictOf(std::string_view filter, const Value& value) {
  if (!value.IsDict()) throw Fault("{} takes a mapping, not {}", filter, value.TypeName());
  return value.dict();
}

Value ItemsFilter(B& b, const V& value, const A&) {
  if (value.IsUndefined()) return Value::List(b, {}, ListKind::kGenerator);
  DictOf("items", value);
  return Value::List(b, CallMethod(b, value, "items", {}).items(), ListKind::kGenerator);
}

Value DictSort(B& b, const V& value, const A& a) {
  const Bound bound("dictsort", a, {"case_sensitive", "by", "reverse"});
  const std::string by = bound.Text(1, "key");
  if (by != "key" && by != "value") throw Fault("dictsort sorts by 'key' or 'value'");
  Keyed keyed;
  for (const auto& [key, item] : DictOf("dictsort", value).entries) {
    Value pair = Value::List(b, {key, item}, ListKind::kTuple);
    keyed.emplace_back(KeyOf(b, by == "key" ? key : item, nullptr, bound.Bool(0, false)), std::move(pair));
  }
  SortByKey(b, keyed, bound.Bool(2, false));
  std::vector<Value> items;
  for (auto& entry : keyed) items.push_back(std::move(entry.second));
  return Value::List(b, std::move(items));
}

Value Extreme(B& b, const V& value, const A& a, int sign) {
  const Bound bound("min", a, {"case_sensitive", "attribute"});
  const Value items = Elements(b, value);
  if (items.items().empty()) return Value::MakeUndefined("No aggregated item, sequence was empty.");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items.items()) {
    Value key = KeyOf(b, item, bound.At(1), bound.Bool(0, false));
    if (best == nullptr || sign * Compare(b, key, best_key) > 0) {
      best = &item;
      best_key = std::move(key);
    }
  }
  return *best;
}

Value SumFilter(B& b, const V& value, const A& a) {
  const Bound bound("sum", a, {"attribute", "start"});
  Value total = bound.At(1) != nullptr ? *bound.At(1) : Value(int64_t{0});
  for (const Value& item : Items(b, value)) {
    const bool whole = bound.At(0) == nullptr || bound.At(0)->IsNone();
    total = Arithmetics(b, Operator::kAdd, total, whole ? item : DottedAttribute(b, item, *bound.At(0)));
  }
  return total;
}

// Python's int(text) and float(text), without underscores, names of infinities and non-ASCII digits.
template <typename T>
bool Parse(std::string_view text, T& number, auto... base) {
  text = Strip(text, Ends::kBoth);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

Value Truncated(double number, const Value& otherwise) {
  if (!std::isfinite(number)) return otherwise;
  if (std::abs(number) >= 9.2e18) throw Fault("an integer leaves 64 bits");
  return Value(static_cast<int64_t>(number));
}

Value IntFilter(B& b, const V& value, const A& a) {
  const Bound bound("int", a, {"default", "base"});
  const Value otherwise = bound.At(0) != nullptr ? *bound.At(0) : Value(int64_t{0});
  if (value.IsUndefined()) throw Fault("{}", value.WhyUndefined());
  if (value.IsIntegral()) return Value(value.integer());
  if (value.IsFloat()) return Truncated(value.number(), otherwise);
  if (!value.IsString()) return otherwise;
  b.Work(value.text().size());
  const int64_t base = bound.Int(1, 10);
  if (base < 2 || base > 36) throw Fault("int: base {} is not in 2 .. 36", base);
  int64_t number = 0;
  if (Parse(value.text(), number, static_cast<int>(base))) return Value(number);
  double real = 0;
  return Parse(value.text(), real) ? Truncated(real, otherwise) : otherwise;
}

Value FloatFilter(B& b, const V& value, const A& a) {
  const Bound bound("float", a, {"default"});
  if (value.IsUndefined()) throw Fault("{}", value.WhyUndefined());
  if (value.IsNumber()) return Value(value.number());
  double real = 0;
  if (value.IsString()) b.Work(value.text().size());
  if (value.IsString() && Parse(value.text(), real)) return Value(real);
  return bound.At(0) != nullptr ? *bound.At(0) : Value(0.0);
}

Value Round(B&, const V& value, const A& a) {
  const Bound bound("round", a, {"precision", "method"});
  const std::string method = bound.Text(1, "common");
  if (!value.IsNumber()) throw Fault("round takes a number, not {}", value.TypeName());
  const int64_t precision = bound.Int(0, 0);
  if (precision < -300 || precision > 300) throw Fault("round: a precision of {} is out of range", precision);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.number() * scale;
  if (method == "ceil") return Value(std::ceil(scaled) / scale);
  if (method == "floor") return Value(std::floor(scaled) / scale);
  if (method != "common") throw Fault("round: method must be common, ceil or floor");
  if (value.IsIntegral() && precision >= 0) return Value(value.integer());
  if (precision < 0) {
    const double rounded = std::nearbyint(scaled) / scale;
    return value.IsIntegral() ? Truncated(rounded, Value(0.0)) : Value(rounded);
  }
  return Value(
      // Rounds the decimal digits, like Python.
      std::stod(fmt::format("{:.{}f}", value.number(), precision)));
}

Value Abs(B&, const V& value, const A&) {
  if (value.IsFloat()) return Value(std::abs(value.number()));
  if (!value.IsIntegral()) throw Fault("abs takes a number, not {}", value.TypeName());
  return value.integer() < 0 ? Negate(value) : Value(value.integer());
}

Value Indent(B& b, const V& value, const A& a) {
  const Bound bound("indent", a, {"width", "first", "blank"});
  const bool by_text = bound.At(0) != nullptr && bound.At(0)->IsString();
  const int64_t width = by_text ? 0 : std::max<int64_t>(bound.Int(0, 4), 0);
  if (width > 1024) throw Fault("indent: a width of {} is too wide", width);
  const std::string margin = by_text ? bound.At(0)->text() : std::string(static_cast<size_t>(width), ' ');
  const std::string text = ToText(b, value);
  TextWriter out(b);
  if (bound.Bool(1, false)) out.Append(margin);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const bool blank = end == begin;
    if (begin > 0 && (!blank || bound.Bool(2, false))) out.Append(margin);
    out.Append(std::string_view(text).substr(begin, end - begin));
    if (end < text.size()) out.Append("\n");
    begin = end + 1;
  }
  return Value::String(&b, out.Finish());
}

Value Format(B& b, const V& value, const A& a) {
  return PercentFormat(b, ToText(b, value), Value::List(b, a.positional, ListKind::kTuple));
}

Value AttrFilter(B& b, const V& value, const A& a) {
  const Bound bound("attr", a, {"name"});
  if (value.IsDict() && !HasMethod(value, bound.RequiredText(0)))
    return Value::MakeUndefined("attr: no such attribute");
  return Attribute(b, value, bound.RequiredText(0));
}

const std::unordered_map<std::string_view, Filter>& Filters() {
  static const Filter kLength = [](B& b, const V& v, const A&) { return V(Length(b, v)); };
  static const Filter kString = [](B& b, const V& v, const A&) {
    return v.IsUndefined() ? V::String(b, "") : ToString(b, v);
  };
  static const std::unordered_map<std::string_view, Filter> kTable = {
      {"default", Default},
      {"d", Default},
      {"trim", Trim},
      {"tojson", ToJsonFilter},
      {"length", kLength},
      {"count", kLength},
      {"string", kString},
      {"safe", [](B& b, const V& v, const A& a) { return V::Markup(b, kString(b, v, a)); }},
      {"join", Join},
      {"upper", TextFilter<Upper>},
      {"lower", TextFilter<Lower>},
      {"capitalize", TextFilter<Capitalize>},
      {"title", TextFilter<TitleWords>},
      {"escape", EscapeFilter},
      {"e", EscapeFilter},
      {"replace", ReplaceFilter},
      {"first", [](B& b, const V& v, const A&) { return FirstOrLast(b, v, true); }},
      {"last", [](B& b, const V& v, const A&) { return FirstOrLast(b, v, false); }},
      {"list", ListFilter},
      {"reverse", Reverse},
      {"map", Map},
      {"select", [](B& b, const V& v, const A& a) { return Select(b, v, a, false, true); }},
      {"reject", [](B& b, const V& v, const A& a) { return Select(b, v, a, false, false); }},
      {"selectattr", [](B& b, const V& v, const A& a) { return Select(b, v, a, true, true); }},
      {"rejectattr", [](B& b, const V& v, const A& a) { return Select(b, v, a, true, false); }},
      {"sort", Sort},
      {"unique", Unique},
      {"items", ItemsFilter},
      {"dictsort", DictSort},
      {"min", [](B& b, const V& v, const A& a) { return Extreme(b, v, a, -1); }},
      {"max", [](B& b, const V& v, const A& a) { return Extreme(b, v, a, 1); }},
      {"sum", SumFilter},
      {"int", IntFilter},
      {"float", FloatFilter},
      {"round", Round},
      {"abs", Abs},
      {"indent", Indent},
      {"format", Format},
      {"attr", AttrFilter}};
  return kTable;
}

}  // namespace

bool IsFilterName(const std::string& name) { return Filters().contains(name); }

Value ApplyFilter(Budget& budget, const std::string& name, const Value& value,
                  const CallArguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end()) throw Fault("no filter named '{}'", name.substr(0, 64));
  budget.Step();
  return found->second(budget, value, arguments);
}

}  // namespace coppice::jinja
