// The values of a template: JSON values, undefined, and the few things that can be called.
//
// Lists, dicts and strings are immutable (Hugging Face renders in Jinja's immutable sandbox), so they are
// shared, and no cycle of owners can form: the only mutable value, a namespace, is owned by the rendering,
// and values only point to it. Nesting is limited to kMaxValueDepth, which limits every recursion over
// values, including their destructors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/budget.h"

namespace coppice::jinja {

inline constexpr int kMaxValueDepth = 2 * limits::kMaxTemplateDepth;

class Value;
struct Macro;  // jinja_ast.h
class Scope;   // jinja_interpreter.h

struct Undefined {
  std::shared_ptr<const std::string> why;  // the message of an error when it is used; null: a general message
};
struct None {};

struct StringObject {
  StringObject(Budget* budget, std::string value, bool is_markup = false);
  std::string text;
  bool markup;
  Charge charge;
};
struct ListObject;
struct DictObject;
struct NamespaceObject;
struct LoopObject;
struct CallableObject;

// In the order of Value's alternatives.
enum class Type {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kDict,
  kNamespace,
  kLoop,
  kCallable
};

// Python's list and tuple, and the iterables that methods and filters return. A generator is always true and
// has no length.
enum class ListKind { kList, kTuple, kGenerator, kKeys, kValues, kItems };

class Value {
 public:
  Value() = default;  // undefined
  Value(None none) : data_(none) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(NamespaceObject* value) : data_(value) {}
  explicit Value(std::shared_ptr<const LoopObject> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<const CallableObject> value) : data_(std::move(value)) {}

  static Value MakeUndefined(std::string why);
  static Value String(Budget* budget, std::string text);
  static Value String(Budget& budget, std::string_view text);
  // The same string, marked as HTML that needs no escaping: the result of the filters safe and escape.
  static Value Markup(Budget& budget, const Value& string);
  static Value List(Budget* budget, std::vector<Value> items, ListKind kind = ListKind::kList);
  static Value List(Budget& budget, std::vector<Value> items, ListKind kind = ListKind::kList);
  // Of equal keys, the first determines the place and the last the value. Throws Fault for a key that is
  // neither a scalar nor a tuple.
  static Value Dict(Budget& budget, std::vector<std::pair<Value, Value>> entries);
  static Value FromJson(Budget& budget, const nlohmann::ordered_json& json, int depth = 0);

  Type type() const { return static_cast<Type>(data_.index()); }
  bool IsUndefined() const { return type() == Type::kUndefined; }
  bool IsNone() const { return type() == Type::kNone; }
  bool IsBool() const { return type() == Type::kBool; }
  bool IsInt() const { return type() == Type::kInt; }
  bool IsFloat() const { return type() == Type::kFloat; }
  bool IsString() const { return type() == Type::kString; }
  bool IsMarkup() const;
  bool IsList() const { return type() == Type::kList; }  // of any kind
  bool IsList(ListKind kind) const;
  bool IsSequence() const { return IsList(ListKind::kList) || IsList(ListKind::kTuple); }
  bool IsDict() const { return type() == Type::kDict; }
  bool IsIntegral() const { return IsInt() || IsBool(); }  // Python's bool is an int
  bool IsNumber() const { return IsIntegral() || IsFloat(); }

  int64_t integer() const;  // of an int or a bool
  double number() const;    // of any number
  const std::string& text() const;
  const std::vector<Value>& items() const;
  ListKind list_kind() const;
  const DictObject& dict() const;
  NamespaceObject& space() const;
  const LoopObject& loop() const;
  const CallableObject& callable() const;
  std::string WhyUndefined() const;

  int Depth() const;
  bool Truth() const;
  std::string_view TypeName() const;  // as in Jinja's messages

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const StringObject>,
               std::shared_ptr<const ListObject>, std::shared_ptr<const DictObject>, NamespaceObject*,
               std::shared_ptr<const LoopObject>, std::shared_ptr<const CallableObject>>
      data_;
};

struct ListObject {
  ListObject(Budget* budget, std::vector<Value> values, ListKind list_kind);
  std::vector<Value> items;
  ListKind kind;
  int depth;
  Charge charge;
};

struct DictObject {
  DictObject(Budget* budget, size_t count);
  const Value* Find(Budget& budget, const Value& key) const;
  const Value* Find(std::string_view key) const;

  std::vector<std::pair<Value, Value>> entries;  // in order of insertion
  // The key's bytes are in `entries`; the value is the entry's index. A tree, because a request chooses the
  // keys and could make them collide in a hash table.
  std::map<std::string_view, size_t> string_keys;
  int depth = 1;
  Charge charge;
};

struct NamespaceObject {
  std::map<std::string, Value, std::less<>> attributes;
};

struct LoopObject {
  explicit LoopObject(Value all_items);
  Value items;  // a list
  size_t index0 = 0;
  int depth;
};

struct CallableObject {
  enum class Kind { kFunction, kMethod, kMacro };
  CallableObject(Budget* budget, Kind callable_kind, std::string called, Value receiver = {});
  Kind kind;
  std::string name;
  Value self;  // of a method
  const Macro* macro = nullptr;
  std::weak_ptr<Scope> scope;  // the scope of the macro's definition; weak, because that scope owns the macro
  int depth;
  Charge charge;
};

// Python's == and <. Compare throws Fault for types without an order.
bool Equals(Budget& budget, const Value& a, const Value& b);
int Compare(Budget& budget, const Value& a, const Value& b);  // -1, 0, 1

// The elements of a loop over `value`, as a list. Throws Fault if it cannot be iterated.
Value Elements(Budget& budget, const Value& value);
int64_t Length(Budget& budget, const Value& value);

// str(value) and repr(value).
std::string ToText(Budget& budget, const Value& value);
Value ToString(Budget& budget, const Value& value);  // shares the bytes of a string
void WriteRepr(TextWriter& out, const Value& value);
std::string FloatRepr(double value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multiline = false;
  std::string indent;  // per level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(value, ...).
std::string ToJson(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace coppice::jinja
