#include "formats/json.h"

#include <cmath>
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

// Builds the document from the parser's events. The library's own builder accepts duplicate keys and has no
// limit on depth.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(const std::string& source, size_t max_values) : source_(source), values_left_(max_values) {}
  json Take() { return root_.Take(); }

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!std::isfinite(value)) throw Error("[json] {}: number {} overflows", source_, text.substr(0, 40));
    return Put(value);
  }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // text contains no binary values

  bool start_object(size_t) override { return Open(json::object()); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
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
  bool Put(json value) {
    Insert(std::move(value));
    return true;
  }
  bool Open(json empty) {
    if (open_.size() >= static_cast<size_t>(limits::kMaxJsonDepth)) {
      throw Error("[json] {}: nested more than {} deep", source_, limits::kMaxJsonDepth);
    }
    open_.push_back(Insert(std::move(empty)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  // The pointers in open_ stay valid: a container gets no further element until its last one is closed.
  json* Insert(json value) {
    size_t cost = value.is_structured() || value.is_string() ? 5 : 1;
    if (!open_.empty() && open_.back()->is_object()) cost += 6;
    if (values_left_ < cost) throw Error("[json] {}: holds too many values", source_);
    values_left_ -= cost;
    if (open_.empty()) {
      *root_ = std::move(value);
      return &*root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  const std::string& source_;
  size_t values_left_;
  OwnedJson<json> root_;
  std::vector<json*> open_;
  std::string key_;
};

}  // namespace

json ParseJson(std::string_view text, const std::string& source, size_t max_values) {
  // The library treats a zero byte as the end of the text and would ignore whatever follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw Error("[json] {}: zero byte at offset {}", source, zero);
  }
  Builder builder(source, max_values);
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
  const auto keep = [&](int depth, ordered_json::parse_event_t event, const ordered_json& parsed) {
    return event != ordered_json::parse_event_t::key || depth != 1 || parsed == member;
  };
  return ordered_json::parse(text, keep)[member];
}

json ReadJsonFile(const std::string& path) {
  const MappedFile file(path);
  if (file.size() > limits::kMaxJsonFileBytes) {
    throw Error("[json] {}: {} bytes, the limit is {}", path, file.size(), limits::kMaxJsonFileBytes);
  }
  const auto bytes = file.bytes();
  return ParseJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace coppice
