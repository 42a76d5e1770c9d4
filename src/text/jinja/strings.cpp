// Binding of arguments, and string operations shared by methods, operators and filters.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "text/jinja/operators.h"
#include "text/jinja/text.h"

namespace coppice::jinja {

Bound::Bound(std::string_view function, const CallArguments& arguments,
             std::initializer_list<std::string_view> parameters)
    : function_(function), parameters_(parameters), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters_.size()) {
    throw Fault("{} takes at most {} arguments, not {}", function, parameters_.size(),
                arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) throw Fault("{} has no argument '{}'", function, name.substr(0, 64));
    const Value*& slot = values_[static_cast<size_t>(found - parameters_.begin())];
    if (slot != nullptr) throw Fault("{} got the argument '{}' twice", function, name);
    slot = &value;
  }
}

const Value& Bound::Required(size_t i) const {
  if (values_[i] == nullptr) throw Fault("{} misses the argument '{}'", function_, parameters_[i]);
  return *values_[i];
}

int64_t Bound::Int(size_t i, int64_t otherwise) const {
  if (values_[i] == nullptr || values_[i]->IsNone()) return otherwise;
  if (!values_[i]->IsIntegral()) {
    throw Fault("{}: '{}' must be an int, not {}", function_, parameters_[i], values_[i]->TypeName());
  }
  return values_[i]->integer();
}

bool Bound::Bool(size_t i, bool otherwise) const {
  return values_[i] == nullptr ? otherwise : values_[i]->Truth();
}

std::string Bound::Text(size_t i, const std::string& otherwise) const {
  return values_[i] == nullptr ? otherwise : RequiredText(i);
}

const std::string& Bound::RequiredText(size_t i) const {
  const Value& value = Required(i);
  if (value.IsUndefined()) throw Fault("{}", value.WhyUndefined());
  if (!value.IsString())
    throw Fault("{}: '{}' must be a str, not {}", function_, parameters_[i], value.TypeName());
  return value.text();
}

std::string Replaced(Budget& budget, const std::string& text, const std::string& from, const std::string& to,
                     int64_t count) {
  TextWriter out(budget);
  budget.Work(text.size());
  const std::string_view view = text;
  size_t done = 0;
  if (from.empty()) {  // Python puts `to` before every code point and at the end
    for (size_t i = 0; count-- != 0; i += i < text.size() ? DecodeAt(text, i).bytes : 0) {
      out.Append(view.substr(done, i - done));
      out.Append(to);
      done = i;
      if (i == text.size()) break;
    }
  } else {
    for (size_t at = 0; count-- != 0 && (at = FindFirst(text, from, done)) != std::string::npos;
         done = at + from.size()) {
      out.Append(view.substr(done, at - done));
      out.Append(to);
    }
  }
  out.Append(view.substr(done));
  return out.Finish();
}

std::string Joined(Budget& budget, const std::vector<Value>& items, const std::string& separator,
                   bool only_strings) {
  TextWriter out(budget);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(separator);
    if (items[i].IsString()) {
      out.Append(items[i].text());
    } else if (only_strings) {
      throw Fault("join: element {} is no str but {}", i, items[i].TypeName());
    } else {
      out.Append(ToText(budget, items[i]));
    }
  }
  return out.Finish();
}

namespace {

// Supports {}, {0} and {name} with !s and !r; no attributes, subscripts or format specifications.
class FieldWriter {
 public:
  FieldWriter(Budget& budget, const CallArguments& arguments) : out_(budget), arguments_(arguments) {}

  void Write(std::string_view field) {
    char conversion = 's';
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    if (field.find_first_of(".[:!{") != std::string_view::npos || (conversion != 's' && conversion != 'r')) {
      throw Fault("format: the field '{{{}}}' is not supported", field.substr(0, 64));
    }
    const Value& value = Lookup(field);
    if (conversion == 'r') {
      WriteRepr(out_, value);
    } else {
      out_.Append(ToText(out_.budget(), value));
    }
  }
  TextWriter& out() { return out_; }

 private:
  const Value& Lookup(std::string_view field) {
    const bool numbered =
        !field.empty() && field.size() < 6 && field.find_first_not_of("0123456789") == std::string::npos;
    if (field.empty() || numbered) {
      const size_t index = numbered ? static_cast<size_t>(std::stoi(std::string(field))) : next_++;
      if (index < arguments_.positional.size()) return arguments_.positional[index];
    }
    for (const auto& [name, value] : arguments_.named) {
      if (name == field) return value;
    }
    throw Fault("format: no value for the field '{{{}}}'", field.substr(0, 64));
  }

  TextWriter out_;
  const CallArguments& arguments_;
  size_t next_ = 0;
};

}  // namespace

Value StringFormat(Budget& budget, const std::string& format, const CallArguments& arguments) {
  FieldWriter writer(budget, arguments);
  const std::string_view text = format;
  for (size_t i = 0; i < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", i), text.size());
    writer.out().Append(text.substr(i, brace - i));
    if (brace == text.size()) break;
    if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {  // {{ and }}
      writer.out().Append(text.substr(brace, 1));
      i = brace + 2;
      continue;
    }
    const size_t end = text.find('}', brace);
    if (text[brace] == '}' || end == std::string_view::npos)
      throw Fault("format: a single '{}'", text[brace]);
    writer.Write(text.substr(brace + 1, end - brace - 1));
    i = end + 1;
  }
  return Value::String(&budget, writer.out().Finish());
}

namespace {

void WriteConversion(TextWriter& out, char conversion, int precision, const Value& value) {
  if (conversion == 's' && precision < 0) return out.Append(ToText(out.budget(), value));
  if (conversion == 'r' && precision < 0) return WriteRepr(out, value);
  if (value.IsNumber() && (conversion == 'd' || conversion == 'i') && precision < 0) {
    if (value.IsIntegral()) return out.Append(fmt::format("{}", value.integer()));
    if (std::abs(value.number()) < 9e18)
      return out.Append(fmt::format("{}", static_cast<int64_t>(value.number())));
  }
  if (value.IsNumber() && conversion == 'f') {
    return out.Append(fmt::format("{:.{}f}", value.number(), precision < 0 ? 6 : precision));
  }
  throw Fault("'%' formatting: '%{}' of {} is not supported", conversion, value.TypeName());
}

}  // namespace

Value PercentFormat(Budget& budget, const std::string& format, const Value& arguments) {
  const bool tuple = arguments.IsList(ListKind::kTuple);
  const size_t count = tuple ? arguments.items().size() : 1;
  size_t used = 0;
  TextWriter out(budget);
  const std::string_view text = format;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t percent = std::min(text.find('%', i), text.size());
    out.Append(text.substr(i, percent - i));
    if (percent == text.size()) break;
    i = percent + 1;
    int precision = -1;
    if (i + 1 < text.size() && text[i] == '.' && text[i + 1] >= '0' && text[i + 1] <= '9') {
      precision = text[i + 1] - '0';
      i += 2;
    }
    if (i >= text.size()) throw Fault("'%' formatting: incomplete format");
    if (text[i] == '%') {
      out.Append("%");
      continue;
    }
    if (used >= count) throw Fault("'%' formatting: too few values");
    WriteConversion(out, text[i], precision, tuple ? arguments.items()[used] : arguments);
    ++used;
  }
  if (used < count && !arguments.IsDict()) throw Fault("'%' formatting: too many values");
  return Value::String(&budget, out.Finish());
}

}  // namespace coppice::jinja
