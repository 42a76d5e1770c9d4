// Regular expressions of JSON schemas, matched against finished texts.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace coppice {

// Keeps what it compiled. All matching together takes at most a fixed time, because expressions of clients
// can take exponential time.
class SchemaPatterns {
 public:
  SchemaPatterns();
  ~SchemaPatterns();
  SchemaPatterns(const SchemaPatterns&) = delete;
  SchemaPatterns& operator=(const SchemaPatterns&) = delete;

  // Whether ECMA-262 would find a match anywhere in `text`, which must be UTF-8. Throws Error if the
  // expression is none, or takes too long.
  bool Finds(const std::string& pattern, std::string_view text);

 private:
  struct Compiled;
  std::map<std::string, std::unique_ptr<Compiled>, std::less<>> compiled_;
  std::chrono::nanoseconds spent_{0};
};

}  // namespace coppice
