#include "kv/io_queue.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace coppice {
namespace {

TEST(IoQueue, AdvanceGoesOnUntilAllIsMoved) {
  Transfer t{.write = true, .bytes = 10};
  EXPECT_FALSE(Advance(t, 4));
  EXPECT_FALSE(Advance(t, -EINTR));
  EXPECT_FALSE(Advance(t, -EAGAIN));
  EXPECT_EQ(t.moved, 4);
  EXPECT_TRUE(Advance(t, 6));
  EXPECT_EQ(t.error, 0);
}

TEST(IoQueue, AdvanceEndsAtAnError) {
  Transfer full{.write = true, .bytes = 10};
  EXPECT_FALSE(Advance(full, 4));
  EXPECT_TRUE(Advance(full, -ENOSPC));
  EXPECT_EQ(full.error, ENOSPC);
  Transfer stuck{.write = true, .bytes = 10};
  EXPECT_TRUE(Advance(stuck, 0));
  EXPECT_EQ(stuck.error, EIO);
  Transfer cut{.bytes = 10};
  EXPECT_FALSE(Advance(cut, 9));
  EXPECT_TRUE(Advance(cut, 0));
  EXPECT_EQ(cut.error, kEndOfFile);
}

TEST(IoQueue, ListsAreFirstInFirstOut) {
  Transfer a, b, c;
  TransferList list;
  EXPECT_EQ(list.Pop(), nullptr);
  list.Push(a);
  list.Push(b);
  EXPECT_EQ(list.Pop(), &a);
  list.Push(c);
  EXPECT_EQ(list.Pop(), &b);
  EXPECT_EQ(list.Pop(), &c);
  EXPECT_TRUE(list.empty());
  list.Push(a);
  EXPECT_EQ(list.Pop(), &a);
}

TEST(IoQueue, TakesNothingWhereNothingIsUnderWay) {
  int error = 0;
  const std::unique_ptr<IoQueue> queues[] = {MakeThreadQueue(0), MakeSyncQueue(0), MakeUringQueue(0, error)};
  for (const auto& queue : queues) {
    if (queue == nullptr) continue;  // io_uring is not available here
    EXPECT_EQ(queue->Take(false), nullptr) << queue->kind();
    EXPECT_EQ(queue->Take(true), nullptr) << queue->kind();  // must not hang
  }
}

}  // namespace
}  // namespace coppice
