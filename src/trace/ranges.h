// Lists of positions as text: "0-99,120". Kept tokens come in runs, so the text is short.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

// `positions` ascending and unique.
std::string RangesText(std::span<const int32_t> positions);

// Reads at most `most` positions below `end` into `positions`, which must be empty. Returns what is wrong
// with the text, or "".
std::string ParseRanges(std::string_view text, int64_t end, int64_t most, std::vector<int32_t>& positions);

}  // namespace coppice
