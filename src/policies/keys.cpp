#include "policies/keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/nearest.h"

namespace coppice {

Keys::Keys(Row row) {
  if (row.help.fallback.empty()) row.help.fallback = row.text();
  rows_.push_back(std::move(row));
}

Keys::Keys(std::initializer_list<Keys> tables) {
  for (const Keys& table : tables) rows_.insert(rows_.end(), table.rows_.begin(), table.rows_.end());
}

Keys::Keys(std::string_view name, std::vector<std::string>* values, std::string_view words,
           std::string_view meaning)
    : Keys(
          {.help = Help(name, meaning, "", "", WordsText(words, 0) + kOnePerLayer),
           .take = TakeWord(words, 0, [=](size_t index) { values->push_back(SplitText(words, ' ')[index]); }),
           .text = [values] { return fmt::format("{}", fmt::join(*values, "/")); },
           .clear = [values] { values->clear(); }}) {}

Keys Keys::File(std::string_view name, std::string* path, std::string_view kind, std::string_view meaning,
                std::string_view missing) {
  Row row{.help = Help(name, meaning, "none: must be given", kind, ""),
          .take =
              [path](const std::string& text) {
                *path = text;
                return "";
              },
          .text = [path] { return QuotedValue(*path); },
          .missing = std::string(missing)};
  row.help.names_file = true;
  return Keys(std::move(row));
}

Keys Keys::OptionalFile(std::string_view name, std::string* path, std::string_view kind,
                        std::string_view meaning) {
  Row row{.help = Help(name, meaning, "none", kind, ""),
          .take =
              [path](const std::string& text) {
                *path = text == "none" ? "" : text;
                return "";
              },
          .text = [path] { return path->empty() ? "none" : QuotedValue(*path); }};
  row.help.names_file = true;
  return Keys(std::move(row));
}

Keys Keys::Check(std::function<std::string()> check) && {
  rows_.back().check = std::move(check);
  return std::move(*this);
}

Keys Keys::NoValues(std::string_view word) && {
  rows_.back().no_values = word;
  return std::move(*this);
}

void Keys::Read(const MethodSpec& spec) {
  spec_ = spec;
  for (const auto& [key, value] : spec.values) {
    const auto is_key = [&name = key](const Row& row) { return row.help.name == name; };
    if (std::any_of(rows_.begin(), rows_.end(), is_key)) continue;
    std::vector<std::string> known;
    for (const Row& row : rows_) known.push_back(row.help.name);
    const std::string names = fmt::format("{}", fmt::join(known, ", "));
    const std::string meant = Nearest(key, known);
    if (meant.empty()) throw PruneError("{}: unknown key '{}'; it has {}", spec.name, key, names);
    throw PruneError("{}: unknown key '{}': did you mean {}? It has {}", spec.name, key, meant, names);
  }
  for (const Row& row : rows_) {
    const auto given = spec.values.find(row.help.name);
    if (given == spec.values.end()) {
      if (row.missing.empty()) continue;
      throw PruneError("{}: {}= is missing: {}", spec.name, row.help.name, row.missing);
    }
    const std::string wrong = Take(row, given->second);
    if (!wrong.empty()) throw PruneError("{}: {}={}{}", spec.name, given->first, given->second, wrong);
  }
}

// Returns "", or the error as text after "ftp: eta=2".
std::string Keys::Take(const Row& row, const std::string& text) {
  std::string wrong;
  if (!row.clear) {
    wrong = row.take(text);
  } else {
    row.clear();
    if (text == row.no_values) return "";
    for (const std::string& part : SplitText(text, '/')) {
      wrong = row.take(part);
      if (!wrong.empty()) return fmt::format(": '{}' {}", part, wrong);
    }
  }
  if (wrong.empty() && row.check) wrong = row.check();
  return wrong.empty() ? "" : " " + wrong;
}

std::string Keys::Text() const {
  std::string text = spec_.name;
  char separator = ':';
  for (const Row& row : rows_) {
    std::string value = row.text();
    if (value.empty()) value = row.no_values;
    if (value.empty()) continue;
    text += fmt::format("{}{}={}", separator, row.help.name, value);
    separator = ',';
  }
  return text;
}

std::vector<MethodKey> Keys::Help() const {
  std::vector<MethodKey> help;
  for (const Row& row : rows_) help.push_back(row.help);
  return help;
}

MethodKey Keys::Help(std::string_view name, std::string_view meaning, std::string_view fallback,
                     std::string_view range, const std::string& own_range) {
  return {.name = std::string(name),
          .fallback = std::string(fallback),
          .range = range.empty() ? own_range : std::string(range),
          .meaning = std::string(meaning)};
}

std::string Keys::RangeText(Limit low, Limit high) {
  const double from = low.value == kAboveZero ? 0 : low.value;
  return high.value >= 1e6 ? fmt::format("{} up", from) : fmt::format("{} to {}", from, high.value);
}

std::string Keys::WordsText(std::string_view words, size_t first) {
  std::vector<std::string> all = SplitText(words, ' ');
  std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(first),
              all.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  return fmt::format("{}", fmt::join(all, ", "));
}

std::vector<std::string> Keys::SplitText(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Keys::TakeText Keys::TakeNumber(bool whole, Limit low, Limit high, std::function<void(double)> set) {
  return [=](const std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() ||
        !(value >= low.value && value <= high.value) || (whole && value != std::floor(value))) {
      return fmt::format("is not a {}number from {} to {}", whole ? "whole " : "", low.value, high.value);
    }
    set(value);
    return "";
  };
}

Keys::TakeText Keys::TakeWord(std::string_view words, size_t first, std::function<void(size_t)> set) {
  return [=](const std::string& text) -> std::string {
    const std::vector<std::string> all = SplitText(words, ' ');
    const auto found = std::find(all.begin(), all.end(), text);
    if (found == all.end()) return fmt::format("is not there; it can be {}", WordsText(words, first));
    set(static_cast<size_t>(found - all.begin()));
    return "";
  };
}

Keys MinKey(int64_t& minimum) { return {"min", &minimum, 0, kManyTokens, "shorter prompts run dense"}; }

}  // namespace coppice
