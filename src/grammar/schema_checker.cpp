#include "grammar/schema_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "grammar/schema_values.h"

namespace coppice {

namespace {

using Json = nlohmann::ordered_json;
using Shown = ShownValue;

constexpr size_t kMaxSteps = 2'000'000;  // about 0.1 s
constexpr int kDeepestCheck = 200;
constexpr size_t kMaxMessage = 200;

const Json* Find(const Json& schema, const char* keyword) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : &*found;
}

bool IsDraft7(const Json& root) {
  const Json* schema = root.is_object() ? Find(root, "$schema") : nullptr;
  return schema != nullptr && schema->is_string() &&
         schema->get_ref<const std::string&>().find("/draft-0") != std::string::npos;
}

std::string Step(std::string_view name) {
  std::string step = "/";
  for (const char c : name.substr(0, kMaxMessage)) {
    if (c == '~' || c == '/') {
      step += c == '~' ? "~0" : "~1";
    } else {
      step += c;
    }
  }
  return step;
}

}  // namespace

SchemaChecker::SchemaChecker(const Json& root, SchemaDraft draft, WorkBudget* budget)
    : budget_(budget),
      old_(IsDraft7(root) || (draft == SchemaDraft::k7 && !(root.is_object() && root.contains("$schema")))),
      refs_(root, old_) {}

bool SchemaChecker::Check(const Json& schema, const Json& value, size_t most,
                          std::vector<SchemaFault>& faults) {
  faults_ = &faults;
  most_ = most;
  silent_ = most == 0;
  scope_.clear();
  Evaluated evaluated(value.is_structured() ? value.size() : 0);
  return Visit(schema, value, "", evaluated, 0);
}

void SchemaChecker::Spend(size_t steps) {
  steps_ += steps;
  if (steps_ > kMaxSteps) throw Error("takes too long to be checked against its schema");
  if (budget_ != nullptr) budget_->Spend(steps);
}

// Most faults are told to nobody: their words are made only for those that are.
template <typename... Args>
bool SchemaChecker::Fail(const At& at, fmt::format_string<const Args&...> format, const Args&... args) {
  if (silent_ || faults_->size() >= most_) return false;
  std::string text = fmt::format(format, args...);
  if (text.size() > kMaxMessage) text.resize(kMaxMessage);
  faults_->push_back({at.path.substr(0, kMaxMessage), std::move(text)});
  return false;
}

bool SchemaChecker::Same(const Json& a, const Json& b) {
  return SameValue(a, b, [this](size_t steps) { Spend(steps); });
}

bool SchemaChecker::Visit(const Json& schema, const Json& value, const std::string& path,
                          Evaluated& evaluated, int depth) {
  // Each keyword is looked for among all members of the schema, and members and items are marked.
  Spend(1 + (schema.is_object() ? schema.size() : 0) + evaluated.size() / 16);
  if (depth > kDeepestCheck) throw Error("the schema refers to itself without end, or is too deep");
  const At at{schema, value, path, evaluated, depth};
  if (schema.is_boolean()) return schema.get<bool>() || Fail(at, "nothing is allowed here");
  if (!schema.is_object()) throw Error("a schema is neither an object nor true or false");
  if (old_ && schema.contains("$ref")) return References(at);  // what stands beside it says nothing
  scope_.push_back(&schema);
  bool fits = References(at);
  // Each looks at all, so that all faults are told; where none are, the first ends it.
  for (const auto check :
       {&SchemaChecker::Values, &SchemaChecker::Numbers, &SchemaChecker::Strings, &SchemaChecker::Items,
        &SchemaChecker::Contains, &SchemaChecker::Members, &SchemaChecker::Dependencies,
        &SchemaChecker::Combinations, &SchemaChecker::Unevaluated}) {
    if (fits || !silent_) fits = (this->*check)(at) && fits;
  }
  scope_.pop_back();
  return fits;
}

bool SchemaChecker::Part(const At& at, const Json& schema, const Json& value, const std::string& step) {
  Evaluated evaluated(value.is_structured() ? value.size() : 0);
  const bool is_told = !silent_ && at.path.size() <= kMaxMessage;  // messages show no more of it
  return Visit(schema, value, is_told ? at.path + step : at.path, evaluated, at.depth + 1);
}

