// The keys of a pruning method. One table of rows drives the parsing of a spec, its canonical text, and what
// `coppice methods` prints:
//
//   Keys FtpKeys(FtpConfig& c, const ModelShape& shape) {
//     c.eta = FtpEta(shape);
//     return {{"eta", &c.eta, kAboveZero, 1, "share of ...", "by model: 0.90 to 0.95"},
//             {"fill", &c.fill_mean, "none mean", "what skipped rows get: ..."},
//             MinKey(c.minimum)};
//   }
//
// A row binds a key to a variable. The variable's value when the table is made is the default. Defaults that
// follow from other keys are set after Read, if Given returns false for the key. The last two texts of a row
// are for help, and optional: the default and the range, if the variable and the limits do not give them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "policies/spec.h"

namespace coppice {

inline constexpr int64_t kManyTokens = int64_t{1} << 24;
inline constexpr double kAboveZero = 1e-6;  // the least value of shares that must not be 0

// One key as `coppice methods` prints it.
struct MethodKey {
  std::string name = {};
  std::string fallback = {};  // the default
  std::string range = {};
  std::string meaning = {};
  bool names_file = false;  // a file of the machine that runs the model: remote requests must not set the key
};

template <typename T>
concept KeyNumber =
    std::same_as<T, int> || std::same_as<T, int64_t> || std::same_as<T, uint64_t> || std::same_as<T, double>;
template <typename T>
concept KeyEnum = std::is_enum_v<T> || std::same_as<T, bool>;

class Keys {
 public:
  // A limit of a number, included.
  struct Limit {
    template <typename T>
    requires std::is_arithmetic_v<T>
    constexpr Limit(T number) : value(static_cast<double>(number)) {}
    double value;
  };

  // A number, or a list of numbers joined by '/'.
  template <KeyNumber T>
  Keys(std::string_view name, T* value, Limit low, Limit high, std::string_view meaning,
       std::string_view fallback = "", std::string_view range = "")
      : Keys({.help = Help(name, meaning, fallback, range, RangeText(low, high)),
              .take = TakeNumber(std::is_integral_v<T>, low, high,
                                 [value](double number) { *value = static_cast<T>(number); }),
              .text = [value] { return fmt::format("{}", *value); }}) {}
  template <KeyNumber T>
  Keys(std::string_view name, std::vector<T>* values, Limit low, Limit high, std::string_view meaning,
       std::string_view fallback = "", std::string_view range = "")
      : Keys({.help = Help(name, meaning, fallback, range, RangeText(low, high) + kOnePerLayer),
              .take = TakeNumber(std::is_integral_v<T>, low, high,
                                 [values](double number) { values->push_back(static_cast<T>(number)); }),
              .text = [values] { return fmt::format("{}", fmt::join(*values, "/")); },
              .clear = [values] { values->clear(); }}) {}

  // One of some words. `words` are separated by spaces, in the order of T's values; help lists the default
  // first.
  template <KeyEnum T>
  Keys(std::string_view name, T* value, std::string_view words, std::string_view meaning,
       std::string_view fallback = "", std::string_view range = "")
      : Keys({.help = Help(name, meaning, fallback, range, WordsText(words, static_cast<size_t>(*value))),
              .take = TakeWord(words, static_cast<size_t>(*value),
                               [value](size_t index) { *value = static_cast<T>(index); }),
              .text = [value, words] { return SplitText(words, ' ')[static_cast<size_t>(*value)]; }}) {}
  // A list of words joined by '/'.
  Keys(std::string_view name, std::vector<std::string>* values, std::string_view words,
       std::string_view meaning);

  // Several tables, one after the other.
  Keys(std::initializer_list<Keys> tables);

  // The name of a file. The key must be given; `missing` is the error message if it is not.
  static Keys File(std::string_view name, std::string* path, std::string_view kind, std::string_view meaning,
                   std::string_view missing);
  // The name of a file, or `none`, the default, which leaves `path` empty.
  static Keys OptionalFile(std::string_view name, std::string* path, std::string_view kind,
                           std::string_view meaning);

  // Adds a check to the last row: `check` returns the error of a given value, as text after "ftp: eta=2", or
  // "".
  Keys Check(std::function<std::string()> check) &&;
  // For a last row that is a list: sets the word for an empty list.
  Keys NoValues(std::string_view word) &&;

  // Sets the variables. Throws PruneError for unknown keys, wrong values, and a missing file.
  void Read(const MethodSpec& spec);
  bool Given(std::string_view key) const { return spec_.values.contains(std::string(key)); }

  // The spec that gives the variables their present values: every key, except empty lists without a word.
  std::string Text() const;
  std::vector<MethodKey> Help() const;

 private:
  using TakeText = std::function<std::string(const std::string&)>;
  struct Row {
    MethodKey help = {};
    TakeText take = {};  // sets or appends a value; returns what is wrong, or ""
    std::function<std::string()> text = {};
    std::function<void()> clear = {};  // lists only
    std::function<std::string()> check = {};
    std::string no_values = {};
    std::string missing = {};
  };
  explicit Keys(Row row);

  static constexpr const char* kOnePerLayer = ", one or one per layer";
  static MethodKey Help(std::string_view name, std::string_view meaning, std::string_view fallback,
                        std::string_view range, const std::string& own_range);
  static std::string RangeText(Limit low, Limit high);
  static std::string WordsText(std::string_view words, size_t first);
  static std::vector<std::string> SplitText(std::string_view text, char separator);
  static TakeText TakeNumber(bool whole, Limit low, Limit high, std::function<void(double)> set);
  static TakeText TakeWord(std::string_view words, size_t first, std::function<void(size_t)> set);
  static std::string Take(const Row& row, const std::string& text);

  std::vector<Row> rows_;
  MethodSpec spec_;
};

// The key `min` of every method.
Keys MinKey(int64_t& minimum);

}  // namespace coppice
