#include "kv/cold_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/error.h"
#include "kv/cold_file.h"

namespace coppice {

namespace {

constexpr size_t kSpareBuffers =
    16;  // kept for the next transfers: fresh memory costs a page fault per 4 KiB

std::string Reason(int error) {
  switch (error) {
    case kEndOfFile:
      return "the file ends before the record: it was cut";
    case ENOSPC:
      return "no space left";
    case EDQUOT:
      return "the disk quota is used up";
    case EFBIG:
      return "the file would grow past the limit on file sizes";
    case EIO:
      return "the device reports an input or output error";
    default:
      return std::generic_category().message(error);
  }
}

using Buffer = std::unique_ptr<std::byte[]>;

struct Operation : Transfer {
  int64_t slot = 0;
  Buffer buffer;  // empty if a read goes directly to its final place
  bool done = false;
};

// The queue holds at most one transfer per slot: a write waits for the slot's earlier write and read, and a
// read of a slot that is being written copies from the writer's buffer.
class ColdFile final : public RecordStore {
 public:
  ColdFile(ColdFileParts parts, int64_t record_bytes)
      : record_bytes_(record_bytes),
        staging_bytes_(parts.staging_bytes),
        folder_(std::move(parts.folder)),
        file_(std::move(parts.file)),
        queue_(std::move(parts.queue)) {
    COPPICE_CHECK(record_bytes > 0 && queue_ != nullptr);
    spare_.reserve(kSpareBuffers);
  }

  std::byte* Stage(int64_t count) override {
    COPPICE_CHECK(count > 0);
    staged_records_.resize(static_cast<size_t>(count) * RecordSize());
    return staged_records_.data();
  }
  void Write(std::span<const int64_t> slots) override {
    COPPICE_CHECK(slots.size() * RecordSize() == staged_records_.size());
    for (size_t i = 0; i < slots.size(); ++i)
      WriteOne(slots[i], std::span(staged_records_).subspan(i * RecordSize(), RecordSize()));
  }
  void Prefetch(std::span<const int64_t> slots) override {
    for (const int64_t slot : slots) PrefetchOne(slot);
  }
  const std::byte* Read(std::span<const int64_t> slots) override {
    read_records_.resize(slots.size() * RecordSize());
    for (size_t i = 0; i < slots.size(); ++i)
      ReadOne(slots[i], std::span(read_records_).subspan(i * RecordSize(), RecordSize()));
    return read_records_.data();
  }

  void Flush() override {
    while (!writes_.empty()) SettleOne(true);
    Settle();
  }

  int64_t record_bytes() const override { return record_bytes_; }
  std::string_view kind() const override { return queue_->kind(); }

 private:
  size_t RecordSize() const { return static_cast<size_t>(record_bytes_); }

  void WriteOne(int64_t slot, std::span<const std::byte> record) {
    COPPICE_CHECK(slot >= 0);
    Settle();
    const int64_t offset = OffsetOf(slot);
    while (writes_.contains(slot)) SettleOne(true);
    DropPrefetch(slot);
    while (staged_ + record_bytes_ > staging_bytes_ && !writes_.empty()) SettleOne(true);
    ThrowIfBroken();
    Buffer buffer = TakeBuffer();
    std::memcpy(buffer.get(), record.data(), record.size());
    written_.insert(slot);
    Operation& op = writes_[slot];
    op.write = true;
    op.buffer = std::move(buffer);
    staged_ += record_bytes_;
    Begin(op, slot, offset, op.buffer.get());
    Settle();
  }

  void PrefetchOne(int64_t slot) {
    Settle();
    COPPICE_CHECK(written_.contains(slot));
    if (reads_.contains(slot)) return;
    Buffer buffer = TakeBuffer();
    Operation& op = reads_[slot];
    op.buffer = std::move(buffer);
    if (const auto writing = writes_.find(slot); writing != writes_.end()) {
      std::memcpy(op.buffer.get(), writing->second.buffer.get(), RecordSize());
      op.done = true;
    } else {
      Begin(op, slot, OffsetOf(slot), op.buffer.get());
    }
    Settle();
  }

  void ReadOne(int64_t slot, std::span<std::byte> record) {
    Settle();
    COPPICE_CHECK(written_.contains(slot));
    if (const auto read = reads_.find(slot); read != reads_.end()) {
      while (!read->second.done) SettleOne(true);
      ThrowIfBroken();
      std::memcpy(record.data(), read->second.buffer.get(), RecordSize());
      Recycle(std::move(read->second.buffer));
      reads_.erase(read);
    } else if (const auto writing = writes_.find(slot); writing != writes_.end()) {
      std::memcpy(record.data(), writing->second.buffer.get(), RecordSize());
    } else {
      Operation& op = reads_[slot];
      Begin(op, slot, OffsetOf(slot), record.data());
      while (!op.done)
        SettleOne(true);  // even if the store is broken: the kernel still writes to this memory
      reads_.erase(slot);
      ThrowIfBroken();
    }
  }

  int64_t OffsetOf(int64_t slot) const {
    const auto records = CheckedAdd<int64_t>(slot, 1);
    const auto end = records ? CheckedMul(*records, record_bytes_) : records;
    if (!end)
      throw Error("[cold tier] {}: record {} of {} bytes: {}", folder_, slot, record_bytes_, Reason(EFBIG));
    return *end - record_bytes_;
  }

