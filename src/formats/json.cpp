#include "formats/json.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/limits.h"
#include "base/mmap.h"

namespace coppice {
namespace {

using nlohmann::json;

// The library's message without its "[json.exception...]" tag, and truncated: it quotes the last token, which
// may be as long as the file.
std::string Cause(const char* what) {
  std::string text = what;
  if (const size_t tag = text.find("] "); text.starts_with("[json.exception") && tag != std::string::npos) {
    text.erase(0, tag + 2);
  }
  constexpr size_t kLongest = 240;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

// Builds the document from the parser's events: all of it, or of the object that it is the member `only`. The
// library's own builder accepts duplicate keys and has no limit on depth; the one with a callback, which
// could leave members out, looks at all elements of a list at the end of each object in it (3.11).
template <typename Json>
class Builder final : public nlohmann::json_sax<Json> {
  using Sax = nlohmann::json_sax<Json>;

 public:
  Builder(const std::string& source, size_t max_values, std::string only = {})
      : source_(source), values_left_(max_values), only_(std::move(only)) {}
  Json Take() { return root_.Take(); }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(typename Sax::number_integer_t value) override { return Put(value); }
  bool number_unsigned(typename Sax::number_unsigned_t value) override { return Put(value); }
  bool number_float(typename Sax::number_float_t value, const std::string& text) override {
    if (!std::isfinite(value)) throw Error("[json] {}: number {} overflows", source_, text.substr(0, 40));
    return Put(value);
  }
  bool string(std::string& value) override { return Put(std::move(value)); }
  bool binary(typename Sax::binary_t&) override { return false; }  // text contains no binary values

  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    if (skipped_ > 0) return true;
    if (open_.size() == 1 && !only_.empty()) skips_ = name != only_;
    if (skips_) return true;
    if (open_.back()->contains(name)) {
      throw Error("[json] {}: duplicate key {}", source_,
                  Cause(json(name).dump(-1, ' ', true, json::error_handler_t::replace).c_str()));
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    throw Error("[json] {}: {}", source_, Cause(error.what()));
  }

 private:
  bool Put(Json value) {
    if (!skips_) Insert(std::move(value));
    return true;
  }
  bool Open(Json empty) {
    if (skips_) {
      ++skipped_;
      return true;
    }
    if (open_.size() >= static_cast<size_t>(limits::kMaxJsonDepth)) {
      throw Error("[json] {}: nested more than {} deep", source_, limits::kMaxJsonDepth);
    }
    open_.push_back(Insert(std::move(empty)));
    return true;
  }
  bool Close() {
    if (skipped_ > 0) {
      --skipped_;
    } else {
      open_.pop_back();
    }
    return true;
  }
  // The pointers in open_ stay valid: a container gets no further element until its last one is closed.
  Json* Insert(Json value) {
    size_t cost = value.is_structured() || value.is_string() ? 5 : 1;
    if (!open_.empty() && open_.back()->is_object()) cost += 6;
    if (values_left_ < cost) throw Error("[json] {}: holds too many values", source_);
    values_left_ -= cost;
    if (open_.empty()) {
      *root_ = std::move(value);
      return &*root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  const std::string& source_;
  size_t values_left_;
  std::string only_;    // empty: all members
  bool skips_ = false;  // the value that follows is of another member
  size_t skipped_ = 0;  // objects and lists that are open inside it
  OwnedJson<Json> root_;
  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace

json ParseJson(std::string_view text, const std::string& source, size_t max_values) {
  // The library treats a zero byte as the end of the text and would ignore whatever follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw Error("[json] {}: zero byte at offset {}", source, zero);
  }
  Builder<json> builder(source, max_values);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.Take();
}

namespace {

void CheckKeys(const json& value, const std::string& source) {
  if (value.is_object() && value.size() > kMaxOrderedKeys)
    throw Error("[json] {}: an object has {} keys; the most is {}", source, value.size(), kMaxOrderedKeys);
  if (!value.is_structured()) return;
  for (const json& item : value) CheckKeys(item, source);
}

}  // namespace

nlohmann::ordered_json ParseOrderedJson(std::string_view text, const std::string& source, size_t max_values,
                                        std::string_view member) {
  using nlohmann::ordered_json;
  const OwnedJson<json> checked = ParseJson(text, source, max_values);
  if (member.empty()) {
    CheckKeys(*checked, source);
    return ordered_json::parse(text);
  }
  return OrderedMember(text, *checked, std::string(member), source);
}

nlohmann::ordered_json OrderedMember(std::string_view text, const json& checked, const std::string& member,
                                     const std::string& source) {
  using nlohmann::ordered_json;
  if (!checked.is_object() || !checked.contains(member)) return nullptr;
  CheckKeys(checked[member], source);
  Builder<ordered_json> builder(source, SIZE_MAX, member);  // `checked` is within its limit
  ordered_json::sax_parse(text, &builder);
  return builder.Take()[member];
}

namespace {

// Calls use(text) with the text of a file, which is within the limit.
template <typename Use>
json WithText(const std::string& path, const Use& use) {
  const MappedFile file(path);
  if (file.size() > limits::kMaxJsonFileBytes) {
    throw Error("[json] {}: {} bytes, the limit is {}", path, file.size(), limits::kMaxJsonFileBytes);
  }
  const auto bytes = file.bytes();
  return use(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

// The text with Python's numbers that JSON lacks as objects. What stands in a string stays.
std::string WithoutPythonNumbers(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    size_t taken = in_string && text[i] == '\\' && i + 1 < text.size() ? 2 : 1;
    if (text[i] == '"') in_string = !in_string;
    bool is_number = false;
    for (const std::string_view number : {"Infinity", "-Infinity", "NaN"}) {
      if (in_string || !text.substr(i).starts_with(number)) continue;
      plain.append(R"({"__float__":")").append(number).append("\"}");
      taken = number.size();
      is_number = true;
    }
    if (!is_number) plain.append(text.substr(i, taken));
    i += taken;
  }
  return plain;
}

}  // namespace

json ReadJsonFile(const std::string& path) {
  return WithText(path, [&](std::string_view text) { return ParseJson(text, path); });
}

json ReadPythonJsonFile(const std::string& path) {
  return WithText(path, [&](std::string_view text) { return ParseJson(WithoutPythonNumbers(text), path); });
}

}  // namespace coppice
