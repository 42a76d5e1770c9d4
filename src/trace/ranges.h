// Lists of positions as text: "0-99,120". Kept tokens come in runs, so this is short where it matters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// `positions` ascending and unique.
std::string RangesText(std::span<const int32_t> positions);

// Appends to `positions`, which must be empty, at most `most` of them, all below `end`. Returns what is wrong with the
// text, or "" where nothing is.
std::string ParseRanges(std::string_view text, int64_t end, int64_t most, std::vector<int32_t>& positions);

}  // namespace coppice
