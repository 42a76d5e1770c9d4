#include "engine/documents/prompt_sketch.h"

#include <algorithm>
#include <limits>

namespace coppice {

namespace {

constexpr size_t kRun = 8;
constexpr size_t kMost = 512;
constexpr int kLeast = 16;  // runs that an estimate needs
constexpr uint64_t kBase = 0x9e3779b97f4a7c15;

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Returns true if there were more.
bool KeepSmallest(std::vector<uint64_t>& hashes) {
  std::ranges::sort(hashes);
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  if (hashes.size() <= kMost) return false;
  hashes.resize(kMost);
  return true;
}

}  // namespace

PromptSketch::PromptSketch(std::span<const int32_t> tokens) {
  uint64_t leaving = 1;  // kBase^kRun
  for (size_t i = 0; i < kRun; ++i) leaving *= kBase;
  uint64_t limit = std::numeric_limits<uint64_t>::max();
  uint64_t rolling = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    rolling = rolling * kBase + static_cast<uint32_t>(tokens[i]) + 1;
    if (i >= kRun) rolling -= leaving * (uint64_t{static_cast<uint32_t>(tokens[i - kRun])} + 1);
    if (i + 1 < kRun) continue;
    const uint64_t hash = Mixed(rolling);
    if (hash >= limit) {
      is_sample_ |= hash > limit;
      continue;
    }
    hashes_.push_back(hash);
    if (hashes_.size() < 4 * kMost) continue;
    is_sample_ |= KeepSmallest(hashes_);
    if (hashes_.size() == kMost) limit = hashes_.back();
  }
  is_sample_ |= KeepSmallest(hashes_);
  hashes_.shrink_to_fit();
}

double PromptSketch::ShareIn(const PromptSketch& other) const {
  // Below both limits, each sketch has all runs of its prompt.
  uint64_t limit = std::numeric_limits<uint64_t>::max();
  for (const PromptSketch* sketch : {this, &other}) {
    if (sketch->is_sample_ && !sketch->hashes_.empty()) limit = std::min(limit, sketch->hashes_.back());
  }
  int all = 0;
  int both = 0;
  for (const uint64_t hash : hashes_) {
    if (hash > limit) break;
    ++all;
    both += std::ranges::binary_search(other.hashes_, hash) ? 1 : 0;
  }
  return all < kLeast ? 0 : static_cast<double>(both) / all;
}

}  // namespace coppice