bool SchemaChecker::InPlace(const At& at, const Json& schema) {
  Evaluated evaluated(at.evaluated.size());
  if (!Visit(schema, at.value, at.path, evaluated, at.depth + 1)) return false;
  for (size_t i = 0; i < evaluated.size(); ++i) {
    if (evaluated[i]) at.evaluated[i] = true;
  }
  return true;
}

bool SchemaChecker::Holds(const At& at, const Json& schema, Evaluated& evaluated) {
  const bool silent = std::exchange(silent_, true);
  evaluated.assign(at.evaluated.size(), false);
  const size_t scopes = scope_.size();
  const bool holds = Visit(schema, at.value, at.path, evaluated, at.depth + 1);
  scope_.resize(scopes);
  silent_ = silent;
  return holds;
}

bool SchemaChecker::References(const At& at) {
  bool fits = true;
  if (const Json* reference = Find(at.schema, "$ref"))
    fits = InPlace(at, refs_.Target(at.schema, *reference));
  if (old_) return fits;
  if (const Json* reference = Find(at.schema, "$dynamicRef"))
    fits = InPlace(at, refs_.DynamicTarget(at.schema, *reference, scope_)) && fits;
  if (const Json* reference = Find(at.schema, "$recursiveRef"))
    fits = InPlace(at, refs_.Target(at.schema, *reference)) && fits;
  return fits;
}

bool SchemaChecker::Values(const At& at) {
  const Json& schema = at.schema;
  const Json& value = at.value;
  bool fits = true;
  if (const Json* type = Find(schema, "type")) {
    if (type->is_array()) Spend(type->size());
    const Json list = type->is_array() ? *type : Json::array({*type});
    const bool known = std::ranges::all_of(list, [](const Json& name) {
      return name == "object" || name == "array" || name == "string" || name == "number" ||
             name == "integer" || name == "boolean" || name == "null";
    });
    const bool is = std::ranges::any_of(
        list, [&](const Json& name) { return name.is_string() && IsOfType(value, name.get<std::string>()); });
    if (known && !is) fits = Fail(at, "{} is not of type {}", Shown{value}, Shown{*type});
  }
  if (const Json* values = Find(schema, "enum"); values != nullptr && values->is_array()) {
    if (std::ranges::none_of(*values, [&](const Json& one) { return Same(one, value); }))
      fits = Fail(at, "{} is none of {}", Shown{value}, Shown{*values});
  }
  if (const Json* constant = Find(schema, "const"); constant != nullptr && !Same(*constant, value))
    fits = Fail(at, "{} is not {}", Shown{value}, Shown{*constant});
  return fits;
}

bool SchemaChecker::Numbers(const At& at) {
  if (!at.value.is_number()) return true;
  const auto is = [&](const char* keyword) {
    const Json* found = Find(at.schema, keyword);
    return found != nullptr && found->is_boolean() && found->get<bool>();  // draft 4
  };
  const auto fails = [&](const char* keyword, auto wrong) {
    const Json* bound = Find(at.schema, keyword);
    if (bound == nullptr || !bound->is_number() || !wrong(CompareNumbers(at.value, *bound))) return false;
    return !Fail(at, "{} against {} {}", Shown{at.value}, keyword, Shown{*bound});
  };
  bool fits = true;
  if (fails("minimum", [&](int order) { return order < 0 || (order == 0 && is("exclusiveMinimum")); }))
    fits = false;
  if (fails("maximum", [&](int order) { return order > 0 || (order == 0 && is("exclusiveMaximum")); }))
    fits = false;
  if (fails("exclusiveMinimum", [](int order) { return order <= 0; })) fits = false;
  if (fails("exclusiveMaximum", [](int order) { return order >= 0; })) fits = false;
  const Json* divisor = Find(at.schema, "multipleOf");
  if (divisor != nullptr && divisor->is_number() && divisor->get<double>() > 0 &&
      !IsMultiple(at.value, *divisor))
    fits = Fail(at, "{} is no multiple of {}", Shown{at.value}, Shown{*divisor});
  return fits;
}

