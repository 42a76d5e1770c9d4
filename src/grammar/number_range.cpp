#include "grammar/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "base/error.h"

namespace coppice {

using namespace grammar;  // of expressions

namespace {

constexpr int kMostDigits = 16;

Expr Digit(char first, char last) {
  return Chars({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}
Expr AnyDigits(int64_t least, int64_t most) { return Repeat(Digit('0', '9'), least, most); }
Expr Zeros(int64_t least) { return Repeat(Text("0"), least, kMostDigits); }
Expr Nothing() { return Choice({}); }

// A bound that is not negative: the digits before and behind the point, the latter without zeros at the end.
struct Decimal {
  std::string whole;
  std::string fraction;
};

Decimal DecimalOf(double value) {
  std::array<char, 512> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value + 0.0,  // no -0
                                          std::chars_format::fixed);
  const std::string_view all(text.data(), static_cast<size_t>(end - text.data()));
  const size_t point = std::min(all.find('.'), all.size());
  Decimal decimal{std::string(all.substr(0, point)),
                  std::string(all.substr(std::min(point + 1, all.size())))};
  if (error != std::errc() || decimal.whole.size() > kMostDigits || decimal.fraction.size() > kMostDigits)
    throw Error("the bound {} has more than {} digits", value, kMostDigits);
  return decimal;
}

// Digit strings of the same length as both bounds, from `low` to `high`.
Expr SameLength(std::string_view low, std::string_view high) {
  if (low.empty()) return Sequence({});
  if (low.find_first_not_of('0') == low.npos && high.find_first_not_of('9') == high.npos)
    return AnyDigits(std::ssize(low), std::ssize(low));
  if (low.front() == high.front()) {
    if (low.size() == 1) return Digit(low.front(), low.front());
    return Sequence({Digit(low.front(), low.front()), SameLength(low.substr(1), high.substr(1))});
  }
  const auto rest = static_cast<int64_t>(low.size()) - 1;
  const std::string nines(low.size() - 1, '9');
  const std::string zeros(low.size() - 1, '0');
  std::vector<Expr> choices;
  choices.push_back(Sequence({Digit(low.front(), low.front()), SameLength(low.substr(1), nines)}));
  choices.push_back(Sequence({Digit(high.front(), high.front()), SameLength(zeros, high.substr(1))}));
  if (low.front() + 1 < high.front()) {
    choices.push_back(
        Sequence({Digit(static_cast<char>(low.front() + 1), static_cast<char>(high.front() - 1)),
                  AnyDigits(rest, rest)}));
  }
  return Choice(std::move(choices));
}

// Whole numbers from `low` to `high`, both without signs and zeros in front.
Expr WholeBetween(const std::string& low, const std::string& high) {
  if (low.size() > high.size() || (low.size() == high.size() && low > high)) return Nothing();
  if (low.size() == high.size()) return SameLength(low, high);
  std::vector<Expr> choices;
  choices.push_back(SameLength(low, std::string(low.size(), '9')));
  choices.push_back(SameLength("1" + std::string(high.size() - 1, '0'), high));
  if (low.size() + 1 < high.size()) {
    choices.push_back(Sequence({Digit('1', '9'), AnyDigits(static_cast<int64_t>(low.size()),
                                                           static_cast<int64_t>(high.size()) - 2)}));
  }
  return Choice(std::move(choices));
}

std::string Next(std::string whole) {
  for (size_t i = whole.size(); i-- > 0;) {
    if (whole[i] != '9') {
      ++whole[i];
      return whole;
    }
    whole[i] = '0';
  }
  return "1" + whole;
}

std::string Previous(std::string whole) {  // of a positive number
  for (size_t i = whole.size(); i-- > 0;) {
    if (whole[i] != '0') {
      --whole[i];
      break;
    }
    whole[i] = '9';
  }
  return whole.size() > 1 && whole[0] == '0' ? whole.substr(1) : whole;
}

// Digits behind a point that are at least (above, if open) 0.`low`.
Expr TailFrom(const std::string& low, bool open, bool may_be_empty) {
  std::vector<Expr> choices;
  for (size_t i = 0; i < low.size(); ++i) {
    if (low[i] == '9') continue;
    choices.push_back(Sequence(
        {Text(low.substr(0, i)), Digit(static_cast<char>(low[i] + 1), '9'), AnyDigits(0, kMostDigits)}));
  }
  if (open) {
    choices.push_back(Sequence({Text(low), Zeros(0), Digit('1', '9'), AnyDigits(0, kMostDigits)}));
  } else {
    choices.push_back(Sequence({Text(low), AnyDigits(low.empty() && !may_be_empty ? 1 : 0, kMostDigits)}));
  }
  return Choice(std::move(choices));
}

// Those that are at most (below, if open) 0.`high`.
Expr TailTo(const std::string& high, bool open, bool may_be_empty) {
  std::vector<Expr> choices;
  for (size_t i = 0; i < high.size(); ++i) {
    if (i > 0 || may_be_empty) choices.push_back(Text(high.substr(0, i)));
    if (high[i] > '0') {
      choices.push_back(Sequence(
          {Text(high.substr(0, i)), Digit('0', static_cast<char>(high[i] - 1)), AnyDigits(0, kMostDigits)}));
    }
  }
  if (!open) choices.push_back(Sequence({Text(high), Zeros(high.empty() && !may_be_empty ? 1 : 0)}));
  return Choice(std::move(choices));
}

// What follows a whole part: nothing, or a point and digits.
Expr FractionFrom(const std::string& low, bool open) {
  std::vector<Expr> choices{Sequence({Text("."), TailFrom(low, open, false)})};
  if (low.empty() && !open) choices.push_back(Text(""));
  return Choice(std::move(choices));
}

Expr FractionTo(const std::string& high, bool open) {
  std::vector<Expr> choices{Sequence({Text("."), TailTo(high, open, false)})};
  if (!high.empty() || !open) choices.push_back(Text(""));
  return Choice(std::move(choices));
}

// Between two fractions: they agree in some digits, then differ.
Expr FractionBetween(const Decimal& low, bool low_is_open, const Decimal& high, bool high_is_open) {
  const size_t length = std::max(low.fraction.size(), high.fraction.size());
  const std::string from = low.fraction + std::string(length - low.fraction.size(), '0');
  const std::string to = high.fraction + std::string(length - high.fraction.size(), '0');
  if (from > to || (from == to && (low_is_open || high_is_open))) return Nothing();
  if (from == to && from.empty()) return Optional(Sequence({Text("."), Zeros(1)}));
  if (from == to) return Sequence({Text("." + from), Zeros(0)});
  size_t same = 0;
  while (from[same] == to[same]) ++same;
  const Expr point = Text("." + from.substr(0, same));
  std::vector<Expr> choices;
  choices.push_back(
      Sequence({point, Digit(from[same], from[same]), TailFrom(from.substr(same + 1), low_is_open, true)}));
  choices.push_back(
      Sequence({point, Digit(to[same], to[same]), TailTo(to.substr(same + 1), high_is_open, true)}));
  if (from[same] + 1 < to[same]) {
    choices.push_back(
        Sequence({point, Digit(static_cast<char>(from[same] + 1), static_cast<char>(to[same] - 1)),
                  AnyDigits(0, kMostDigits)}));
  }
  if (low.fraction.empty() && !low_is_open) choices.push_back(Text(""));
  return Choice(std::move(choices));
}

// Numbers without a sign between bounds that are not negative; `high` may be unset.
Expr UnsignedBetween(double low, bool low_is_open, std::optional<double> high, bool high_is_open,
                     bool whole) {
  const std::string most(kMostDigits, '9');
  Decimal from = DecimalOf(low);
  if (whole) {
    if (!from.fraction.empty() || low_is_open) from.whole = Next(from.whole);
    if (!high) return WholeBetween(from.whole, most);
    const Decimal to = DecimalOf(*high);
    if (to.fraction.empty() && high_is_open) {
      if (to.whole == "0") return Nothing();
      return WholeBetween(from.whole, Previous(to.whole));
    }
    return WholeBetween(from.whole, to.whole);
  }
  const Expr any = Optional(Sequence({Text("."), AnyDigits(1, kMostDigits)}));
  std::vector<Expr> choices;
  const Expr first = Sequence({Text(from.whole), FractionFrom(from.fraction, low_is_open)});
  if (!high) {
    choices.push_back(first);
    choices.push_back(Sequence({WholeBetween(Next(from.whole), most), any}));
    return Choice(std::move(choices));
  }
  const Decimal to = DecimalOf(*high);
  if (from.whole == to.whole) {
    return Sequence({Text(from.whole), FractionBetween(from, low_is_open, to, high_is_open)});
  }
  if (low > *high) return Nothing();
  choices.push_back(first);
  if (Next(from.whole) != to.whole)
    choices.push_back(Sequence({WholeBetween(Next(from.whole), Previous(to.whole)), any}));
  choices.push_back(Sequence({Text(to.whole), FractionTo(to.fraction, high_is_open)}));
  return Choice(std::move(choices));
}

}  // namespace

Expr NumbersBetween(const NumberBounds& b, bool whole) {
  std::vector<Expr> choices;
  if (!b.high || *b.high >= 0) {
    const bool above_zero = b.low && *b.low >= 0;
    choices.push_back(
        UnsignedBetween(above_zero ? *b.low : 0, above_zero && b.low_is_open, b.high, b.high_is_open, whole));
  }
  if (!b.low || *b.low < 0) {  // -x for x from -high to -low
    const bool below_zero = b.high && *b.high < 0;
    std::optional<double> most;
    if (b.low) most = -*b.low;
    choices.push_back(
        Sequence({Text("-"), UnsignedBetween(below_zero ? -*b.high : 0, !below_zero || b.high_is_open, most,
                                             b.low_is_open, whole)}));
  }
  return Choice(std::move(choices));
}

}  // namespace coppice
