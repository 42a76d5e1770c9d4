// What distinguishes method specs: short names, and lists of specs that differ in one key.
#pragma once

#include <string>
#include <vector>

namespace coppice {

// Arms whose settings differ in one key.
struct Sweep {
  std::string method;               // "ftp", and what else the specs share
  std::string key;                  // "eta"
  std::vector<std::string> values;  // ascending
  std::vector<size_t> arms;         // [values]
};

// For each spec the methods, and those keys whose values are not the same in all specs of the same methods.
std::vector<std::string> ShortNames(const std::vector<std::string>& specs);

// `given` are the specs as asked for; `whole` are the same with every key written out, which gives the values
// of keys that were not given. A spec may be in several sweeps.
std::vector<Sweep> SweepsOf(const std::vector<std::string>& given, const std::vector<std::string>& whole);

}  // namespace coppice