bool SchemaChecker::Within(const At& at, size_t count, const char* least, const char* most) {
  bool fits = true;
  if (const Json* bound = Find(at.schema, least);
      bound != nullptr && bound->is_number() && static_cast<double>(count) < bound->get<double>())
    fits = Fail(at, "{} against {} {}", count, least, Shown{*bound});
  if (const Json* bound = Find(at.schema, most);
      bound != nullptr && bound->is_number() && static_cast<double>(count) > bound->get<double>())
    fits = Fail(at, "{} against {} {}", count, most, Shown{*bound});
  return fits;
}

bool SchemaChecker::Strings(const At& at) {
  if (!at.value.is_string()) return true;
  const auto& text = at.value.get_ref<const std::string&>();
  Spend(1 + text.size() / 64);
  bool fits = Within(at, LengthOf(text), "minLength", "maxLength");
  const Json* pattern = Find(at.schema, "pattern");
  if (pattern != nullptr && pattern->is_string() && !patterns_.Finds(pattern->get<std::string>(), text))
    fits = Fail(at, "{} does not match the pattern {}", Shown{at.value}, Shown{*pattern});
  return fits;
}

bool SchemaChecker::Items(const At& at) {
  if (!at.value.is_array()) return true;
  const Json& value = at.value;
  bool fits = Within(at, value.size(), "minItems", "maxItems");
  const Json* items = Find(at.schema, "items");
  const Json* first = Find(at.schema, "prefixItems");
  if (items != nullptr && items->is_array()) {
    first = items;
    items = Find(at.schema, "additionalItems");
  } else if (old_) {
    first = nullptr;
  }
  const size_t fixed = first != nullptr && first->is_array() ? first->size() : 0;
  for (size_t i = 0; i < value.size(); ++i) {
    const Json* schema = i < fixed ? &(*first)[i] : items;
    if (schema == nullptr) break;
    at.evaluated[i] = true;
    fits = Part(at, *schema, value[i], fmt::format("/{}", i)) && fits;
    if (!fits && silent_) return false;
  }
  if (const Json* unique = Find(at.schema, "uniqueItems"); unique != nullptr && *unique == true) {
    for (size_t i = 0; i < value.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (Same(value[i], value[j])) return Fail(at, "items {} and {} are equal", j, i);
      }
    }
  }
  return fits;
}

bool SchemaChecker::Contains(const At& at) {
  const Json* schema = Find(at.schema, "contains");
  if (schema == nullptr || !at.value.is_array()) return true;
  size_t found = 0;
  const bool silent = std::exchange(silent_, true);
  for (size_t i = 0; i < at.value.size(); ++i) {
    if (!Part(at, *schema, at.value[i], "")) continue;
    ++found;
    if (!old_) at.evaluated[i] = true;
  }
  silent_ = silent;
  if (old_ || !at.schema.contains("minContains"))
    return (found > 0 || Fail(at, "no item fits contains")) &&
           (old_ || Within(at, found, "minContains", "maxContains"));
  return Within(at, found, "minContains", "maxContains");
}

bool SchemaChecker::Members(const At& at) {
  if (!at.value.is_object()) return true;
  bool fits = Within(at, at.value.size(), "minProperties", "maxProperties");
  if (const Json* required = Find(at.schema, "required"); required != nullptr && required->is_array()) {
    Spend(required->size() * (1 + at.value.size() / 16));
    for (const Json& name : *required) {
      if (name.is_string() && !at.value.contains(name.get_ref<const std::string&>()))
        fits = Fail(at, "the member {} is missing", Shown{name});
    }
  }
  const Json* properties = Find(at.schema, "properties");
  const Json* patterns = Find(at.schema, "patternProperties");
  const Json* rest = Find(at.schema, "additionalProperties");
  const Json* names = Find(at.schema, "propertyNames");
  size_t number = 0;
  for (const auto& [name, member] : at.value.items()) {
    Spend(1 + (properties != nullptr ? properties->size() / 16 : 0));
    const std::string step = silent_ ? "" : Step(name);
    bool known = false;
    const auto apply = [&, &part = member](const Json& schema) {
      known = true;
      at.evaluated[number] = true;
      fits = Part(at, schema, part, step) && fits;
    };
    if (properties != nullptr && properties->is_object()) {
      if (const auto found = properties->find(name); found != properties->end()) apply(*found);
    }
    if (patterns != nullptr && patterns->is_object()) {
      for (const auto& [pattern, schema] : patterns->items()) {
        Spend(1);
        if (patterns_.Finds(pattern, name)) apply(schema);
      }
    }
    if (!known && rest != nullptr) {
      if (*rest == false) {
        fits = Fail(at, "the member {} is not allowed", Shown{Json(name)});
      } else {
        apply(*rest);
      }
    }
    if (names != nullptr) fits = Part(at, *names, Json(name), step) && fits;
    if (!fits && silent_) return false;
    ++number;
  }
  return fits;
}

