// The document cache's folder and files: what is read, written and removed, and by which thread.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <new>
#include <utility>

#include "base/error.h"
#include "engine/documents/document_cache.h"
#include "engine/documents/document_folder.h"

namespace coppice {

namespace {

// More than any disk holds. A sparse file may report up to 2^63 - 1 bytes, and the sum of two such sizes
// overflows.
constexpr uintmax_t kMostFileBytes = uintmax_t{1} << 50;

}  // namespace

void DocumentCache::ReadFolder() {
  const std::vector<std::string> paths = DocumentFilesIn(options_.folder);
  if (!paths.empty()) Format();  // outside the try block: errors of Format() are not file errors
  for (const std::string& path : paths) {
    auto entry = std::make_shared<Entry>();
    entry->file = path;
    try {
      PrefixHead head = ReadPrefixHead(path, Format());
      entry->owner = head.owner;
      entry->tokens = std::move(head.tokens);
      entry->point = head.point;
      entry->complete = head.complete;
      entry->file_bytes = head.file_bytes;
      entry->checkpoints = std::move(head.checkpoints);
    } catch (const Error&) {  // another engine's file, or damaged: evicted when its space is needed
      std::error_code gone;
      const uintmax_t bytes = std::filesystem::file_size(path, gone);
      if (gone) continue;
      entry->file_bytes = static_cast<int64_t>(std::min(bytes, kMostFileBytes));
    }
    Insert(entry);
  }
  MakeRoomOnDisk(0);
  Lock lock(mutex_);
  RemoveUnwanted(lock);
}

// Calls Pause() between short waits, because the thread that reads the file may need the turn that this
// thread holds.
void DocumentCache::WaitWhileLoading(const Entry& entry, Lock& lock, const RunControl& control) {
  while (entry.loading) {
    lock.unlock();
    control.Pause();
    lock.lock();
    if (entry.loading) changed_.wait_for(lock, std::chrono::milliseconds(10));
  }
}

PrefixState DocumentCache::Read(const Entry& entry, const std::string& path,
                                const RunControl& control) const {
  PrefixState state = ReadPrefixFile(path, format_, INT64_MAX, control);
  // The file's name encodes owner and tokens, but another file may have replaced it.
  if (state.tokens != entry.tokens || state.owner != entry.owner)
    throw Error("[documents] {}: was exchanged", path);
  MarkDocumentUsed(path);
  return state;
}

std::shared_ptr<const PrefixState> DocumentCache::StateOf(const EntryPtr& entry, Lock& lock,
                                                          const RunControl& control) {
  WaitWhileLoading(*entry, lock, control);  // one read serves all requests that wait for it
  if (entry->state || entry->file.empty()) return entry->state;
  const std::string path = entry->file;
  entry->loading = true;
  lock.unlock();
  std::shared_ptr<const PrefixState> state;
  std::exception_ptr error;
  bool is_cancelled = false;
  try {
    state = std::make_shared<const PrefixState>(Read(*entry, path, control));
  } catch (const Cancelled&) {
    is_cancelled = true;
  } catch (...) {  // any exception: other threads may be waiting until `loading` is false
    error = std::current_exception();
  }
  lock.lock();
  entry->loading = false;
  changed_.notify_all();
  if (is_cancelled) throw Cancelled();
  if (error) {
    if (!entry->forgotten) NoteError(error, path);  // else the cache itself removed the file
    Forget(entry, Gone::kDamaged);
    return nullptr;
  }
  entry->state = state;
  TellMoved(*entry);
  worths_.Use(entry->worth);
  MakeRoomInMemory();
  return state;
}

DocumentCache::Saved DocumentCache::Save(std::span<const int32_t> tokens, const std::string& path,
                                         const PrefixOwner& owner, int64_t most_bytes,
                                         const RunControl& control) {
  const PrefixFormat& format = Format();
  Lock lock(mutex_);
  const EntryPtr entry = MostShared(tokens, owner);
  const std::shared_ptr<const PrefixState> state = entry ? StateOf(entry, lock, control) : nullptr;
  if (!state) throw Error("[documents] {}: nothing of this prompt is in the document cache", path);
  lock.unlock();
  if (state->bytes() > most_bytes) {
    throw Error("[documents] {}: {} bytes are more than the {} that saved slots may still take", path,
                state->bytes(), most_bytes);
  }
  const std::lock_guard<std::mutex> one(saving_);
  WritePrefixFile(*state, format, path, control);
  return {state->rows(), state->bytes()};
}

DocumentCache::Saved DocumentCache::Restore(const std::string& path, LayerPoint latest, uint64_t key,
                                            const RunControl& control) {
  auto state =
      std::make_shared<const PrefixState>(ReadPrefixFile(path, Format(), options_.memory_bytes, control));
  if (state->owner.key != key) throw Error("[documents] {}: was saved with another API key", path);
  if (state->point > latest) {
    throw Error("[documents] {}: its states are those of layer {}, the method chooses from layer {} on", path,
                state->point.layer, latest.layer);
  }
  const Saved restored{state->rows(), state->bytes()};
  Put(std::move(state));
  return restored;
}

// ---- With the lock held

// The writer removes the file.
void DocumentCache::Remove(std::string path) noexcept {
  try {
    unwanted_.push_back(std::move(path));
    changed_.notify_all();
  } catch (const std::bad_alloc&) {
    unlink(path.c_str());
  }
}

// Releases the lock while it removes files.
void DocumentCache::RemoveUnwanted(Lock& lock) {
  const std::vector<std::string> paths = std::exchange(unwanted_, {});
  if (paths.empty()) return;
  removing_ = true;
  lock.unlock();
  for (const std::string& path : paths) unlink(path.c_str());
  lock.lock();
  removing_ = false;
  changed_.notify_all();
}

bool DocumentCache::CanWrite(const Entry& entry) const {
  return !options_.folder.empty() && !entry.unwritable && entry.held_bytes() <= options_.disk_bytes &&
         std::ssize(entry.tokens) >= options_.least_written;
}

void DocumentCache::Queue(const EntryPtr& entry) {
  queue_.push_back(entry);  // before `queued` is set: push_back may throw, and the entry is then not queued
  entry->queued = true;
  changed_.notify_all();
}

// The most recently used entries first: time may end before all are written.
void DocumentCache::QueueUnwritten() {
  std::vector<EntryPtr> unwritten;
  for (const EntryPtr& entry : entries_) {
    if (entry->state && entry->file.empty() && !entry->queued && CanWrite(*entry)) unwritten.push_back(entry);
  }
  std::ranges::sort(unwritten, std::ranges::greater(),
                    [](const EntryPtr& entry) { return entry->worth.used; });
  for (const EntryPtr& entry : unwritten) Queue(entry);
}

void DocumentCache::MakeRoomOnDisk(int64_t incoming) {
  int64_t held = incoming;
  for (const EntryPtr& entry : entries_) held += entry->file_bytes;
  while (held > options_.disk_bytes) {
    const EntryPtr victim = LeastOf(
        [](const Entry& entry) { return entry.file.empty() ? 0 : std::max<int64_t>(entry.file_bytes, 1); });
    if (!victim) return;
    held -= std::exchange(victim->file_bytes, 0);
    if (victim->state) {
      Remove(std::exchange(victim->file, {}));
    } else {
      Forget(victim, Gone::kDisk);
    }
  }
}

void DocumentCache::NoteError(const std::exception_ptr& error, const std::string& path) noexcept {
  ++stats_.errors;
  try {
    try {
      std::rethrow_exception(error);
    } catch (const std::bad_alloc&) {
      stats_.last_error = fmt::format("[documents] {}: no memory for its states", path);
    } catch (const std::exception& reason) {
      stats_.last_error = reason.what();
    }
  } catch (const std::bad_alloc&) {
    stats_.last_error = "no memory";
  }
  try {
    if (options_.on_error) options_.on_error(stats_.last_error);
  } catch (const std::exception&) {  // an error of the callback does not stop the cache
  }
}

// ---- Of the writer and those who wait for it

std::string DocumentCache::FileOf(const PrefixState& state) const {
  return fmt::format("{}/{:016x}-{:016x}-{:016x}-{}{}{}", options_.folder, format_.fingerprint.low,
                     ChecksumOf(std::as_bytes(std::span(&state.owner, 1))),
                     ChecksumOf(std::as_bytes(std::span(state.tokens))), state.point.layer,
                     state.point.after_attention ? "a" : "", kPrefixSuffix);
}

void DocumentCache::Flush() {
  Lock lock(mutex_);
  QueueUnwritten();
  changed_.wait(lock, [this] { return IsWritten(); });
}

bool DocumentCache::FlushWithin(std::chrono::milliseconds limit) {
  Lock lock(mutex_);
  QueueUnwritten();
  return changed_.wait_for(lock, limit, [this] { return IsWritten(); });
}

void DocumentCache::AwaitWork(Lock& lock) {
  const auto has_work = [this] { return stopping_ || !queue_.empty() || !unwanted_.empty(); };
  const bool when_idle = options_.write_when_idle.count() > 0 && !options_.folder.empty();
  if (!when_idle) return changed_.wait(lock, has_work);
  uint64_t used = worths_.uses();
  while (!changed_.wait_for(lock, options_.write_when_idle, has_work)) {
    if (std::exchange(used, worths_.uses()) != worths_.uses()) continue;
    try {
      QueueUnwritten();
    } catch (const std::bad_alloc&) {  // the next try may find memory
    }
  }
}

void DocumentCache::WriteQueued() {
  Lock lock(mutex_);
  for (;;) {
    AwaitWork(lock);
    RemoveUnwanted(lock);  // first: a new file may take the name of an unwanted one
    if (queue_.empty()) {
      if (stopping_) return;
      continue;
    }
    const EntryPtr entry = queue_.front();
    queue_.pop_front();
    writing_ = true;
    if (!entry->forgotten) WriteEntry(entry, lock);
    writing_ = false;
    changed_.notify_all();
  }
}

void DocumentCache::WriteEntry(const EntryPtr& entry, Lock& lock) {
  const std::shared_ptr<const PrefixState> state = entry->state;
  MakeRoomOnDisk(state->bytes());
  RemoveUnwanted(lock);
  lock.unlock();
  std::string path;
  std::exception_ptr error;
  int64_t bytes = 0;
  try {
    const PrefixFormat& format = Format();
    path = FileOf(*state);
    WritePrefixFile(*state, format, path);
    std::error_code gone;
    bytes = static_cast<int64_t>(std::filesystem::file_size(path, gone));
    if (gone) throw Error("[documents] {}: is gone again", path);
  } catch (...) {  // any exception, bad_alloc too: the writer thread must continue
    error = std::current_exception();
  }
  lock.lock();
  entry->queued = false;
  if (error) {
    entry->unwritable = true;
    NoteError(error, path);
  } else if (entry->forgotten) {
    Remove(std::move(path));
  } else {
    entry->file = std::move(path);
    entry->file_bytes = bytes;
  }
  try {
    MakeRoomInMemory();
  } catch (const std::bad_alloc&) {  // the next insertion makes room
  }
}

}  // namespace coppice
