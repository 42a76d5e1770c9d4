#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "base/checked_math.h"
#include "text/jinja/text.h"

namespace coppice::jinja {
namespace {

const Value& Defined(const Value& value) {
  if (value.IsUndefined()) throw Fault("{}", value.WhyUndefined());
  return value;
}

int64_t Checked(std::optional<int64_t> result) {
  if (!result) throw Fault("an integer leaves 64 bits");
  return *result;
}

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == 0) throw Fault("division by zero");
  if (b == -1) return Checked(CheckedMul<int64_t>(a, -1));
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t FloorModulo(int64_t a, int64_t b) {
  if (b == 0) throw Fault("division by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double FloatModulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest != 0) return (rest < 0) != (b < 0) ? rest + b : rest;
  return std::copysign(0.0, b);
}

int64_t IntPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0) result = Checked(CheckedMul(result, base));
    exponent >>= 1;
    if (exponent == 0) return result;
    base = Checked(CheckedMul(base, base));
  }
}

Value IntArithmetic(Operator operation, int64_t a, int64_t b) {
  switch (operation) {
    case Operator::kAdd:
      return Value(Checked(CheckedAdd(a, b)));
    case Operator::kSub: {
      int64_t result = 0;
      if (__builtin_sub_overflow(a, b, &result)) Checked(std::nullopt);
      return Value(result);
    }
    case Operator::kMul:
      return Value(Checked(CheckedMul(a, b)));
    case Operator::kFloorDiv:
      return Value(FloorDivide(a, b));
    case Operator::kMod:
      return Value(FloorModulo(a, b));
    case Operator::kPow:
      if (b >= 0) return Value(IntPower(a, b));
      if (a == 0) throw Fault("0 to a negative power");
      return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
    default:
      if (b == 0) throw Fault("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
  }
}

Value FloatArithmetic(Operator operation, double a, double b) {
  const bool divides =
      operation == Operator::kDiv || operation == Operator::kFloorDiv || operation == Operator::kMod;
  if (divides && b == 0) throw Fault("division by zero");
  switch (operation) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSub:
      return Value(a - b);
    case Operator::kMul:
      return Value(a * b);
    case Operator::kFloorDiv:
      return Value((a - FloatModulo(a, b)) / b);
    case Operator::kMod:
      return Value(FloatModulo(a, b));
    case Operator::kPow: {
      const double power = std::pow(a, b);
      if (std::isnan(power) && !std::isnan(a) && !std::isnan(b))
        throw Fault("{} ** {} is no real number", a, b);
      return Value(power);
    }
    default:
      return Value(a / b);
  }
}

