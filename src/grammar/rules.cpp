#include "grammar/rules.h"

#include <algorithm>

namespace coppice::grammar {

namespace {

constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

}  // namespace

CharSet Normalized(CharSet ranges) {
  std::erase_if(ranges, [](const CharRange& r) { return r.first > r.last || r.first > kMaxChar; });
  std::ranges::sort(ranges, {}, &CharRange::first);
  CharSet merged;
  for (const CharRange& range : ranges) {
    const char32_t last = std::min(range.last, kMaxChar);
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, last);
    } else {
      merged.push_back({range.first, last});
    }
  }
  CharSet result;
  for (const CharRange& range : merged) {
    if (range.first < kFirstSurrogate)
      result.push_back({range.first, std::min<char32_t>(range.last, kFirstSurrogate - 1)});
    if (range.last > kLastSurrogate)
      result.push_back({std::max<char32_t>(range.first, kLastSurrogate + 1), range.last});
  }
  return result;
}

CharSet Complement(const CharSet& set) {
  CharSet rest;
  char32_t next = 0;
  for (const CharRange& range : set) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kMaxChar) rest.push_back({next, kMaxChar});
  return Normalized(std::move(rest));
}

CharSet Intersection(const CharSet& a, const CharSet& b) {
  CharSet both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const CharRange common{std::max(a[i].first, b[j].first), std::min(a[i].last, b[j].last)};
    if (common.first <= common.last) both.push_back(common);
    if (a[i].last < b[j].last) {
      ++i;
    } else {
      ++j;
    }
  }
  return both;
}

}  // namespace coppice::grammar
