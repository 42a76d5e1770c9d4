// The document cache: prefixes (model/prefix.h) of earlier prompts, in memory first, then on disk.
//
// A prompt reuses the entry that saves the most work: the length of the common prefix times the number of
// layers below the entry's point. No minimum granularity applies, so turns of a conversation and questions
// about one document share entries without being declared. Entries do not belong to a method. An entry serves
// every run whose first choice is not earlier than the entry's point, and of every other run the first rows
// that always stay (PrefixRules::dense_taken). So a dense run's entry serves what pruned runs protect.
//
// Each entry has an owner and serves only requests of that owner. A request's time and its number of cached
// tokens reveal whether a text was reused, so a shared cache would reveal one client's prompts to another
// client, token by token.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/documents/document_listener.h"
#include "engine/documents/document_worth.h"
#include "engine/documents/gone_entries.h"
#include "model/prefix.h"
#include "model/prefix_file.h"

namespace coppice {

struct DocumentCacheOptions {
  int64_t memory_bytes = int64_t{4} << 30;  // beyond it, the entries of least worth are evicted
  std::string folder = {};                  // evicted entries are written here; empty: they are lost
  int64_t disk_bytes = int64_t{16} << 30;   // limit on all files in `folder`, also those of other models
  // If no prompt uses the cache for this long, it writes the entries that have no file yet, so that little is
  // left to write at the end. 0: it writes evicted entries only.
  std::chrono::milliseconds write_when_idle{0};
  int64_t least_taken = 4;  // shorter common prefixes are not reused
  // A prompt gets an entry of its own if it has this many new tokens, or a quarter of it is new. So short
  // prompts are kept, and a long chat does not copy all its states for each short turn.
  int64_t least_new = 256;
  int64_t least_written = 256;  // shorter prefixes get no file: computing them again is as quick
  int64_t most_entries = 4096;  // in memory; each search compares with all of them
  // Gets each file error. The cache holds its lock during the call, so the function must be quick and must
  // not call the cache.
  std::function<void(const std::string&)> on_error = {};
  std::shared_ptr<DocumentListener> listener = {};                // hears of every entry; may be null
  std::function<WorthClock::time_point()> now = WorthClock::now;  // for PrefixHint::lifetime
};

struct DocumentCacheStats {
  int64_t entries = 0;
  int64_t memory_bytes = 0;
  int64_t disk_bytes = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t tokens_taken = 0;
  int64_t errors = 0;      // number of failed writes and reads of files
  std::string last_error;  // the message of the last of these; empty if there was none
};

// Thread-safe. One lock guards the list of entries and is never held while a file is read or written.
class DocumentCache {
 public:
  // Calls `format` once, when it writes or reads the first file, because `format` may read the whole model.
  // Throws Error if the folder cannot be used.
  DocumentCache(DocumentCacheOptions options, std::function<PrefixFormat()> format);
  // Writes the entries that have no file yet.
  ~DocumentCache();
  DocumentCache(const DocumentCache&) = delete;
  DocumentCache& operator=(const DocumentCache&) = delete;

  // Returns the prefix that a prompt may reuse. Reads the entry's file if its states are not in memory, and
  // forgets an entry whose file cannot be used. While Find reads, or waits for another thread that reads the
  // same file, it calls `control.Pause`, which may throw Cancelled.
  PrefixUse Find(std::span<const int32_t> tokens, const PrefixRules& rules, const PrefixOwner& owner = {},
                 const RunControl& control = {}, const PrefixHint& hint = {});
  // What Find would take over now, if the entry's file can be read. Changes nothing.
  struct Taken {
    LayerPoint point;
    int64_t rows = 0;  // 0: nothing
  };
  Taken WouldTake(std::span<const int32_t> tokens, const PrefixRules& rules,
                  const PrefixOwner& owner = {}) const;
  // Of a prompt, how many tokens at its beginning a complete dense run has left, in memory or on disk.
  // `layers`: the model's.
  int64_t DenseTokens(std::span<const int32_t> tokens, int layers, const PrefixOwner& owner = {}) const;
  // The entry that shares the most tokens with a prompt, whatever its point; of equal ones the deepest.
  struct Held {
    int64_t shared = 0;  // tokens in common; 0: there is no such entry
    int64_t tokens = 0;  // of the entry
    LayerPoint point = {};
    bool complete = true;
    bool in_memory = false;
  };
  Held MostHeld(std::span<const int32_t> tokens, const PrefixOwner& owner = {}) const;
  // As GoneEntries::Longest, of the entries that the cache let go.
  std::optional<GoneEntries::Match> WasHeld(std::span<const int32_t> tokens, int64_t above,
                                            const PrefixOwner& owner = {}) const;
  // Returns false if states of this size cannot be kept.
  bool Fits(int64_t bytes) const { return bytes <= options_.memory_bytes; }
  int64_t memory_limit() const { return options_.memory_bytes; }
  // Returns true if the cache should keep the prefix that a prompt of `tokens` tokens leaves at `point`.
  // `bytes`: the size of that prefix. `found`: what the prompt itself reused.
  bool Wants(int64_t tokens, int64_t bytes, LayerPoint point, const PrefixUse& found,
             const PrefixHint& hint = {}) const;
  void Put(std::shared_ptr<const PrefixState> state, const PrefixHint& hint = {});

