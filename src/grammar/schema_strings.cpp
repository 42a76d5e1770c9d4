#include "grammar/schema_strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "grammar/json_text.h"
#include "grammar/regex_rules.h"
#include "grammar/schema_keywords.h"
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

// Expressions with look-ahead that libraries write, and others that match only what those match.
struct KnownPattern {
  std::string_view pattern;
  std::string_view within;
};
constexpr KnownPattern kKnownPatterns[] = {
    // zod 4's email
    {R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)",
     R"(^[A-Za-z0-9_+\-]{1,32}(?:\.[A-Za-z0-9_+\-]{1,32}){0,2}@(?:[A-Za-z0-9]{1,32}\.){1,4}[A-Za-z]{2,16}$)"},
    // zod 4's duration
    {R"(^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$)",
     R"(^P(?:[0-9]{1,4}W|[0-9]{1,4}Y(?:[0-9]{1,2}M)?(?:[0-9]{1,3}D)?|[0-9]{1,2}M(?:[0-9]{1,3}D)?|[0-9]{1,3}D|(?:[0-9]{1,3}D)?T(?:[0-9]{1,3}H(?:[0-9]{1,2}M)?(?:[0-9]{1,2}S)?|[0-9]{1,3}M(?:[0-9]{1,2}S)?|[0-9]{1,3}S))$)"},
    // pydantic 2.12's Decimal
    {R"(^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$)", R"(^[+-]?[0-9]{1,32}(?:\.[0-9]{1,32})?$)"}};

// The least and most characters of texts that the expression stands for.
struct Lengths {
  int64_t least = 0;
  int64_t most = 0;  // kNoLimit: any number
};
Lengths LengthsOf(const Expr& expr) {
  constexpr int64_t kMany = int64_t{1} << 40;
  Lengths all;
  switch (expr.kind) {
    case Expr::Kind::kChars:
      return {1, 1};
    case Expr::Kind::kSequence:
      for (const Expr& part : expr.parts) {
        const Lengths here = LengthsOf(part);
        all.least = std::min(all.least + here.least, kMany);
        all.most =
            all.most == kNoLimit || here.most == kNoLimit ? kNoLimit : std::min(all.most + here.most, kMany);
      }
      return all;
    case Expr::Kind::kChoice:
      for (size_t i = 0; i < expr.parts.size(); ++i) {
        const Lengths here = LengthsOf(expr.parts[i]);
        all.least = i == 0 ? here.least : std::min(all.least, here.least);
        all.most = all.most == kNoLimit || here.most == kNoLimit ? kNoLimit : std::max(all.most, here.most);
      }
      return all;
    case Expr::Kind::kRepeat: {
      const Lengths here = LengthsOf(expr.parts[0]);
      all.least = std::min(here.least * expr.least, kMany);
      if (here.most == 0) return all;
      all.most =
          here.most == kNoLimit || expr.most == kNoLimit ? kNoLimit : std::min(here.most * expr.most, kMany);
      return all;
    }
    default:
      return {0, kNoLimit};
  }
}

// Texts of the expression with `least` to `most` characters, where one repetition decides that; else nullopt.
std::optional<Expr> WithLength(Expr expr, int64_t least, int64_t most) {
  const Lengths lengths = LengthsOf(expr);
  const bool fits = most == kNoLimit || (lengths.most != kNoLimit && lengths.most <= most);
  if (lengths.least >= least && fits) return expr;
  if ((most != kNoLimit && lengths.least > most) || (lengths.most != kNoLimit && lengths.most < least))
    return Choice({});
  if (expr.kind == Expr::Kind::kChoice) {
    for (Expr& part : expr.parts) {
      std::optional<Expr> kept = WithLength(std::move(part), least, most);
      if (!kept) return std::nullopt;
      part = std::move(*kept);
    }
    return expr;
  }
  if (expr.kind == Expr::Kind::kRepeat) {
    const Lengths item = LengthsOf(expr.parts[0]);
    if (item.least != item.most || item.least == 0) return std::nullopt;
    expr.least = std::max(expr.least, (std::max<int64_t>(least, 0) + item.least - 1) / item.least);
    if (most != kNoLimit)
      expr.most = expr.most == kNoLimit ? most / item.least : std::min(expr.most, most / item.least);
    if (expr.most != kNoLimit && expr.most < expr.least) return Choice({});
    return expr;
  }
  if (expr.kind != Expr::Kind::kSequence) return std::nullopt;
  Expr* varies = nullptr;
  int64_t fixed = 0;
  for (Expr& part : expr.parts) {
    const Lengths here = LengthsOf(part);
    if (here.least == here.most) {
      fixed += here.least;
    } else if (varies != nullptr) {
      return std::nullopt;
    } else {
      varies = &part;
    }
  }
  if (varies == nullptr) return std::nullopt;
  std::optional<Expr> kept =
      WithLength(std::move(*varies), least - fixed, most == kNoLimit ? kNoLimit : most - fixed);
  if (!kept) return std::nullopt;
  *varies = std::move(*kept);
  return expr;
}

// The same expression with its characters as JSON strings write them.
Expr Spelled(Expr expr) {
  if (expr.kind == Expr::Kind::kChars) return JsonCharOf(expr.chars);
  for (Expr& part : expr.parts) part = Spelled(std::move(part));
  return expr;
}

}  // namespace

Expr SchemaString(const Json& schema, const Expr& character, SchemaNotes& notes) {
  const int64_t least = SchemaCount(schema, "minLength", 0, notes);
  const int64_t most = SchemaCount(schema, "maxLength", kNoLimit, notes);
  if (most != kNoLimit && most < least) return Choice({});
  std::vector<std::string> patterns;  // the first that can be kept stands for all
  if (schema.contains("pattern")) {
    if (!schema["pattern"].is_string()) throw Error("pattern is not a text");
    patterns.push_back(schema["pattern"]);
    for (const KnownPattern& known : kKnownPatterns) {
      if (patterns[0] == known.pattern) patterns[0] = known.within;
    }
  }
  if (schema.contains("format") && schema["format"].is_string()) {
    if (std::string pattern = PatternOfFormat(schema["format"]); !pattern.empty())
      patterns.push_back(std::move(pattern));
  }
  for (const std::string& pattern : patterns) {
    try {
      Expr expr = ParseRegex(pattern, [](const CharSet& set) { return Chars(set); });
      if (std::optional<Expr> kept = WithLength(expr, least, most))
        return JsonQuoted(Spelled(std::move(*kept)));
      const char* keyword = least > 0 ? "minLength" : "maxLength";
      notes.Drop(keyword,
                 fmt::format("minLength and maxLength beside this pattern or format are not supported: "
                             "say it in the pattern"));
      if (least > 0 && most != kNoLimit) notes.Drop("maxLength", "");
      return JsonQuoted(Spelled(std::move(expr)));
    } catch (const Error& error) {
      notes.Drop("pattern", error.what());
    }
  }
  return JsonQuoted(Repeat(character, least, most));
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