  void Begin(Operation& op, int64_t slot, int64_t offset, std::byte* data) {
    op.slot = slot;
    op.data = data;
    op.bytes = record_bytes_;
    op.offset = offset;
    queue_->Submit(op);
  }

  // Takes back every transfer that has ended. Throws the first error of any transfer so far.
  void Settle() {
    while (SettleOne(false)) {
    }
    ThrowIfBroken();
  }

  // Takes back one transfer. With `wait`, at least one must be under way.
  bool SettleOne(bool wait) {
    Transfer* t = queue_->Take(wait);
    COPPICE_CHECK(t != nullptr || !wait);
    if (t == nullptr) return false;
    Operation& op = static_cast<Operation&>(*t);
    op.done = true;
    if (op.error != 0 && broken_.empty())
      broken_ = (op.write ? "cannot write: " : "cannot read: ") + Reason(op.error);
    if (op.write) {
      staged_ -= record_bytes_;
      Recycle(std::move(op.buffer));
      writes_.erase(op.slot);
    }
    return true;
  }

  void ThrowIfBroken() const {
    if (!broken_.empty()) throw Error("[cold tier] {}: {}", folder_, broken_);
  }

  // Discards data prefetched from a slot that is about to be overwritten.
  void DropPrefetch(int64_t slot) {
    const auto read = reads_.find(slot);
    if (read == reads_.end()) return;
    while (!read->second.done) SettleOne(true);
    Recycle(std::move(read->second.buffer));
    reads_.erase(read);
  }

  Buffer TakeBuffer() {
    if (spare_.empty()) return std::make_unique_for_overwrite<std::byte[]>(RecordSize());
    Buffer buffer = std::move(spare_.back());
    spare_.pop_back();
    return buffer;
  }
  void Recycle(Buffer buffer) {
    if (buffer != nullptr && spare_.size() < kSpareBuffers) spare_.push_back(std::move(buffer));
  }

  int64_t record_bytes_;
  int64_t staging_bytes_;
  std::string folder_;
  std::string broken_;  // the first error
  std::vector<std::byte> staged_records_;
  std::vector<std::byte> read_records_;
  std::vector<Buffer> spare_;
  std::unordered_set<int64_t> written_;            // slots
  std::unordered_map<int64_t, Operation> writes_;  // by slot; under way
  std::unordered_map<int64_t, Operation> reads_;   // by slot; under way or prefetched
  int64_t staged_ = 0;                             // bytes in writes_
  FileHandle file_;
  // Last, so destroyed first: it waits for transfers that use the members above.
  std::unique_ptr<IoQueue> queue_;
};

}  // namespace

std::string ColdFolderOf(const ColdOptions& options) {
  if (!options.folder.empty()) return options.folder;
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != 0 ? folder : "/var/tmp";
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) close(fd_);
}

FileHandle OpenUnnamedFile(const std::string& folder, bool by_name) {
  if (!by_name) {
    FileHandle file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (file.get() >= 0) return file;
    // open(2): the errors of a file system or a kernel without O_TMPFILE.
    if (errno == EOPNOTSUPP || errno == EISDIR) return OpenUnnamedFile(folder, true);
  } else {
    std::string path = folder + "/coppice-cold-XXXXXX";
    FileHandle file(mkostemp(path.data(), O_CLOEXEC));
    if (file.get() >= 0) {
      unlink(path.c_str());
      return file;
    }
  }
  throw Error("[cold tier] {}: cannot make a file: {}", folder, Reason(errno));
}

std::unique_ptr<IoQueue> MakeIoQueue(ColdIo io, int fd, const std::string& folder) {
  std::unique_ptr<IoQueue> queue;
  if (io == ColdIo::kUring || io == ColdIo::kAuto) {
    int error = 0;
    queue = MakeUringQueue(fd, error);
    if (queue == nullptr && io == ColdIo::kUring) {
      throw Error("[cold tier] {}: the kernel does not allow io_uring: {}", folder, Reason(error));
    }
  }
  if (queue == nullptr && (io == ColdIo::kThreads || io == ColdIo::kAuto)) {
    queue = MakeThreadQueue(fd);
    if (queue == nullptr && io == ColdIo::kThreads)
      throw Error("[cold tier] {}: cannot start a thread", folder);
  }
  return queue != nullptr ? std::move(queue) : MakeSyncQueue(fd);
}

std::unique_ptr<RecordStore> MakeColdFile(ColdFileParts parts, int64_t record_bytes) {
  return std::make_unique<ColdFile>(std::move(parts), record_bytes);
}

std::unique_ptr<RecordStore> OpenColdFile(const ColdOptions& options, int64_t record_bytes) {
  const std::string folder = ColdFolderOf(options);
  FileHandle file = OpenUnnamedFile(folder, false);
  std::unique_ptr<IoQueue> queue = MakeIoQueue(options.io, file.get(), folder);
  return MakeColdFile({.file = std::move(file), .queue = std::move(queue), .folder = folder}, record_bytes);
}

std::unique_ptr<RecordStore> OpenColdTier(const ColdOptions& options, int64_t record_bytes,
                                          DeviceMemory* memory) {
  if (memory != nullptr && options.folder.empty() && options.io == ColdIo::kAuto) {
    if (std::unique_ptr<RecordStore> store = memory->OpenRecordStore(record_bytes)) return store;
  }
  return OpenColdFile(options, record_bytes);
}

}  // namespace coppice
