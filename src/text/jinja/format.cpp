// Values as text: Python's str and repr, and json.dumps as transformers calls it for the filter tojson.
// Linear in the written text. Shared parts of a value are written each time, so every piece is charged to the
// budget.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/text.h"
#include "text/jinja/value.h"
#include "text/unicode/unicode.h"

namespace coppice::jinja {
namespace {

void WriteStringRepr(TextWriter& out, const std::string& text) {
  const bool double_quotes = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.Append({&quote, 1});
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text, i);
    const std::string_view bytes = std::string_view(text).substr(i, c.bytes);
    i += c.bytes;
    const auto code = static_cast<uint32_t>(c.value);
    if (bytes[0] == quote || bytes[0] == '\\') {
      out.Append("\\");
      out.Append(bytes);
    } else if (code == '\n') {
      out.Append("\\n");
    } else if (code == '\t') {
      out.Append("\\t");
    } else if (code == '\r') {
      out.Append("\\r");
    } else if (IsPrintable(c.value)) {
      out.Append(bytes);
    } else if (code < 0x100) {
      out.Append(fmt::format("\\x{:02x}", code));
    } else {
      out.Append(code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code));
    }
  }
  out.Append({&quote, 1});
}

void WriteListRepr(TextWriter& out, const Value& value) {
  const std::vector<Value>& items = value.items();
  const bool tuple = value.list_kind() == ListKind::kTuple;
  switch (value.list_kind()) {
    case ListKind::kKeys:
      out.Append("dict_keys(");
      break;
    case ListKind::kValues:
      out.Append("dict_values(");
      break;
    case ListKind::kItems:
      out.Append("dict_items(");
      break;
    case ListKind::kGenerator:
      out.Append("<generator object>");
      return;  // Python adds an address
    default:
      break;
  }
  out.Append(tuple ? "(" : "[");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(", ");
    WriteRepr(out, items[i]);
  }
  if (tuple && items.size() == 1) out.Append(",");
  out.Append(tuple ? ")" : "]");
  if (!value.IsSequence()) out.Append(")");
}