  // Save writes one entry to a file of the caller's choosing: the entry with the longest common prefix with
  // the prompt. Restore adds the entry of such a file. Both throw Error, and leave the cache unchanged, if
  // there is no such entry or the file cannot be written or read, and Cancelled when `control` cancels.
  struct Saved {
    int64_t tokens = 0;
    int64_t bytes = 0;
  };
  // Refuses states of more than `most_bytes` before it writes anything.
  Saved Save(std::span<const int32_t> tokens, const std::string& path, const PrefixOwner& owner = {},
             int64_t most_bytes = INT64_MAX, const RunControl& control = {});
  // `latest`: the first choice of the method that will use the states. Refuses states at a later point, and
  // states whose owner has another key.
  Saved Restore(const std::string& path, LayerPoint latest = kNoPoint, uint64_t key = 0,
                const RunControl& control = {});
  // Forgets the entries whose tokens are a prefix of this prompt, and removes their files. Returns the number
  // of tokens of the longest such entry.
  int64_t Erase(std::span<const int32_t> tokens, const PrefixOwner& owner = {});

  // Writes the entries that have no file yet, and waits until all pending writes and removals are done.
  void Flush();
  // As Flush(), the most recently used entries first, but waits at most this long. Returns false if something
  // is still to be written.
  bool FlushWithin(std::chrono::milliseconds limit);
  DocumentCacheStats stats() const;

 private:
  struct Entry {
    uint64_t id = 0;    // for the listener
    bool told = false;  // the listener knows it
    PrefixOwner owner;
    std::vector<int32_t> tokens;  // empty for a file that this engine cannot use: only its size counts
    LayerPoint point;
    bool complete = true;
    // Where layers have states, the rows at which reuse can end; else nullopt: at any.
    std::optional<std::vector<int64_t>> checkpoints;
    std::shared_ptr<const PrefixState> state;  // null: only on disk
    std::string file;                          // empty: only in memory
    int64_t file_bytes = 0;
    DocumentWorth worth;
    bool queued = false;      // waits for the writer, or is being written
    bool loading = false;     // its file is being read
    bool unwritable = false;  // an attempt to write it failed
    bool forgotten = false;   // no longer in the list

    int64_t Reusable(int64_t rows) const;
    int64_t held_bytes() const { return state ? state->bytes() : 0; }
  };
  using EntryPtr = std::shared_ptr<Entry>;
  using Lock = std::unique_lock<std::mutex>;

  const PrefixFormat& Format();
  void ReadFolder();
  EntryPtr Best(std::span<const int32_t> tokens, const PrefixRules& rules, const PrefixOwner& owner,
                int64_t* rows) const;
  EntryPtr MostShared(std::span<const int32_t> tokens, const PrefixOwner& owner) const;
  // Returns the entry's states, read from its file if they are not in memory; null if reading fails. Releases
  // the lock while it reads.
  std::shared_ptr<const PrefixState> StateOf(const EntryPtr& entry, Lock& lock,
                                             const RunControl& control = {});
  void WaitWhileLoading(const Entry& entry, Lock& lock, const RunControl& control);
  PrefixState Read(const Entry& entry, const std::string& path, const RunControl& control) const;
  // `replaced_bytes`: of the entries in whose place it comes.
  void Insert(const EntryPtr& entry, int64_t replaced_bytes = 0);
  // `why` is remembered; without it, a newer entry replaces this one.
  void Forget(const EntryPtr& entry, std::optional<Gone> why = Gone::kMemory);
  void TellHeld(Entry& entry) noexcept;
  void TellMoved(const Entry& entry);
  bool CanWrite(const Entry& entry) const;
  void Queue(const EntryPtr& entry);
  void QueueUnwritten();
  void NoteError(const std::exception_ptr& error, const std::string& path) noexcept;
  EntryPtr LeastOf(const std::function<int64_t(const Entry&)>& held) const;
  void MakeRoomInMemory();
  void MakeRoomOnDisk(int64_t incoming);
  void Remove(std::string path) noexcept;
  void RemoveUnwanted(Lock& lock);
  bool IsWritten() const { return queue_.empty() && !writing_ && unwanted_.empty() && !removing_; }
  void AwaitWork(Lock& lock);
  void WriteQueued();
  void WriteEntry(const EntryPtr& entry, Lock& lock);
  std::string FileOf(const PrefixState& state) const;

  const DocumentCacheOptions options_;
  std::function<PrefixFormat()> make_format_;
  std::once_flag format_made_;
  PrefixFormat format_;

  std::mutex saving_;  // held during Save: two saves to one name would write the same file
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<EntryPtr> entries_;
  std::list<EntryPtr> queue_;  // to be written, in order
  std::vector<std::string>
      unwanted_;  // files that the writer removes, without the lock because removal is slow
  bool writing_ = false;
  bool removing_ = false;
  bool stopping_ = false;
  DocumentWorths worths_;
  uint64_t last_id_ = 0;
  mutable DocumentCacheStats stats_;
  GoneEntries gone_;
  std::thread writer_;  // last: it uses all of the above
};

}  // namespace coppice
