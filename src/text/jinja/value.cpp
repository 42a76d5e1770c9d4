#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "text/jinja/text.h"

namespace coppice::jinja {
namespace {

constexpr size_t kObjectBytes = 96;  // control block, allocator overhead and the object itself
constexpr size_t kMaxWhyBytes = 200;

int CheckedDepth(int below) {
  if (below >= kMaxValueDepth) throw Fault("values nest deeper than {}", kMaxValueDepth);
  return below + 1;
}

int DepthOf(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.Depth());
  return CheckedDepth(depth);
}

bool IsHashable(const Value& value) {
  if (value.IsList(ListKind::kTuple)) {
    return std::all_of(value.items().begin(), value.items().end(), IsHashable);
  }
  return !value.IsList() && !value.IsDict();
}

bool EqualItems(Budget& budget, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equals(budget, a[i], b[i])) return false;
  }
  return true;
}

bool EqualDicts(Budget& budget, const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(budget, key);
    if (other == nullptr || !Equals(budget, value, *other)) return false;
  }
  return true;
}

template <typename T>
int Order(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

}  // namespace

StringObject::StringObject(Budget* budget, std::string value, bool is_markup)
    : text(std::move(value)), markup(is_markup), charge(budget, kObjectBytes + text.capacity()) {}

ListObject::ListObject(Budget* budget, std::vector<Value> values, ListKind list_kind)
    : items(std::move(values)),
      kind(list_kind),
      depth(DepthOf(items)),
      charge(budget, kObjectBytes + items.size() * sizeof(Value)) {}

DictObject::DictObject(Budget* budget, size_t count)
    : charge(budget, kObjectBytes + count * (2 * sizeof(Value) + 64)) {
  entries.reserve(count);
}

const Value* DictObject::Find(std::string_view key) const {
  const auto found = string_keys.find(key);
  return found == string_keys.end() ? nullptr : &entries[found->second].second;
}

const Value* DictObject::Find(Budget& budget, const Value& key) const {
  if (key.IsString()) {
    budget.Work(key.text().size());
    return Find(std::string_view(key.text()));
  }
  if (!IsHashable(key)) throw Fault("unhashable type: {}", key.TypeName());
  if (string_keys.size() == entries.size()) return nullptr;
  for (const auto& [own_key, value] : entries) {
    if (Equals(budget, own_key, key)) return &value;
  }
  return nullptr;
}

LoopObject::LoopObject(Value all_items) : items(std::move(all_items)), depth(CheckedDepth(items.Depth())) {}

CallableObject::CallableObject(Budget* budget, Kind callable_kind, std::string called, Value receiver)
    : kind(callable_kind),
      name(std::move(called)),
      self(std::move(receiver)),
      depth(CheckedDepth(self.Depth())),
      charge(budget, kObjectBytes + sizeof(CallableObject)) {}

Value Value::MakeUndefined(std::string why) {
  if (why.size() > kMaxWhyBytes) why.resize(kMaxWhyBytes);
  Value result;
  result.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return result;
}

Value Value::String(Budget* budget, std::string text) {
  Value result;
  result.data_ = std::make_shared<const StringObject>(budget, std::move(text));
  return result;
}

Value Value::String(Budget& budget, std::string_view text) {
  budget.Work(text.size());
  budget.Fits(text.size());
  return String(&budget, std::string(text));
}

Value Value::Markup(Budget& budget, const Value& string) {
  budget.Work(string.text().size());
  budget.Fits(string.text().size());
  Value result;
  result.data_ = std::make_shared<const StringObject>(&budget, string.text(), true);
  return result;
}

bool Value::IsMarkup() const {
  return IsString() && std::get<std::shared_ptr<const StringObject>>(data_)->markup;
}

Value Value::List(Budget* budget, std::vector<Value> items, ListKind kind) {
  Value result;
  result.data_ = std::make_shared<const ListObject>(budget, std::move(items), kind);
  return result;
}