void WriteScalar(TextWriter& out, const Value& value) {
  switch (value.type()) {
    case Type::kNone:
      out.Append("None");
      break;
    case Type::kBool:
      out.Append(value.Truth() ? "True" : "False");
      break;
    case Type::kInt:
      out.Append(fmt::format("{}", value.integer()));
      break;
    case Type::kFloat:
      out.Append(FloatRepr(value.number()));
      break;
    case Type::kUndefined:
      out.Append("Undefined");
      break;
    case Type::kNamespace:
      out.Append("<Namespace>");
      break;  // not its contents: it may contain itself
    case Type::kLoop:
      out.Append("<LoopContext>");
      break;
    default:
      out.Append(fmt::format("<function {}>", value.callable().name));
      break;
  }
}

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style) : out_(budget), style_(style) {}
  std::string Finish() { return out_.Finish(); }

  void Write(const Value& value, size_t level) {
    out_.budget().Work(Budget::kUnitsPerItem);
    switch (value.type()) {
      case Type::kNone:
        out_.Append("null");
        break;
      case Type::kBool:
        out_.Append(value.Truth() ? "true" : "false");
        break;
      case Type::kInt:
        out_.Append(fmt::format("{}", value.integer()));
        break;
      case Type::kFloat:
        WriteFloat(value.number());
        break;
      case Type::kString:
        WriteString(value.text());
        break;
      case Type::kList:
        if (!value.IsSequence()) throw Fault("tojson: {} is not JSON serializable", value.TypeName());
        WriteList(value.items(), level);
        break;
      case Type::kDict:
        WriteDict(value.dict(), level);
        break;
      default:
        throw Fault("tojson: {} is not JSON serializable", value.TypeName());
    }
  }

 private:
  void WriteFloat(double value) {
    if (std::isnan(value)) {
      out_.Append("NaN");
    } else if (std::isinf(value)) {
      out_.Append(value > 0 ? "Infinity" : "-Infinity");
    } else {
      out_.Append(FloatRepr(value));
    }
  }

  void WriteEscape(char32_t value) {
    const auto code = static_cast<uint32_t>(value);
    if (code >= 0x10000) {
      out_.Append(
          fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF)));
    } else {
      out_.Append(fmt::format("\\u{:04x}", code));
    }
  }

  bool IsPlain(uint8_t byte) const {
    return byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x80 || !style_.ensure_ascii);
  }

  void WriteString(const std::string& text) {
    out_.Append("\"");
    for (size_t i = 0; i < text.size();) {
      size_t plain = i;  // most text needs no escaping and is copied in long pieces
      while (plain < text.size() && IsPlain(static_cast<uint8_t>(text[plain]))) ++plain;
      if (plain > i) {
        out_.Append(std::string_view(text).substr(i, plain - i));
        i = plain;
        continue;
      }
      const CodePoint c = DecodeAt(text, i);
      switch (c.value) {
        case '"':
          out_.Append("\\\"");
          break;
        case '\\':
          out_.Append("\\\\");
          break;
        case '\n':
          out_.Append("\\n");
          break;
        case '\r':
          out_.Append("\\r");
          break;
        case '\t':
          out_.Append("\\t");
          break;
        case '\b':
          out_.Append("\\b");
          break;
        case '\f':
          out_.Append("\\f");
          break;
        default:
          WriteEscape(c.value);
      }
      i += c.bytes;
    }
    out_.Append("\"");
  }

  void NewLine(size_t level) {
    if (!style_.multiline) return;
    out_.Append("\n");
    for (size_t i = 0; i < level; ++i) out_.Append(style_.indent);
  }

  void WriteList(const std::vector<Value>& items, size_t level) {
    if (items.empty()) return out_.Append("[]");
    out_.Append("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    NewLine(level);
    out_.Append("]");
  }

  void WriteKey(const Value& key) {
    if (key.IsString()) return WriteString(key.text());
    if (key.IsList() || key.IsUndefined()) throw Fault("tojson: keys must be str, int, float, bool or None");
    out_.Append("\"");
    Write(key, 0);
    out_.Append("\"");
  }

  void WriteDict(const DictObject& dict, size_t level) {
    if (dict.entries.empty()) return out_.Append("{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& entry : dict.entries) order.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [this](const auto* a, const auto* b) {
        return Compare(out_.budget(), a->first, b->first) < 0;
      });
    }
    out_.Append("{");
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine(level + 1);
      WriteKey(order[i]->first);
      out_.Append(style_.key_separator);
      Write(order[i]->second, level + 1);
    }
    NewLine(level);
    out_.Append("}");
  }

  TextWriter out_;
  const JsonStyle& style_;
};

}  // namespace

// The shortest digits that parse to the same double; exponents for values from 1e16 up and below 1e-4, like
// CPython's float_repr_style 'short'.
std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string text(buffer, error == std::errc{} ? end : buffer);
  const size_t mark = text.find('e');
  const int exponent = std::stoi(text.substr(mark + 1));
  if (exponent >= 16 || exponent < -4)
    return text;  // to_chars writes at least two digits of exponent, like Python
  const std::string sign = text[0] == '-' ? "-" : "";
  std::string digits;
  for (size_t i = sign.size(); i < mark; ++i) {
    if (text[i] != '.') digits.push_back(text[i]);
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  const std::string fraction = digits.substr(whole);
  return sign + digits.substr(0, whole) + "." + (fraction.empty() ? "0" : fraction);
}

void WriteRepr(TextWriter& out, const Value& value) {
  out.budget().Work(Budget::kUnitsPerItem);
  if (value.IsString()) return WriteStringRepr(out, value.text());
  if (value.IsList()) return WriteListRepr(out, value);
  if (!value.IsDict()) return WriteScalar(out, value);
  out.Append("{");
  bool first = true;
  for (const auto& [key, item] : value.dict().entries) {
    if (!first) out.Append(", ");
    first = false;
    WriteRepr(out, key);
    out.Append(": ");
    WriteRepr(out, item);
  }
  out.Append("}");
}

std::string ToText(Budget& budget, const Value& value) {
  if (value.IsUndefined()) return {};
  TextWriter out(budget);
  if (value.IsString()) {
    out.Append(value.text());
  } else {
    WriteRepr(out, value);
  }
  return out.Finish();
}

Value ToString(Budget& budget, const Value& value) {
  return value.IsString() ? value : Value::String(&budget, ToText(budget, value));
}

std::string ToJson(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer(budget, style);
  writer.Write(value, 0);
  return writer.Finish();
}

}  // namespace coppice::jinja
