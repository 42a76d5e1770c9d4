#include "server/named_model.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace coppice {

namespace {

// Stops at the outer object's member "model". An error in the text in front of it ends the search, too: the
// model's server says what is wrong.
class FindsModel final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::string model;

  bool null() override { return Goes(); }
  bool boolean(bool) override { return Goes(); }
  bool number_integer(number_integer_t) override { return Goes(); }
  bool number_unsigned(number_unsigned_t) override { return Goes(); }
  bool number_float(number_float_t, const string_t&) override { return Goes(); }
  bool binary(binary_t&) override { return Goes(); }
  bool string(string_t& text) override {
    if (is_next_) model = std::move(text);
    return Goes();
  }
  bool key(string_t& name) override {
    is_next_ = depth_ == 1 && name == "model";
    return true;
  }
  bool start_object(size_t) override { return Opens(); }
  bool start_array(size_t) override { return depth_ > 0 && Opens(); }
  bool end_object() override { return Closes(); }
  bool end_array() override { return Closes(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool Goes() const { return depth_ > 0 && !is_next_; }
  bool Opens() {
    if (is_next_) return false;
    ++depth_;
    return true;
  }
  bool Closes() {
    --depth_;
    return true;
  }
  int64_t depth_ = 0;
  bool is_next_ = false;  // the value that comes is the member's
};

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], &text[i] + 3, byte, 16).ptr == &text[i] + 3) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

}  // namespace

std::string ModelMember(std::string_view body) {
  FindsModel finds;
  nlohmann::json::sax_parse(body, &finds);
  return finds.model;
}

std::string QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.size() > name.size() && pair.starts_with(name) && pair[name.size()] == '=')
      return PercentDecoded(pair.substr(name.size() + 1));
  }
  return "";
}

std::string NamedModel(const HttpRequest& request) {
  std::string name = QueryValue(request.query, "model");
  return name.empty() ? ModelMember(request.body) : name;
}

}  // namespace coppice
