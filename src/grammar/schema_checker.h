// The walk behind schema_check.h.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/schema_check.h"
#include "grammar/schema_pattern.h"
#include "grammar/schema_refs.h"
#include "grammar/work_budget.h"

namespace coppice {

class SchemaChecker {
 public:
  using Json = nlohmann::ordered_json;

  // `root` and `budget`, which may be null, must outlive this object. What it does counts there, too.
  SchemaChecker(const Json& root, SchemaDraft draft, WorkBudget* budget = nullptr);

  // Whether `value` fits `schema`, a part of the root. Adds up to `most` faults. Throws Error as
  // CheckSchema() does; all calls together may take as much as one.
  bool Check(const Json& schema, const Json& value, size_t most, std::vector<SchemaFault>& faults);

 private:
  // The members and items of one value that some schema has looked at, by their number.
  using Evaluated = std::vector<bool>;
  struct At {
    const Json& schema;
    const Json& value;
    const std::string& path;
    Evaluated& evaluated;
    int depth;
  };

  bool Visit(const Json& schema, const Json& value, const std::string& path, Evaluated& evaluated, int depth);
  bool Part(const At& at, const Json& schema, const Json& value, const std::string& step);
  // A schema for the same value; what it has looked at counts if it holds.
  bool InPlace(const At& at, const Json& schema);
  // Without telling faults.
  bool Holds(const At& at, const Json& schema, Evaluated& evaluated);
  bool References(const At& at);
  bool Values(const At& at);
  bool Combinations(const At& at);
  bool Numbers(const At& at);
  bool Strings(const At& at);
  bool Items(const At& at);
  bool Contains(const At& at);
  bool Members(const At& at);
  bool Dependencies(const At& at);
  bool Unevaluated(const At& at);
  template <typename... Args>
  bool Fail(const At& at, fmt::format_string<const Args&...> format, const Args&... args);
  bool Same(const Json& a, const Json& b);
  void Spend(size_t steps);
  bool Within(const At& at, size_t count, const char* least, const char* most);

  WorkBudget* const budget_;
  const bool old_;
  SchemaRefs refs_;
  SchemaPatterns patterns_;
  std::vector<const Json*> scope_;
  size_t steps_ = 0;
  bool silent_ = false;
  size_t most_ = 0;
  std::vector<SchemaFault>* faults_ = nullptr;
};

}  // namespace coppice