bool SchemaChecker::Dependencies(const At& at) {
  if (!at.value.is_object()) return true;
  bool fits = true;
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const Json* list = Find(at.schema, keyword);
    if (list == nullptr || !list->is_object()) continue;
    for (const auto& [name, needs] : list->items()) {
      Spend(1 + at.value.size() / 16);
      if (!at.value.contains(name)) continue;
      if (!needs.is_array()) {
        fits = InPlace(at, needs) && fits;
        continue;
      }
      Spend(needs.size() * (1 + at.value.size() / 16));
      for (const Json& needed : needs) {
        if (needed.is_string() && !at.value.contains(needed.get_ref<const std::string&>()))
          fits = Fail(at, "{} needs the member {}", Shown{Json(name)}, Shown{needed});
      }
    }
  }
  return fits;
}

bool SchemaChecker::Combinations(const At& at) {
  bool fits = true;
  const auto take = [&](const Evaluated& evaluated) {
    for (size_t i = 0; i < evaluated.size(); ++i) {
      if (evaluated[i]) at.evaluated[i] = true;
    }
  };
  Evaluated evaluated;
  if (const Json* all = Find(at.schema, "allOf"); all != nullptr && all->is_array()) {
    for (const Json& schema : *all) fits = InPlace(at, schema) && fits;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const Json* list = Find(at.schema, keyword);
    if (list == nullptr || !list->is_array()) continue;
    size_t holding = 0;
    for (const Json& schema : *list) {
      if (!Holds(at, schema, evaluated)) continue;
      ++holding;
      take(evaluated);
    }
    if (holding == 0) fits = Fail(at, "{} fits none of {}", Shown{at.value}, keyword);
    if (holding > 1 && keyword == std::string_view("oneOf"))
      fits = Fail(at, "{} fits {} alternatives of oneOf", Shown{at.value}, holding);
  }
  if (const Json* none = Find(at.schema, "not"); none != nullptr && Holds(at, *none, evaluated))
    fits = Fail(at, "{} fits what \"not\" excludes", Shown{at.value});
  if (const Json* condition = Find(at.schema, "if")) {
    const bool holds = Holds(at, *condition, evaluated);
    if (holds) take(evaluated);
    if (const Json* then = Find(at.schema, holds ? "then" : "else")) fits = InPlace(at, *then) && fits;
  }
  return fits;
}

bool SchemaChecker::Unevaluated(const At& at) {
  if (old_ || !at.value.is_structured()) return true;
  const Json* rest = Find(at.schema, at.value.is_object() ? "unevaluatedProperties" : "unevaluatedItems");
  if (rest == nullptr) return true;
  bool fits = true;
  size_t number = 0;
  for (const auto& [key, part] : at.value.items()) {
    if (!at.evaluated[number]) {
      at.evaluated[number] = true;
      fits = Part(at, *rest, part, Step(key)) && fits;
    }
    ++number;
  }
  return fits;
}

std::vector<SchemaFault> CheckSchema(const Json& schema, const Json& value, size_t most, SchemaDraft draft) {
  std::vector<SchemaFault> faults;
  if (most > 0) SchemaChecker(schema, draft).Check(schema, value, most, faults);
  return faults;
}

}  // namespace coppice
