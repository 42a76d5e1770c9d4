// `--prune SPEC`: `none`, or methods joined by `+`, each `name[:key=value,...]`, lists joined by `/`. A value may stand
// in double quotes, where + and , mean nothing, \" is a quote and \\ a backslash: sdtp:file="a+b.safetensors".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// One method of a spec, as written: names and values are not yet known to exist.
struct MethodSpec {
  std::string name;
  std::map<std::string, std::string> values;
};

// Splits a spec; `none` is the empty list. Throws Error, quoting the part, for what does not follow the
// grammar.
std::vector<MethodSpec> ParseSpec(std::string_view text);
// A value as ParseSpec reads it back: in quotes where it must.
std::string QuotedValue(std::string_view value);

// Reads the values of one method and remembers which keys were asked for, so that a key nobody knows is an
// error.
class SpecReader {
 public:
  explicit SpecReader(const MethodSpec& spec) : spec_(spec) {}

  const std::string& method() const { return spec_.name; }

  // The value, or `fallback` where the key is absent. Throws Error, naming method, key, value and range, for
  // a value that is no number, not finite, or outside [low, high].
  int64_t Integer(std::string_view key, int64_t fallback, int64_t low, int64_t high);
  double Number(std::string_view key, double fallback, double low, double high);
  std::vector<double> Numbers(std::string_view key, const std::vector<double>& fallback, double low,
                              double high);
  std::vector<int> Integers(std::string_view key, const std::vector<int>& fallback, int low, int high);
  // One of `choices`, the first where the key is absent.
  std::string Choice(std::string_view key, const std::vector<std::string>& choices);
  // A list of such words.
  std::vector<std::string> Choices(std::string_view key, const std::vector<std::string>& fallback,
                                   const std::vector<std::string>& choices);
  // The name of a file; Error, with `what` it is, where the key is absent.
  std::string File(std::string_view key, std::string_view what);
  // Throws Error for the first key of the spec that no call above asked for.
  void RefuseUnknownKeys() const;

 private:
  const std::string* Find(std::string_view key);
  const MethodSpec& spec_;
  std::vector<std::string> known_;
};

}  // namespace coppice
