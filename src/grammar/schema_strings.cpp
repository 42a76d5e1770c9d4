#include "grammar/schema_strings.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/limits.h"
#include "grammar/json_text.h"
#include "grammar/regex_rules.h"
#include "text/unicode/unicode.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxNameBytes = 1024;  // where other names are allowed, too: each byte is a group in a group

// RFC 3339, 4122 and 791; the days of each month, but no 29 February, which not every year has.
constexpr const char* kDate =
    "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})-(?:(?:0[13578]|1[02])-(?:0[1-9]|["
    "12][0-9]|3[01])|"
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
constexpr const char* kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+\\-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
constexpr const char* kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

std::string PatternOfFormat(const std::string& format) {
  const std::string date = kDate;
  const std::string time = kTime;
  const std::string byte = kByte;
  if (format == "date") return "^" + date + "$";
  if (format == "time") return "^" + time + "$";
  if (format == "date-time") return "^" + date + "T" + time + "$";
  if (format == "uuid") return "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
  if (format == "ipv4") return "^" + byte + "\\." + byte + "\\." + byte + "\\." + byte + "$";
  if (format == "email")
    return "^[A-Za-z0-9_+\\-]{1,32}(?:\\.[A-Za-z0-9_+\\-]{1,32}){0,2}@(?:[A-Za-z0-9]{1,32}\\.){1,4}[A-Za-z]{"
           "2,16}$";
  return "";
}

int64_t Length(const Json& schema, const char* keyword, int64_t otherwise) {
  if (!schema.contains(keyword)) return otherwise;
  const Json& value = schema[keyword];
  if (!value.is_number() || value.get<double>() < 0 || std::floor(value.get<double>()) != value.get<double>())
    throw Error("{} is not a whole number from 0", keyword);
  if (value.get<double>() > limits::kMaxGrammarRepeats)
    throw Error("{} is above {}, which is not supported", keyword, limits::kMaxGrammarRepeats);
  return static_cast<int64_t>(value.get<double>());
}

}  // namespace

Expr SchemaString(const Json& schema, const Expr& character) {
  const int64_t least = Length(schema, "minLength", 0);
  const int64_t most = Length(schema, "maxLength", kNoLimit);
  std::string pattern;
  if (schema.contains("format") && schema["format"].is_string()) pattern = PatternOfFormat(schema["format"]);
  if (schema.contains("pattern")) {
    if (!schema["pattern"].is_string()) throw Error("pattern is not a text");
    if (!pattern.empty()) throw Error("pattern beside format is not supported");
    pattern = schema["pattern"];
  }
  if (most != kNoLimit && most < least) return Choice({});
  if (pattern.empty()) return JsonQuoted(Repeat(character, least, most));
  if (least > 0 || most != kNoLimit)
    throw Error("minLength and maxLength beside pattern or format are not supported: say it in the pattern");
  return JsonQuoted(ParseRegex(pattern, &JsonCharOf));
}

// Names that share a beginning share a branch: at each character, those that go on as one of the names, and
// all others, behind which anything may stand.
Expr OtherName(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name.size() > kMaxNameBytes)
      throw Error("a name of a property is longer than {} bytes", kMaxNameBytes);
  }
  const auto spell = [](const CharSet& set) {
    const CharSet escaped = Normalized({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}});
    return Chars(Intersection(set, Complement(escaped)));
  };
  const CharSet all = Normalized({{0, kMaxChar}});
  const Expr any = Repeat(spell(all), 0);
  const std::function<Expr(const std::vector<std::string_view>&)> behind =
      [&](const std::vector<std::string_view>& rests) {
        std::map<char32_t, std::vector<std::string_view>> branches;
        bool ends = false;  // one of the names ends here
        for (const std::string_view rest : rests) {
          if (rest.empty()) {
            ends = true;
            continue;
          }
          const Char c = DecodeUtf8(rest, 0);
          branches[c.code].push_back(rest.substr(c.size));
        }
        CharSet taken;
        std::vector<Expr> choices;
        for (const auto& [c, group] : branches) {
          taken.push_back({c, c});
          choices.push_back(Sequence({spell({{c, c}}), behind(group)}));
        }
        choices.push_back(Sequence({spell(Complement(Normalized(taken))), any}));
        if (!ends) choices.push_back(Text(""));
        return Choice(std::move(choices));
      };
  return JsonQuoted(behind({names.begin(), names.end()}));
}

}  // namespace coppice