Value Repeat(Budget& budget, const Value& value, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (value.IsString()) {
    const std::string& text = value.text();
    if (times == 0 || text.empty()) return Value::String(&budget, "");
    budget.FitsTimes(times, text.size());
    budget.Work(times * text.size());
    std::string out;
    out.reserve(times * text.size());
    for (size_t i = 0; i < times; ++i) out += text;
    return Value::String(&budget, std::move(out));
  }
  const std::vector<Value>& items = value.items();
  if (times == 0 || items.empty()) return Value::List(budget, {}, value.list_kind());
  budget.FitsTimes(times, items.size() * sizeof(Value));
  std::vector<Value> out;
  out.reserve(times * items.size());
  for (size_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return Value::List(budget, std::move(out), value.list_kind());
}

Value Sum(Budget& budget, const Value& a, const Value& b);

// Adding to a string from the filter safe or escape escapes the other operand, even without autoescape.
Value SumWithMarkup(Budget& budget, const Value& a, const Value& b) {
  const auto escaped = [&](const Value& v) {
    return v.IsMarkup() ? v : ApplyFilter(budget, "escape", v, {});
  };
  return Sum(budget, escaped(a), escaped(b));
}

Value Sum(Budget& budget, const Value& a, const Value& b) {
  if (a.IsString() && b.IsString()) {
    if (a.IsMarkup() != b.IsMarkup()) return SumWithMarkup(budget, a, b);
    budget.Fits(a.text().size() + b.text().size());
    budget.Work(a.text().size() + b.text().size());
    Value sum = Value::String(&budget, a.text() + b.text());
    return a.IsMarkup() ? Value::Markup(budget, sum) : sum;
  }
  if (a.IsSequence() && b.IsSequence() && a.list_kind() == b.list_kind()) {
    budget.FitsTimes(a.items().size() + b.items().size(), sizeof(Value));
    std::vector<Value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return Value::List(budget, std::move(items), a.list_kind());
  }
  throw Fault("can't add {} and {}", a.TypeName(), b.TypeName());
}

std::string_view SymbolOf(Operator operation) {
  static constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**", "~"};
  return kSymbols[static_cast<size_t>(operation)];
}

Value LoopAttribute(const LoopObject& loop, std::string_view name) {
  const std::vector<Value>& items = loop.items.items();
  const auto index = static_cast<int64_t>(loop.index0);
  const auto length = static_cast<int64_t>(items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(int64_t{1});  // the depth of recursive loops, which are not supported
  if (name == "depth0") return Value(int64_t{0});
  if (name == "previtem") {
    return index > 0 ? items[loop.index0 - 1] : Value::MakeUndefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < length ? items[loop.index0 + 1] : Value::MakeUndefined("there is no next item");
  }
  return Value::MakeUndefined(fmt::format("loop has no attribute '{}'", name.substr(0, 64)));
}

// The bound method of that name, if one exists. Sets `found`.
Value BoundMethod(Budget& budget, const Value& value, std::string_view name, bool& found) {
  found = HasMethod(value, name);
  if (!found) return {};
  return Value(std::make_shared<const CallableObject>(&budget, CallableObject::Kind::kMethod,
                                                      std::string(name), value));
}

Value Missing(const Value& value, std::string_view name) {
  return Value::MakeUndefined(
      fmt::format("'{}' has no attribute '{}'", value.TypeName(), name.substr(0, 64)));
}

Value ItemAt(Budget& budget, const Value& value, int64_t index) {
  const int64_t length = Length(budget, value);
  const int64_t place = index < 0 ? index + length : index;
  if (place < 0 || place >= length) {
    return Value::MakeUndefined(fmt::format("{} of {} has no element {}", value.TypeName(), length, index));
  }
  if (value.IsList()) return value.items()[static_cast<size_t>(place)];
  const std::string& text = value.text();
  size_t i = 0;
  for (int64_t k = 0; k < place; ++k) i += DecodeAt(text, i).bytes;
  return Value::String(budget, std::string_view(text).substr(i, DecodeAt(text, i).bytes));
}

struct SliceRange {
  int64_t start, stop, step;
};

// Python's slice.indices.
SliceRange RangeOf(int64_t length, const Value& start, const Value& stop, const Value& step) {
  const auto part = [](const Value& value, int64_t otherwise) {
    if (value.IsNone()) return otherwise;
    if (!value.IsIntegral()) throw Fault("slice indices must be integers or None, not {}", value.TypeName());
    return value.integer();
  };
  SliceRange range{0, 0, part(step, 1)};
  if (range.step == 0) throw Fault("the step of a slice is zero");
  range.step = std::clamp(range.step, -length - 1, length + 1);  // so that adding it cannot overflow
  const bool back = range.step < 0;
  const int64_t low = back ? -1 : 0;
  const int64_t high = back ? length - 1 : length;
  const auto clamp = [&](int64_t i) { return std::clamp(i < 0 ? i + length : i, low, high); };
  range.start = start.IsNone() ? (back ? high : low) : clamp(part(start, 0));
  range.stop = stop.IsNone() ? (back ? low : high) : clamp(part(stop, 0));
  return range;
}

}  // namespace

Value Negate(const Value& value) {
  if (value.IsFloat()) return Value(-value.number());
  if (!Defined(value).IsIntegral()) throw Fault("bad operand for unary -: {}", value.TypeName());
  return Value(Checked(CheckedMul<int64_t>(value.integer(), -1)));
}

Value Concat(Budget& budget, const Value& a, const Value& b) {
  TextWriter out(budget);
  for (const Value* part : {&a, &b}) {
    part->IsString() ? out.Append(part->text()) : out.Append(ToText(budget, *part));
  }
  return Value::String(&budget, out.Finish());
}

Value Arithmetics(Budget& budget, Operator operation, const Value& a, const Value& b) {
  if (operation == Operator::kConcat) return Concat(budget, a, b);
  if (operation == Operator::kMod && a.IsString()) return PercentFormat(budget, a.text(), b);
  Defined(a);
  Defined(b);
  if (a.IsIntegral() && b.IsIntegral()) return IntArithmetic(operation, a.integer(), b.integer());
  if (a.IsNumber() && b.IsNumber()) return FloatArithmetic(operation, a.number(), b.number());
  if (operation == Operator::kAdd) return Sum(budget, a, b);
  if (operation == Operator::kMul && (a.IsString() || a.IsSequence()) && b.IsIntegral()) {
    return Repeat(budget, a, b.integer());
  }
  if (operation == Operator::kMul && a.IsIntegral() && (b.IsString() || b.IsSequence())) {
    return Repeat(budget, b, a.integer());
  }
  throw Fault("bad operands for {}: {} and {}", SymbolOf(operation), a.TypeName(), b.TypeName());
}

bool Contains(Budget& budget, const Value& container, const Value& item) {
  if (container.IsString()) {
    if (!item.IsString()) throw Fault("'in' needs a str to look for in a str, not {}", item.TypeName());
    budget.Work(container.text().size());
    return FindFirst(container.text(), item.text()) != std::string::npos;
  }
  if (container.IsDict()) return container.dict().Find(budget, item) != nullptr;
  const Value elements = Elements(budget, container);
  return std::any_of(elements.items().begin(), elements.items().end(),
                     [&](const Value& element) { return Equals(budget, element, item); });
}

bool Compares(Budget& budget, Comparison operation, const Value& a, const Value& b) {
  switch (operation) {
    case Comparison::kEqual:
      return Equals(budget, a, b);
    case Comparison::kNotEqual:
      return !Equals(budget, a, b);
    case Comparison::kIn:
      return Contains(budget, b, a);
    case Comparison::kNotIn:
      return !Contains(budget, b, a);
    default:
      break;
  }
  if (a.IsFloat() || b.IsFloat()) {  // every comparison with NaN is false
    if (a.IsNumber() && b.IsNumber() && (std::isnan(a.number()) || std::isnan(b.number()))) return false;
  }
  const int order = Compare(budget, a, b);
  switch (operation) {
    case Comparison::kLess:
      return order < 0;
    case Comparison::kLessEqual:
      return order <= 0;
    case Comparison::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

Value Attribute(Budget& budget, const Value& value, std::string_view name) {
  Defined(value);
  bool found = false;
  Value method = BoundMethod(budget, value, name, found);
  if (found) return method;
  if (ChangesItsObject(value, name)) {
    return Value::MakeUndefined(
        fmt::format("'{}' would change a {}: templates cannot", name, value.TypeName()));
  }
  if (value.IsDict()) {
    const Value* entry = value.dict().Find(name);
    if (entry != nullptr) return *entry;
  } else if (value.type() == Type::kNamespace) {
    const auto attribute = value.space().attributes.find(name);
    if (attribute != value.space().attributes.end()) return attribute->second;
  } else if (value.type() == Type::kLoop) {
    return LoopAttribute(value.loop(), name);
  }
  return Missing(value, name);
}

Value Subscript(Budget& budget, const Value& value, const Value& key) {
  Defined(value);
  if (value.IsDict()) {
    // Undefined keys are looked up like any other key and are not found.
    const bool hashable = !key.IsList() || key.IsList(ListKind::kTuple);
    const Value* entry = hashable && !key.IsDict() ? value.dict().Find(budget, key) : nullptr;
    if (entry != nullptr) return *entry;
  } else if ((value.IsString() || value.IsSequence()) && key.IsIntegral()) {
    return ItemAt(budget, value, key.integer());
  }
  if (key.IsString()) return Attribute(budget, value, key.text());
  return Missing(value, ToText(budget, key));
}

Value Slice(Budget& budget, const Value& value, const Value& start, const Value& stop, const Value& step) {
  Defined(value);
  if (!value.IsString() && !value.IsSequence()) return Missing(value, "slice");
  if (value.IsString()) {
    const std::string& text = value.text();
    budget.FitsTimes(text.size(), sizeof(size_t));
    budget.Work(text.size());
    const std::vector<size_t> offsets = CodePointOffsets(text);
    const SliceRange range = RangeOf(static_cast<int64_t>(offsets.size()) - 1, start, stop, step);
    std::string out;
    for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
      const auto k = static_cast<size_t>(i);
      out.append(text, offsets[k], offsets[k + 1] - offsets[k]);
    }
    return Value::String(&budget, std::move(out));
  }
  const std::vector<Value>& items = value.items();
  const SliceRange range = RangeOf(static_cast<int64_t>(items.size()), start, stop, step);
  std::vector<Value> out;
  budget.FitsTimes(items.size(), sizeof(Value));
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
    out.push_back(items[static_cast<size_t>(i)]);
  }
  return Value::List(budget, std::move(out), value.list_kind());
}

}  // namespace coppice::jinja
