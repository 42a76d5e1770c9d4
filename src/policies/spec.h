// `--prune SPEC`: `none`, or methods joined by `+`, each `name[:key=value,...]`, lists joined by `/`. In
// double quotes + and , are part of a value, \" is a quote and \\ a backslash: sdtp:file="a+b.safetensors".
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace coppice {

// An error of a spec. The message quotes the spec or names the method: "ftp: eta=2 is not a number from 1e-06
// to 1".
class PruneError : public Error {
 public:
  using Error::Error;
};

// One method of a spec. ParseSpec does not check that the name and the keys exist.
struct MethodSpec {
  std::string name = {};
  std::map<std::string, std::string> values = {};
};

// `none` gives an empty list. Throws PruneError, quoting the part that does not follow the grammar.
std::vector<MethodSpec> ParseSpec(std::string_view text);
// Puts a value in quotes where ParseSpec needs them to read it back.
std::string QuotedValue(std::string_view value);

}  // namespace coppice
