#include "apps/cli/auto_lines.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "engine/calibration.h"

namespace coppice::cli {

namespace {

// The reason of a dense run may name the prompt's length, so only settings are compared by it.
std::string KeyOf(const ResolvedPrune& resolved) {
  return resolved.spec == "none" ? "" : resolved.spec + "\n" + resolved.reason;
}

// The last length from `first` on, up to `last`, that has the same setting. Looks first at lengths of which
// each is a sixteenth longer than the one before: a range that is narrower is measured for no prompts.
int64_t EndOf(Engine& engine, std::string_view prune, PromptStates states, int64_t first, int64_t last) {
  const std::string key = KeyOf(engine.ResolvePrune(prune, first, states));
  const auto same = [&](int64_t tokens) { return KeyOf(engine.ResolvePrune(prune, tokens, states)) == key; };
  int64_t end = first;
  int64_t next = first;
  while (end < last) {
    next = std::min(last, end + std::max<int64_t>(1, end / 16));
    if (!same(next)) break;
    end = next;
  }
  while (next - end > 1) {  // the same at `end`, another at `next`
    const int64_t middle = end + (next - end) / 2;
    (same(middle) ? end : next) = middle;
  }
  return end;
}

}  // namespace

std::string AutoLines(Engine& engine, std::string_view prune, PromptStates states) {
  if (!AutoLoss(prune)) return "";
  const int64_t most = engine.context();
  std::string lines;
  bool gaps = false;
  for (int64_t first = 1, last = 0; first <= most; first = last + 1) {
    last = EndOf(engine, prune, states, first, most);
    const ResolvedPrune resolved = engine.ResolvePrune(prune, first, states);
    gaps |= resolved.spec == "none";
    if (resolved.spec == "none") continue;
    lines += fmt::format("auto: prompts of {} to {} tokens: {} ({})\n", first, last, resolved.spec,
                         resolved.reason);
  }
  if (lines.empty()) return fmt::format("auto: {}\n", engine.ResolvePrune(prune, most, states).reason);
  if (gaps) lines += "auto: prompts of other lengths run densely\n";
  return lines;
}

}  // namespace coppice::cli
