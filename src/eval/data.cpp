#include "eval/data.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/limits.h"
#include "base/mmap.h"
#include "formats/json.h"

namespace coppice {

namespace {

bool IsText(const nlohmann::json& value) { return value.is_string() || value.is_number(); }

std::string TextOf(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

const nlohmann::json& DataRow::At(const char* field, bool right, const char* kind) const {
  if (!value_.contains(field)) throw Error("[eval] {}: has no '{}'", source_, field);
  if (!right) throw Error("[eval] {}: '{}' is not {}", source_, field, kind);
  return value_[field];
}

bool DataRow::Has(const char* field) const { return value_.contains(field) && !value_[field].is_null(); }

std::vector<std::string> DataRow::Fields() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : value_.items()) names.push_back(name);
  return names;
}

std::string DataRow::Text(const char* field) const {
  return TextOf(At(field, value_.contains(field) && IsText(value_[field]), "a text"));
}

std::vector<std::string> DataRow::Texts(const char* field) const {
  std::vector<std::string> texts;
  for (const nlohmann::json& value : List(field)) {
    At(field, IsText(value), "a list of texts");
    texts.push_back(TextOf(value));
  }
  return texts;
}

int64_t DataRow::Whole(const char* field) const {
  const bool right =
      value_.contains(field) && (value_[field].is_number_integer() || value_[field].is_boolean());
  const nlohmann::json& value = At(field, right, "a whole number");
  return value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<int64_t>();
}

DataRow DataRow::Part(const char* field) const {
  return {At(field, value_.contains(field) && value_[field].is_object(), "an object"), source_};
}

const nlohmann::json& DataRow::List(const char* field) const {
  return At(field, value_.contains(field) && value_[field].is_array(), "a list");
}

std::string FindDataFile(const TaskRequest& request, std::string_view task, std::string_view under,
                         const std::vector<std::string>& names) {
  std::error_code ignored;
  std::string tried;
  for (const std::string& name : names) {
    for (const std::string& folder : request.data) {
      for (const std::string& path :
           {fmt::format("{}/{}", folder, name), fmt::format("{}/{}/{}", folder, under, name)}) {
        if (std::filesystem::is_regular_file(path, ignored)) return path;
      }
    }
    tried += (tried.empty() ? "" : " or ") + name;
  }
  throw MissingData("{}: no {} in the data folders, nor in {} below them", task, tried, under);
}

std::vector<std::string> ReadLines(const std::string& path) {
  const MappedFile file(path);
  if (file.size() > limits::kMaxJsonFileBytes)
    throw Error("[eval] {}: {} bytes, the limit is {}", path, file.size(), limits::kMaxJsonFileBytes);
  const auto bytes = file.bytes();
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> lines;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
  }
  return lines;
}

std::vector<DataRow> ReadRows(const std::string& path) {
  std::vector<DataRow> rows;
  int64_t number = 0;
  for (const std::string& line : ReadLines(path)) {
    ++number;
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    std::string source = fmt::format("{} line {}", path, number);
    nlohmann::json value = ParseJson(line, source);
    if (!value.is_object()) throw Error("[eval] {}: is no JSON object", source);
    rows.emplace_back(std::move(value), std::move(source));
  }
  if (rows.empty()) throw Error("[eval] {}: holds no samples", path);
  return rows;
}

std::string FillTemplate(std::string_view text,
                         const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string filled;
  for (size_t at = 0; at < text.size();) {
    const auto slot = std::find_if(values.begin(), values.end(), [&](const auto& value) {
      const std::string_view rest = text.substr(at + 1);
      return text[at] == '{' && rest.starts_with(value.first) &&
             rest.substr(value.first.size()).starts_with('}');
    });
    if (slot == values.end()) {
      filled += text[at++];
    } else {
      filled += slot->second;
      at += slot->first.size() + 2;
    }
  }
  return filled;
}

std::string CutMiddle(const TaskRequest& request, const std::string& text, int64_t limit) {
  const std::vector<int32_t> ids =
      request.tokenizer->Encode(text, {.add_special = false, .parse_special = false});
  if (static_cast<int64_t>(ids.size()) <= limit) return text;
  const auto half = static_cast<size_t>(std::max<int64_t>(limit / 2, 1));
  return request.tokenizer->Decode(std::span(ids).first(half)) +
         request.tokenizer->Decode(std::span(ids).last(half));
}

}  // namespace coppice
