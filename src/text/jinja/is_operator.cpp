// The tests for the operator `is`.
#include <unordered_map>

#include "text/jinja/operators.h"
#include "text/jinja/text.h"

namespace coppice::jinja {
namespace {

using B = Budget;
using V = Value;
using Test = bool (*)(Budget&, const Value&, const CallArguments&);
using A = CallArguments;

const Value& Operand(const CallArguments& arguments) {
  return Bound("a test", arguments, {"other"}).Required(0);
}

template <Comparison kOperation>
bool CompareTest(B& b, const V& v, const A& a) {
  return Compares(b, kOperation, v, Operand(a));
}

bool LeavesRest(B& b, const V& v, const V& divisor, int64_t rest) {
  return Equals(b, Arithmetics(b, Operator::kMod, v, divisor), V(rest));
}

bool IsIterable(const Value& v) {
  return v.IsList() || v.IsString() || v.IsDict() || v.IsUndefined() || v.type() == Type::kLoop;
}
bool HasLengthAndItems(const Value& v) {
  return v.IsSequence() || v.IsString() || v.IsDict() || v.IsUndefined();
}

bool SameAs(B& b, const V& v, const A& a) {
  const Value& other = Operand(a);
  if (v.type() != other.type()) return false;
  if (v.IsList()) return &v.items() == &other.items();
  if (v.IsDict()) return &v.dict() == &other.dict();
  return Equals(b, v, other);
}

template <bool kUpper>
bool CaseTest(B& b, const V& v, const A&) {
  const Value text = v.IsUndefined() ? Value::String(b, "") : ToString(b, v);
  return CallMethod(b, text, kUpper ? "isupper" : "islower", {}).Truth();
}

const std::unordered_map<std::string_view, Test>& Tests() {
  static const std::unordered_map<std::string_view, Test> kTable = {
      {"defined", [](B&, const V& v, const A&) { return !v.IsUndefined(); }},
      {"undefined", [](B&, const V& v, const A&) { return v.IsUndefined(); }},
      {"none", [](B&, const V& v, const A&) { return v.IsNone(); }},
      {"string", [](B&, const V& v, const A&) { return v.IsString(); }},
      {"mapping", [](B&, const V& v, const A&) { return v.IsDict(); }},
      {"number", [](B&, const V& v, const A&) { return v.IsNumber(); }},
      {"integer", [](B&, const V& v, const A&) { return v.IsInt(); }},
      {"float", [](B&, const V& v, const A&) { return v.IsFloat(); }},
      {"boolean", [](B&, const V& v, const A&) { return v.IsBool(); }},
      {"true", [](B&, const V& v, const A&) { return v.IsBool() && v.Truth(); }},
      {"false", [](B&, const V& v, const A&) { return v.IsBool() && !v.Truth(); }},
      {"iterable", [](B&, const V& v, const A&) { return IsIterable(v); }},
      {"sequence", [](B&, const V& v, const A&) { return HasLengthAndItems(v); }},
      {"callable", [](B&, const V& v, const A&) { return v.type() == Type::kCallable; }},
      {"odd", [](B& b, const V& v, const A&) { return LeavesRest(b, v, V(int64_t{2}), 1); }},
      {"even", [](B& b, const V& v, const A&) { return LeavesRest(b, v, V(int64_t{2}), 0); }},
      {"divisibleby", [](B& b, const V& v, const A& a) { return LeavesRest(b, v, Operand(a), 0); }},
      {"sameas", SameAs},
      {"lower", CaseTest<false>},
      {"upper", CaseTest<true>},
      {"filter", [](B&, const V& v, const A&) { return v.IsString() && IsFilterName(v.text()); }},
      {"test", [](B&, const V& v, const A&) { return v.IsString() && IsTestName(v.text()); }},
      {"in", [](B& b, const V& v, const A& a) { return Contains(b, Operand(a), v); }},
      {"eq", CompareTest<Comparison::kEqual>},
      {"equalto", CompareTest<Comparison::kEqual>},
      {"==", CompareTest<Comparison::kEqual>},
      {"ne", CompareTest<Comparison::kNotEqual>},
      {"!=", CompareTest<Comparison::kNotEqual>},
      {"lt", CompareTest<Comparison::kLess>},
      {"lessthan", CompareTest<Comparison::kLess>},
      {"<", CompareTest<Comparison::kLess>},
      {"le", CompareTest<Comparison::kLessEqual>},
      {"<=", CompareTest<Comparison::kLessEqual>},
      {"gt", CompareTest<Comparison::kGreater>},
      {"greaterthan", CompareTest<Comparison::kGreater>},
      {">", CompareTest<Comparison::kGreater>},
      {"ge", CompareTest<Comparison::kGreaterEqual>},
      {">=", CompareTest<Comparison::kGreaterEqual>}};
  return kTable;
}

}  // namespace

bool IsTestName(const std::string& name) { return Tests().contains(name); }

bool ApplyTest(Budget& budget, const std::string& name, const Value& value, const CallArguments& arguments) {
  const auto found = Tests().find(name);
  if (found == Tests().end()) throw Fault("no test named '{}'", name.substr(0, 64));
  return found->second(budget, value, arguments);
}

}  // namespace coppice::jinja
