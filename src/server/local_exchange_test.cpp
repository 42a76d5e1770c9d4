#include "server/local_exchange.h"

#include <gtest/gtest.h>

#include <thread>

namespace coppice {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kReplyWait{60'000};

TEST(LocalExchange, AReplyIsItsBodyAndStatus) {
  LocalExchange exchange;
  EXPECT_FALSE(exchange.Take(milliseconds(1)).ended);
  exchange.Reply({.status = 404, .body = "{}"});
  exchange.Send("data: late\n\n");
  const LocalExchange::Piece piece = exchange.Take(kReplyWait);
  EXPECT_EQ(piece.bytes, "{}");
  EXPECT_TRUE(piece.ended);
  EXPECT_EQ(exchange.status(), 404);
}

TEST(LocalExchange, AStreamComesInPiecesAndAnErrorIsItsLastEvent) {
  LocalExchange exchange;
  std::thread sender([&exchange] {
    exchange.Send("data: 1\n\n");
    exchange.Send("data: 2\n\n");
    exchange.Reply({.status = 500, .body = "{\"error\": 1}"});
  });
  std::string all;
  for (bool ended = false; !ended;) {
    const LocalExchange::Piece piece = exchange.Take(kReplyWait);
    all += piece.bytes;
    ended = piece.ended;
  }
  sender.join();
  EXPECT_EQ(all, "data: 1\n\ndata: 2\n\ndata: {\"error\": 1}\n\n");
  EXPECT_EQ(exchange.status(), 200);
}

TEST(LocalExchange, TheEventsOfAnErrorThatHasItsOwnAreTaken) {
  LocalExchange exchange;
  exchange.Send("data: 1\n\n");
  exchange.Reply({.status = 500, .body = "{}", .last_events = "event: error\ndata: {}\n\n"});
  EXPECT_EQ(exchange.Take(kReplyWait).bytes, "data: 1\n\nevent: error\ndata: {}\n\n");
}

TEST(LocalExchange, CancellingTellsTheServerOnceAndDropsTheRest) {
  LocalExchange exchange;
  int gone = 0;
  exchange.OnGone([&gone] { ++gone; });
  exchange.Send("data: 1\n\n");
  EXPECT_FALSE(*exchange.cancelled());
  exchange.Cancel();
  exchange.Cancel();
  EXPECT_TRUE(*exchange.cancelled());
  EXPECT_EQ(gone, 1);
  exchange.OnGone([&gone] { ++gone; });  // at once
  EXPECT_EQ(gone, 2);
  const LocalExchange::Piece piece = exchange.Take(kReplyWait);
  EXPECT_TRUE(piece.ended);
  EXPECT_EQ(piece.bytes, "");
  EXPECT_EQ(exchange.status(), 499);
}

TEST(LocalExchange, CancellingAnAnsweredRequestDoesNothing) {
  LocalExchange exchange;
  int gone = 0;
  exchange.OnGone([&gone] { ++gone; });
  exchange.Reply({.status = 200, .body = "{}"});
  exchange.Cancel();
  EXPECT_EQ(gone, 0);
  EXPECT_EQ(exchange.Take(kReplyWait).bytes, "{}");
  EXPECT_EQ(exchange.status(), 200);
}

}  // namespace
}  // namespace coppice
