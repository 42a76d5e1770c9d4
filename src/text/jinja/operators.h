// Python's operators, subscripts and calls on values.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace coppice::jinja {

Value Negate(const Value& value);
Value Arithmetics(Budget& budget, Operator operation, const Value& a, const Value& b);
Value Concat(Budget& budget, const Value& a, const Value& b);  // the operator ~
bool Compares(Budget& budget, Comparison operation, const Value& a, const Value& b);
bool Contains(Budget& budget, const Value& container, const Value& item);

// value.name: methods take precedence over entries. Only methods, entries of dicts, attributes of namespaces
// and of `loop` are accessible. Returns undefined if there is none.
Value Attribute(Budget& budget, const Value& value, std::string_view name);
// value[key]: entries take precedence over methods.
Value Subscript(Budget& budget, const Value& value, const Value& key);
Value Slice(Budget& budget, const Value& value, const Value& start, const Value& stop, const Value& step);

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Binds arguments to parameters. Throws Fault for too many, unknown or repeated arguments. The value of an
// omitted argument is null.
class Bound {
 public:
  Bound(std::string_view function, const CallArguments& arguments,
        std::initializer_list<std::string_view> parameters);
  const Value* At(size_t i) const { return values_[i]; }
  const Value& Required(size_t i) const;
  int64_t Int(size_t i, int64_t otherwise) const;  // none counts as omitted
  bool Bool(size_t i, bool otherwise) const;
  std::string Text(size_t i, const std::string& otherwise) const;
  const std::string& RequiredText(size_t i) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;
};

// Methods of strings, lists, dicts and `loop`.
bool HasMethod(const Value& value, std::string_view name);
// Mutating methods of Python, which the sandbox hides, along with entries of the same name.
bool ChangesItsObject(const Value& value, std::string_view name);
Value CallMethod(Budget& budget, const Value& self, std::string_view name, const CallArguments& arguments);

// Shared by methods, operators and filters.
std::string Replaced(Budget& budget, const std::string& text, const std::string& from, const std::string& to,
                     int64_t count);
std::string Joined(Budget& budget, const std::vector<Value>& items, const std::string& separator,
                   bool only_strings);
Value StringFormat(Budget& budget, const std::string& format, const CallArguments& arguments);  // str.format
Value PercentFormat(Budget& budget, const std::string& format, const Value& arguments);  // str % arguments

// Filters and tests (jinja_filters.cpp, jinja_tests.cpp).
Value ApplyFilter(Budget& budget, const std::string& name, const Value& value,
                  const CallArguments& arguments);
bool ApplyTest(Budget& budget, const std::string& name, const Value& value, const CallArguments& arguments);
bool IsFilterName(const std::string& name);
bool IsTestName(const std::string& name);

}  // namespace coppice::jinja
