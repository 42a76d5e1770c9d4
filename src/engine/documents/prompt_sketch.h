// Tells whether two prompts are of one conversation although they differ near their beginnings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

// A sample of a prompt's runs of 8 tokens: those with the smallest hashes (bottom-k sketch; Broder, "On the
// resemblance and containment of documents", 1997). Takes at most 4 KiB.
class PromptSketch {
 public:
  PromptSketch() = default;
  explicit PromptSketch(std::span<const int32_t> tokens);

  // An estimate of the share of this prompt's runs that stand in the other prompt, at any place. 0 if the
  // samples are too small to tell.
  double ShareIn(const PromptSketch& other) const;

 private:
  std::vector<uint64_t> hashes_;  // ascending
  bool is_sample_ = false;        // the prompt has more runs
};

}  // namespace coppice
