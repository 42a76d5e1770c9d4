#include "engine/documents/document_cache.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <new>
#include <utility>

#include "base/error.h"
#include "engine/documents/common_prefix.h"
#include "engine/documents/document_folder.h"

namespace coppice {

namespace {

bool BeginsWith(std::span<const int32_t> tokens, std::span<const int32_t> beginning) {
  return InCommon(tokens, beginning) == static_cast<int64_t>(beginning.size());
}

}  // namespace

DocumentCache::DocumentCache(DocumentCacheOptions options, std::function<PrefixFormat()> format)
    : options_(std::move(options)), make_format_(std::move(format)), worths_(options_.now) {
  if (options_.folder.empty()) return;
  MakeDocumentFolder(options_.folder);
  ReadFolder();
  writer_ = std::thread([this] { WriteQueued(); });
}

DocumentCache::~DocumentCache() {
  if (!writer_.joinable()) return;
  try {
    Flush();
  } catch (const std::bad_alloc&) {  // entries that could not be queued are lost
  }
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

const PrefixFormat& DocumentCache::Format() {
  std::call_once(format_made_, [this] { format_ = make_format_(); });
  return format_;
}

int64_t DocumentCache::Entry::Reusable(int64_t rows) const {
  if (!checkpoints) return rows;
  const auto behind = std::ranges::upper_bound(*checkpoints, rows);
  return behind == checkpoints->begin() ? 0 : *(behind - 1);
}

// The entry that saves the most work; of equal entries the most recently used one.
DocumentCache::EntryPtr DocumentCache::Best(std::span<const int32_t> tokens, const PrefixRules& rules,
                                            const PrefixOwner& owner, int64_t* rows) const {
  EntryPtr best;
  int64_t best_work = 0;
  for (const EntryPtr& entry : entries_) {
    if (entry->tokens.empty() || entry->owner != owner) continue;
    const int64_t most =
        entry->point > rules.point ? rules.dense_taken : static_cast<int64_t>(tokens.size()) - rules.tail;
    const int64_t takes = entry->Reusable(std::min(InCommon(tokens, entry->tokens), most));
    if (takes < std::max<int64_t>(options_.least_taken, 1)) continue;
    const int64_t work = takes * DepthOf(entry->point);
    if (work < best_work || (work == best_work && entry->worth.used < best->worth.used)) continue;
    best = entry;
    best_work = work;
    *rows = takes;
  }
  return best;
}

DocumentCache::EntryPtr DocumentCache::MostShared(std::span<const int32_t> tokens,
                                                  const PrefixOwner& owner) const {
  EntryPtr most;
  std::pair<int64_t, int64_t> best{0, 0};
  for (const EntryPtr& entry : entries_) {
    if (entry->owner != owner) continue;
    const std::pair<int64_t, int64_t> shares{InCommon(tokens, entry->tokens), DepthOf(entry->point)};
    if (shares.first == 0 || shares <= best) continue;
    most = entry;
    best = shares;
  }
  return most;
}

PrefixUse DocumentCache::Find(std::span<const int32_t> tokens, const PrefixRules& rules,
                              const PrefixOwner& owner, const RunControl& control, const PrefixHint& hint) {
  Lock lock(mutex_);
  for (;;) {
    int64_t rows = 0;
    const EntryPtr entry = Best(tokens, rules, owner, &rows);
    if (!entry) {
      ++stats_.misses;
      return {};
    }
    if (std::shared_ptr<const PrefixState> state = StateOf(entry, lock, control)) {
      worths_.Use(entry->worth);
      if (Follows(tokens, entry->tokens, rows)) worths_.Continue(entry->worth, hint);
      ++stats_.hits;
      stats_.tokens_taken += rows;
      return {std::move(state), rows};
    }
  }
}

DocumentCache::Taken DocumentCache::WouldTake(std::span<const int32_t> tokens, const PrefixRules& rules,
                                              const PrefixOwner& owner) const {
  // A method that chooses before layer 0 takes nothing but what is protected, as in PrefixRun.
  if (rules.point == LayerPoint() && rules.dense == 0) return {};
  const Lock lock(mutex_);
  Taken taken;
  if (const EntryPtr entry = Best(tokens, rules, owner, &taken.rows)) taken.point = entry->point;
  return taken;
}

int64_t DocumentCache::DenseTokens(std::span<const int32_t> tokens, int layers,
                                   const PrefixOwner& owner) const {
  const Lock lock(mutex_);
  int64_t most = 0;
  for (const EntryPtr& entry : entries_) {
    if (entry->owner == owner && entry->complete && entry->point == LayerPoint{layers, false})
      most = std::max(most, InCommon(tokens, entry->tokens));
  }
  return most;
}

DocumentCache::Held DocumentCache::MostHeld(std::span<const int32_t> tokens, const PrefixOwner& owner) const {
  const Lock lock(mutex_);
  const EntryPtr entry = MostShared(tokens, owner);
  if (!entry) return {};
  return {.shared = InCommon(tokens, entry->tokens),
          .tokens = std::ssize(entry->tokens),
          .point = entry->point,
          .complete = entry->complete,
          .in_memory = entry->state != nullptr};
}

std::optional<GoneEntries::Match> DocumentCache::WasHeld(std::span<const int32_t> tokens, int64_t above,
                                                         const PrefixOwner& owner) const {
  const Lock lock(mutex_);
  return gone_.Longest(tokens, above, owner);
}

bool DocumentCache::Wants(int64_t tokens, int64_t bytes, LayerPoint point, const PrefixUse& found,
                          const PrefixHint& hint) const {
  if (point == LayerPoint() || !Fits(bytes)) return false;
  const int64_t added = tokens - found.rows;
  return added >= options_.least_new || (added >= options_.least_taken && 4 * added >= tokens) ||
         (found.state && (found.state->point < point || (hint.is_own_read && added >= options_.least_taken)));
}

void DocumentCache::Put(std::shared_ptr<const PrefixState> state, const PrefixHint& hint) {
  auto entry = std::make_shared<Entry>();
  entry->owner = state->owner;
  entry->tokens = state->tokens;
  entry->point = state->point;
  entry->complete = state->complete;
  if (state->has_states) {
    entry->checkpoints.emplace();
    for (const auto& checkpoint : state->checkpoints) entry->checkpoints->push_back(checkpoint->rows);
  }
  entry->state = std::move(state);
  // True if `a` serves every prompt that `b` serves. If `b` comes from a cancelled prefill, `a` may also have
  // a later point.
  const auto replaces = [](const Entry& a, const Entry& b, int64_t common) {
    return (a.point == b.point || (!b.complete && a.point > b.point)) && common == std::ssize(b.tokens);
  };
  const Lock lock(mutex_);
  std::vector<EntryPtr> replaced;
  for (const EntryPtr& old : entries_) {
    if (old->tokens.empty() || old->owner != entry->owner) continue;
    const int64_t common = InCommon(old->tokens, entry->tokens);
    if (replaces(*old, *entry, common)) {
      worths_.Use(old->worth);
      worths_.Keep(old->worth, hint);
      return;
    }
    if (replaces(*entry, *old, common)) replaced.push_back(old);
    if (Follows(entry->tokens, old->tokens, common)) {
      worths_.Follow(entry->worth, old->worth, hint);
    } else if (IsMost(common, std::ssize(old->tokens)) && entry->tokens.size() > old->tokens.size()) {
      entry->worth.is_conversation |= old->worth.is_conversation;  // with a change near the end
    }
  }
  if (!hint.is_own_read && gone_.Longest(entry->tokens, 0, entry->owner)) entry->worth.is_conversation = true;
  worths_.Keep(entry->worth, hint);
  int64_t replaced_bytes = 0;
  for (const EntryPtr& old : replaced) {
    replaced_bytes += old->held_bytes();
    Forget(old, std::nullopt);
  }
  Insert(entry, replaced_bytes);
  for (const EntryPtr& other : entries_) {
    if (other != entry && other->owner == entry->owner &&
        other->worth.conversation == entry->worth.conversation)
      other->worth.is_latest = false;
  }
  MakeRoomInMemory();
}

int64_t DocumentCache::Erase(std::span<const int32_t> tokens, const PrefixOwner& owner) {
  Lock lock(mutex_);
  std::vector<EntryPtr> erased;
  int64_t most = 0;
  for (const EntryPtr& entry : entries_) {
    if (entry->tokens.empty() || entry->owner != owner || !BeginsWith(tokens, entry->tokens)) continue;
    erased.push_back(entry);
    most = std::max(most, static_cast<int64_t>(entry->tokens.size()));
  }
  for (const EntryPtr& entry : erased) Forget(entry, Gone::kErased);
  changed_.wait(lock, [this] { return unwanted_.empty() && !removing_; });
  return most;
}

DocumentCacheStats DocumentCache::stats() const {
  const Lock lock(mutex_);
  DocumentCacheStats stats = stats_;
  for (const EntryPtr& entry : entries_) {
    stats.entries += entry->tokens.empty() ? 0 : 1;
    stats.memory_bytes += entry->held_bytes();
    stats.disk_bytes += entry->file_bytes;
  }
  return stats;
}

// ---- With the lock held

void DocumentCache::Insert(const EntryPtr& entry, int64_t replaced_bytes) {
  entries_.push_back(entry);
  worths_.Use(entry->worth);
  const auto share = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
  };
  worths_.CountNew(share(std::max<int64_t>(entry->held_bytes() - replaced_bytes, 0), options_.memory_bytes) +
                   share(replaced_bytes > 0 ? 0 : 1, options_.most_entries));
  entry->id = ++last_id_;
  TellHeld(*entry);
}

// The listener hears nothing of an entry if there is no memory for its copy of the tokens: the entry is worth
// more than the listener's knowledge of it.
void DocumentCache::TellHeld(Entry& entry) noexcept {
  if (!options_.listener || entry.tokens.empty()) return;
  try {
    options_.listener->Hold(entry.id, {.owner = entry.owner,
                                       .tokens = entry.tokens,
                                       .point = entry.point,
                                       .complete = entry.complete,
                                       .in_memory = entry.state != nullptr});
    entry.told = true;
  } catch (const std::bad_alloc&) {
  }
}

void DocumentCache::TellMoved(const Entry& entry) {
  if (entry.told && !entry.forgotten) options_.listener->Move(entry.id, entry.state != nullptr);
}

void DocumentCache::Forget(const EntryPtr& entry, std::optional<Gone> why) {
  if (std::exchange(entry->forgotten, true)) return;
  if (why) gone_.Note(entry->owner, entry->tokens, *why);
  if (entry->told) options_.listener->Release(entry->id);
  entries_.remove(entry);
  if (!entry->file.empty()) Remove(entry->file);
}

// Of the entries that hold something, the one that leaves first; null if there is none. `held`: what an entry
// holds of that which is scarce.
DocumentCache::EntryPtr DocumentCache::LeastOf(const std::function<int64_t(const Entry&)>& held) const {
  std::map<uint64_t, int64_t> shares;  // by API key: a client chooses its salts
  for (const EntryPtr& entry : entries_) shares[entry->owner.key] += held(*entry);
  const auto most = std::ranges::max_element(shares, {}, [](const auto& share) { return share.second; });
  EntryPtr least;
  if (most == shares.end()) return least;
  for (const EntryPtr& entry : entries_) {
    if (entry->owner.key != most->first || held(*entry) == 0) continue;
    if (!least || worths_.IsLess(entry->worth, least->worth)) least = entry;
  }
  return least;
}

// Entries that wait to be written do not count, but may together take at most memory_bytes more. With a slow
// disk the cache therefore loses entries instead of using more memory.
void DocumentCache::MakeRoomInMemory() {
  int64_t held = 0;
  int64_t leaving = 0;
  int64_t entries = 0;
  for (const EntryPtr& entry : entries_) {
    (entry->queued ? leaving : held) += entry->held_bytes();
    entries += entry->state && !entry->queued ? 1 : 0;
  }
  for (; held > options_.memory_bytes || entries > options_.most_entries; --entries) {
    const bool too_many = held <= options_.memory_bytes;
    const EntryPtr victim = LeastOf([too_many](const Entry& entry) -> int64_t {
      if (!entry.state || entry.queued) return 0;
      return too_many ? 1 : entry.held_bytes();
    });
    if (!victim) return;
    const int64_t bytes = victim->held_bytes();
    held -= bytes;
    if (!victim->file.empty()) {
      victim->state.reset();
      TellMoved(*victim);
    } else if (CanWrite(*victim) && leaving + bytes <= options_.memory_bytes) {
      leaving += bytes;
      Queue(victim);
    } else {
      Forget(victim);
    }
  }
}

}  // namespace coppice