Value Value::List(Budget& budget, std::vector<Value> items, ListKind kind) {
  budget.Work(items.size() * Budget::kUnitsPerItem);
  return List(&budget, std::move(items), kind);
}

Value Value::Dict(Budget& budget, std::vector<std::pair<Value, Value>> entries) {
  budget.Work(entries.size() * Budget::kUnitsPerItem);
  auto dict = std::make_shared<DictObject>(&budget, entries.size());
  int depth = 0;
  for (auto& [key, value] : entries) {
    depth = std::max({depth, key.Depth(), value.Depth()});
    if (const Value* old = dict->Find(budget, key)) {
      *const_cast<Value*>(old) = std::move(value);  // safe: this function owns the dict it builds
      continue;
    }
    dict->entries.emplace_back(std::move(key), std::move(value));
    const Value& stored = dict->entries.back().first;
    if (stored.IsString()) dict->string_keys.emplace(stored.text(), dict->entries.size() - 1);
  }
  dict->depth = CheckedDepth(depth);
  Value result;
  result.data_ = std::shared_ptr<const DictObject>(std::move(dict));
  return result;
}

Value Value::FromJson(Budget& budget, const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxValueDepth) throw Fault("values nest deeper than {}", kMaxValueDepth);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Value(static_cast<double>(number));
      }
      return Value(static_cast<int64_t>(number));
    }
    case nlohmann::ordered_json::value_t::number_float:
      return Value(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return String(&budget, json.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(FromJson(budget, item, depth + 1));
      return List(&budget, std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      entries.reserve(json.size());
      for (const auto& [key, value] : json.items()) {
        entries.emplace_back(String(&budget, key), FromJson(budget, value, depth + 1));
      }
      return Dict(budget, std::move(entries));
    }
    default:
      return None{};
  }
}

bool Value::IsList(ListKind kind) const { return IsList() && list_kind() == kind; }

int64_t Value::integer() const {
  return IsBool() ? static_cast<int64_t>(std::get<bool>(data_)) : std::get<int64_t>(data_);
}
double Value::number() const { return IsFloat() ? std::get<double>(data_) : static_cast<double>(integer()); }
const std::string& Value::text() const { return std::get<std::shared_ptr<const StringObject>>(data_)->text; }
const std::vector<Value>& Value::items() const {
  return std::get<std::shared_ptr<const ListObject>>(data_)->items;
}
ListKind Value::list_kind() const { return std::get<std::shared_ptr<const ListObject>>(data_)->kind; }
const DictObject& Value::dict() const { return *std::get<std::shared_ptr<const DictObject>>(data_); }
NamespaceObject& Value::space() const { return *std::get<NamespaceObject*>(data_); }
const LoopObject& Value::loop() const { return *std::get<std::shared_ptr<const LoopObject>>(data_); }
const CallableObject& Value::callable() const {
  return *std::get<std::shared_ptr<const CallableObject>>(data_);
}

std::string Value::WhyUndefined() const {
  const Undefined& undefined = std::get<Undefined>(data_);
  return undefined.why ? *undefined.why : "the value is undefined";
}

int Value::Depth() const {
  switch (type()) {
    case Type::kList:
      return std::get<std::shared_ptr<const ListObject>>(data_)->depth;
    case Type::kDict:
      return dict().depth;
    case Type::kLoop:
      return loop().depth;
    case Type::kCallable:
      return callable().depth;
    default:
      return 0;
  }
}

bool Value::Truth() const {
  switch (type()) {
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
      return std::get<bool>(data_);
    case Type::kInt:
      return integer() != 0;
    case Type::kFloat:
      return number() != 0;
    case Type::kString:
      return !text().empty();
    case Type::kList:
      return list_kind() == ListKind::kGenerator || !items().empty();
    case Type::kDict:
      return !dict().entries.empty();
    default:
      return true;
  }
}

