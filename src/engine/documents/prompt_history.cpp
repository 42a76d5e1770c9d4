#include "engine/documents/prompt_history.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/documents/common_prefix.h"

namespace coppice {

namespace {

// Another prompt than the one with the longest beginning in common is the conversation's if it has at least
// this share of the text, and this much more of it.
constexpr double kAlike = 0.5;
constexpr double kMoreAlike = 0.25;
// A single token in common is the mark of a text's beginning, or chance.
constexpr int64_t kLeastShared = 2;

}  // namespace

std::vector<EarlierPrompt> PromptHistory::Of(const PrefixOwner& owner) const {
  std::vector<EarlierPrompt> prompts;
  const std::lock_guard lock(mutex_);
  const auto share = shares_.find(owner.key);
  if (share == shares_.end()) return prompts;
  for (const Record& record : share->second.records) {
    if (record.salt == owner.salt) prompts.push_back(record.prompt);
  }
  return prompts;
}

PromptHistory::Comparison PromptHistory::Compare(std::span<const int32_t> tokens, const PromptSketch& sketch,
                                                 const PrefixOwner& owner) const {
  const std::vector<EarlierPrompt> prompts = Of(owner);
  const EarlierPrompt* longest = nullptr;
  const EarlierPrompt* likest = nullptr;
  double most_alike = 0;
  Comparison found;
  for (const EarlierPrompt& prompt : prompts) {  // a later one wins if it is as good
    const int64_t common = InCommon(tokens, *prompt.tokens);
    if (longest == nullptr || common >= found.shared) {
      longest = &prompt;
      found.shared = common;
    }
    const double alike = sketch.ShareIn(prompt.sketch);
    if (likest == nullptr || alike >= most_alike) {
      likest = &prompt;
      most_alike = alike;
    }
  }
  if (longest == nullptr) return found;
  const double share = std::max(sketch.ShareIn(longest->sketch),
                                static_cast<double>(found.shared) / static_cast<double>(tokens.size()));
  const bool is_other = most_alike >= kAlike && most_alike - share >= kMoreAlike;
  const EarlierPrompt& chosen = is_other ? *likest : *longest;
  if (found.shared < kLeastShared && sketch.ShareIn(chosen.sketch) < kAlike) return found;
  found.earlier = chosen;
  found.common = InCommon(tokens, *chosen.tokens);
  return found;
}

uint64_t PromptHistory::Add(const PrefixOwner& owner, EarlierPrompt prompt) {
  if (prompt.size() > MostTokens()) {
    prompt.tokens = std::make_shared<const std::vector<int32_t>>(prompt.tokens->begin(),
                                                                 prompt.tokens->begin() + MostTokens());
    prompt.prompt_tokens = MostTokens();
  }
  const std::lock_guard lock(mutex_);
  Share& share = shares_[owner.key];
  share.records.push_back({++last_number_, owner.salt, std::move(prompt)});
  const EarlierPrompt& added = share.records.back().prompt;
  share.tokens += added.size();
  for (auto record = share.records.begin(); record != std::prev(share.records.end());) {
    const auto next = std::next(record);
    const EarlierPrompt& old = record->prompt;
    if (record->salt == owner.salt && InCommon(*old.tokens, *added.tokens) == old.size())
      Erase(share, record);
    record = next;
  }
  Trim(share, owner.salt);
  return last_number_;
}

void PromptHistory::End(uint64_t number, const PrefixOwner& owner, std::span<const int32_t> answer,
                        int64_t kept, NotKept why) {
  const std::lock_guard lock(mutex_);
  Share& share = shares_[owner.key];
  const auto record = std::ranges::find(share.records, number, &Record::number);
  if (record == share.records.end()) return;
  EarlierPrompt& prompt = record->prompt;
  const int64_t room = std::max<int64_t>(MostTokens() - prompt.size(), 0);
  answer = answer.first(static_cast<size_t>(std::min<int64_t>(std::ssize(answer), room)));
  if (!answer.empty()) {
    std::vector<int32_t> whole;
    whole.reserve(prompt.tokens->size() + answer.size());
    whole = *prompt.tokens;
    whole.insert(whole.end(), answer.begin(), answer.end());
    prompt.tokens = std::make_shared<const std::vector<int32_t>>(std::move(whole));
    share.tokens += std::ssize(answer);
  }
  prompt.kept = kept;
  prompt.why = why;
  Trim(share, owner.salt);
}

// Of a key's owners, the one with the most tokens loses its oldest prompt first.
void PromptHistory::Trim(Share& share, uint64_t salt) const {
  auto is_own = [salt](const Record& record) { return record.salt == salt; };
  if (std::ranges::count_if(share.records, is_own) > options_.prompts)
    Erase(share, std::ranges::find_if(share.records, is_own));
  while (share.tokens > MostTokens() || std::ssize(share.records) > options_.prompts_of_key) {
    std::map<uint64_t, int64_t> tokens;
    for (const Record& record : share.records) tokens[record.salt] += record.prompt.size();
    const uint64_t largest =
        std::ranges::max_element(tokens, {}, [](const auto& entry) { return entry.second; })->first;
    Erase(share, std::ranges::find(share.records, largest, &Record::salt));
  }
}

void PromptHistory::Erase(Share& share, std::list<Record>::iterator record) {
  share.tokens -= record->prompt.size();
  share.records.erase(record);
}

int64_t PromptHistory::tokens() const {
  const std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const auto& [key, share] : shares_) sum += share.tokens;
  return sum;
}

int64_t PromptHistory::prompts() const {
  const std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const auto& [key, share] : shares_) sum += std::ssize(share.records);
  return sum;
}

}  // namespace coppice
