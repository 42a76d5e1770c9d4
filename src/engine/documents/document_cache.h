// The document cache: prefixes (model/prefix.h) of earlier prompts, in memory first, then on disk.
//
// A prompt takes over from the entry that saves it the most: the longest beginning in common, times the
// layers that the entry's point lies above. Any length will do, so turns of a conversation and questions
// about one document find each other without being declared. Entries do not belong to a method: what a dense
// run left serves nobody but dense runs, because no hidden states were kept, and what a pruned run left
// serves every run whose first choice is not earlier.
//
// Entries have an owner, and only requests of the same owner ever learn of them: whether a text was taken
// over shows in a request's time and in the number of cached tokens, so a shared cache would tell one client,
// token by token, what another one asked.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "model/prefix.h"
#include "model/prefix_file.h"

namespace coppice {

struct DocumentCacheOptions {
  int64_t memory_bytes = int64_t{4} << 30;  // what is used least leaves first
  std::string folder = {};                  // where it goes then; empty: it is gone
  int64_t disk_bytes = int64_t{16} << 30;   // of the files in `folder`, those of other models too
  int64_t least_taken = 64;                 // fewer tokens in common are computed again
  int64_t least_new = 256;  // minimum number of new tokens before a longer prefix gets its own entry
  // Gets each error of a file; called under the cache's lock, so it must be quick and must not call the
  // cache.
  std::function<void(const std::string&)> on_error = {};
};

struct DocumentCacheStats {
  int64_t entries = 0;
  int64_t memory_bytes = 0;
  int64_t disk_bytes = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t tokens_taken = 0;
  int64_t errors = 0;      // of files that could not be written or were not used
  std::string last_error;  // of a file that could not be written or was not used; empty where none
};

// Thread-safe. One lock guards the list of entries and is never held while a file is read or written.
class DocumentCache {
 public:
  // `format` is asked once, when the first file is written or read: it may read the whole model. Throws Error
  // where the folder cannot be used.
  DocumentCache(DocumentCacheOptions options, std::function<PrefixFormat()> format);
  // Writes what the folder lacks.
  ~DocumentCache();
  DocumentCache(const DocumentCache&) = delete;
  DocumentCache& operator=(const DocumentCache&) = delete;

  // What a prompt may take over. Reads a file where the entry is on disk alone; one that cannot be used is
  // forgotten. While it reads, or waits for another thread that reads the same file, it pauses and can be
  // cancelled.
  PrefixUse Find(std::span<const int32_t> tokens, const PrefixRules& rules, const PrefixOwner& owner = {},
                 const RunControl& control = {});
  // Whether the prefix of `bytes` that a prompt of `tokens` tokens would leave at `point` is worth keeping.
  bool Wants(int64_t tokens, int64_t bytes, LayerPoint point, const PrefixUse& found) const;
  void Put(std::shared_ptr<const PrefixState> state);

  // One entry as a file of the caller's choosing: of the entries that share tokens with the prompt, the one
  // that shares most. Throw Error, the cache as it was, where there is none, and where the file cannot be
  // written or read.
  struct Saved {
    int64_t tokens = 0;
    int64_t bytes = 0;
  };
  // `most_bytes`: larger states are refused before anything is written.
  Saved Save(std::span<const int32_t> tokens, const std::string& path, const PrefixOwner& owner = {},
             int64_t most_bytes = INT64_MAX);
  // `latest`: the first choice of the method that the states shall serve; states from behind it are refused,
  // and so are those whose owner has another key.
  Saved Restore(const std::string& path, LayerPoint latest = kNoPoint, uint64_t key = 0);
  // Forgets the entries that hold nothing but tokens of this prompt, and removes their files. Returns the
  // number of tokens of the longest one.
  int64_t Erase(std::span<const int32_t> tokens, const PrefixOwner& owner = {});

  // Waits until the folder has what it is to have, and no more.
  void Flush();
  DocumentCacheStats stats() const;

 private:
  struct Entry {
    PrefixOwner owner;
    std::vector<int32_t> tokens;  // empty for a file of another engine, which only counts
    LayerPoint point;
    bool complete = true;
    std::shared_ptr<const PrefixState> state;  // null: on disk alone
    std::string file;                          // empty: in memory alone
    int64_t file_bytes = 0;
    uint64_t used = 0;        // when, by clock_
    bool queued = false;      // for the writer, or in its hands
    bool loading = false;     // its file is being read
    bool unwritable = false;  // it was tried
    bool forgotten = false;   // no longer in the list

    int64_t held_bytes() const { return state ? state->bytes() : 0; }
  };
  using EntryPtr = std::shared_ptr<Entry>;
  using Lock = std::unique_lock<std::mutex>;

  const PrefixFormat& Format();
  void ReadFolder();
  EntryPtr Best(std::span<const int32_t> tokens, const PrefixRules& rules, const PrefixOwner& owner,
                int64_t* rows) const;
  EntryPtr MostShared(std::span<const int32_t> tokens, const PrefixOwner& owner) const;
  // The entry's states, from its file where they are not in memory; null where they cannot be had. Gives the
  // lock up while it reads.
  std::shared_ptr<const PrefixState> StateOf(const EntryPtr& entry, Lock& lock,
                                             const RunControl& control = {});
  void WaitWhileLoading(const Entry& entry, Lock& lock, const RunControl& control);
  PrefixState Read(const Entry& entry, const std::string& path, const RunControl& control) const;
  void Touch(Entry& entry);
  void Insert(const EntryPtr& entry);
  void Forget(const EntryPtr& entry);
  bool CanWrite(const Entry& entry) const;
  void Queue(const EntryPtr& entry);
  void NoteError(const std::exception_ptr& error, const std::string& path) noexcept;
  void MakeRoomInMemory();
  void MakeRoomOnDisk(int64_t incoming);
  void Remove(std::string path) noexcept;
  void RemoveUnwanted(Lock& lock);
  bool IsWritten() const { return queue_.empty() && !writing_ && unwanted_.empty() && !removing_; }
  void WriteQueued();
  void WriteEntry(const EntryPtr& entry, Lock& lock);
  std::string FileOf(const PrefixState& state) const;

  const DocumentCacheOptions options_;
  std::function<PrefixFormat()> make_format_;
  std::once_flag format_made_;
  PrefixFormat format_;

  std::mutex saving_;  // two saves under one name would write into one file
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<EntryPtr> entries_;
  std::list<EntryPtr> queue_;  // to be written, in order
  std::vector<std::string>
      unwanted_;  // files that the writer removes: that takes long, so not under the lock
  bool writing_ = false;
  bool removing_ = false;
  bool stopping_ = false;
  uint64_t clock_ = 0;
  mutable DocumentCacheStats stats_;
  std::thread writer_;  // last: it uses all of the above
};

}  // namespace coppice