std::string_view Value::TypeName() const {
  switch (type()) {
    case Type::kUndefined:
      return "undefined";
    case Type::kNone:
      return "None";
    case Type::kBool:
      return "bool object";
    case Type::kInt:
      return "int object";
    case Type::kFloat:
      return "float object";
    case Type::kString:
      return "str object";
    case Type::kList:
      return IsSequence() ? (list_kind() == ListKind::kTuple ? "tuple object" : "list object") : "iterator";
    case Type::kDict:
      return "dict object";
    case Type::kNamespace:
      return "namespace object";
    case Type::kLoop:
      return "loop";
    default:
      return "function";
  }
}

bool Equals(Budget& budget, const Value& a, const Value& b) {
  budget.Work(Budget::kUnitsPerItem);
  if (a.IsNumber() && b.IsNumber()) {
    return a.IsIntegral() && b.IsIntegral() ? a.integer() == b.integer() : a.number() == b.number();
  }
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kString:
      budget.Work(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Type::kList:
      return a.list_kind() == b.list_kind() && EqualItems(budget, a.items(), b.items());
    case Type::kDict:
      return EqualDicts(budget, a.dict(), b.dict());
    case Type::kNamespace:
      return &a.space() == &b.space();
    case Type::kLoop:
      return &a.loop() == &b.loop();
    case Type::kCallable:
      return &a.callable() == &b.callable();
    default:
      return true;  // undefined and none
  }
}

int Compare(Budget& budget, const Value& a, const Value& b) {
  budget.Work(Budget::kUnitsPerItem);
  if (a.IsIntegral() && b.IsIntegral()) return Order(a.integer(), b.integer());
  if (a.IsNumber() && b.IsNumber()) return Order(a.number(), b.number());
  if (a.IsString() && b.IsString()) {
    budget.Work(std::min(a.text().size(), b.text().size()));
    return Order(a.text().compare(b.text()), 0);
  }
  if (a.IsSequence() && b.IsSequence() && a.list_kind() == b.list_kind()) {
    const size_t shared = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < shared; ++i) {
      if (!Equals(budget, a.items()[i], b.items()[i])) return Compare(budget, a.items()[i], b.items()[i]);
    }
    return Order(a.items().size(), b.items().size());
  }
  if (a.IsUndefined()) throw Fault("{}", a.WhyUndefined());
  if (b.IsUndefined()) throw Fault("{}", b.WhyUndefined());
  throw Fault("{} and {} have no order", a.TypeName(), b.TypeName());
}

Value Elements(Budget& budget, const Value& value) {
  std::vector<Value> items;
  switch (value.type()) {
    case Type::kList:
      return value;
    case Type::kUndefined:
      break;
    case Type::kString: {
      const std::string& text = value.text();
      budget.FitsTimes(CountCodePoints(text), sizeof(Value) + kObjectBytes);
      for (size_t i = 0; i < text.size();) {
        const size_t bytes = DecodeAt(text, i).bytes;
        items.push_back(Value::String(budget, std::string_view(text).substr(i, bytes)));
        i += bytes;
      }
      break;
    }
    case Type::kDict:
      for (const auto& entry : value.dict().entries) items.push_back(entry.first);
      break;
    case Type::kLoop:
      return value.loop().items;
    default:
      throw Fault("{} is not iterable", value.TypeName());
  }
  return Value::List(budget, std::move(items));
}

int64_t Length(Budget& budget, const Value& value) {
  switch (value.type()) {
    case Type::kUndefined:
      return 0;
    case Type::kString:
      budget.Work(value.text().size());
      return static_cast<int64_t>(CountCodePoints(value.text()));
    case Type::kList:
      if (value.list_kind() == ListKind::kGenerator) break;
      return static_cast<int64_t>(value.items().size());
    case Type::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case Type::kLoop:
      return static_cast<int64_t>(value.loop().items.items().size());
    default:
      break;
  }
  throw Fault("{} has no length", value.TypeName());
}

}  // namespace coppice::jinja
