#include "server/merged_metrics.h"

#include <fmt/core.h>

#include <algorithm>

namespace coppice {

namespace {

constexpr std::string_view kLabel = "model_name=\"";

// A label's value (exposition format 0.0.4: backslash, quote and line feed are escaped).
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n')
      escaped += "\\n";
    else
      escaped += c;
  }
  return escaped;
}

std::string Labelled(std::string_view sample, std::string_view model) {
  const size_t end = sample.find_first_of("{ ");
  if (end == sample.npos) return std::string(sample);
  if (sample[end] == '{' && sample.find(kLabel) != sample.npos) return std::string(sample);
  const bool has_labels = sample[end] == '{';
  return fmt::format("{}{{{}{}\"{}{}", sample.substr(0, end), kLabel, Escaped(model), has_labels ? "," : "}",
                     sample.substr(has_labels ? end + 1 : end));
}

}  // namespace

MergedMetrics::Family& MergedMetrics::FamilyOf(std::string_view name) {
  const auto found = std::ranges::find(families_, name, &Family::name);
  if (found != families_.end()) return *found;
  return families_.emplace_back(Family{.name = std::string(name), .about = {}, .samples = {}});
}

void MergedMetrics::Add(std::string_view model, std::string_view text) {
  Family* family = nullptr;
  bool is_first = false;  // the family's first text, whose lines HELP and TYPE stay
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) {
      const std::string_view rest = line.substr(7);
      Family& next = FamilyOf(rest.substr(0, rest.find(' ')));
      if (&next != family) is_first = next.about.empty();
      family = &next;
      if (is_first) family->about += fmt::format("{}\n", line);
    } else if (family != nullptr && !line.empty() && line[0] != '#') {
      family->samples += Labelled(line, model) + "\n";
    }
  }
}

void MergedMetrics::Replace(std::string_view name, int64_t value) {
  FamilyOf(name).samples = fmt::format("{} {}\n", name, value);
}

std::string MergedMetrics::Text() const {
  std::string text;
  for (const Family& family : families_) text += family.about + family.samples;
  return text;
}

}  // namespace coppice
