#include "server/text_stream.h"

#include <gtest/gtest.h>

#include "server/http/sse.h"

namespace coppice {
namespace {

// The text that is sent, piece by piece, with | where a piece ends.
std::string Sent(const std::vector<std::string>& stop, const std::vector<std::string>& pieces,
                 bool* stopped = nullptr) {
  TextStream stream(stop);
  std::string text;
  for (const std::string& piece : pieces) text += stream.Push(piece) + "|";
  text += stream.Flush();
  if (stopped != nullptr) *stopped = stream.stopped();
  return text;
}

TEST(TextStream, SendsWholeCharacters) {
  EXPECT_EQ(Sent({}, {"a", "\xe2\x82", "\xac", "b"}), "a||\xe2\x82\xac|b|");
  EXPECT_EQ(Sent({}, {"a", "\xe2\x82"}), "a||\xef\xbf\xbd");  // cut at the end
}

TEST(TextStream, StopsAndHoldsBackWhatMayBecomeAStop) {
  bool stopped = false;
  EXPECT_EQ(Sent({"END"}, {"one E", "N", "D two"}, &stopped), "one |||");
  EXPECT_TRUE(stopped);
  EXPECT_EQ(Sent({"END"}, {"one E", "N", "X"}, &stopped), "one ||ENX|");
  EXPECT_FALSE(stopped);
  EXPECT_EQ(Sent({"END"}, {"EN"}, &stopped), "|EN");
  EXPECT_FALSE(stopped);
  // The earliest stop wins, whichever it is; an end that begins two of them is held for the longer.
  EXPECT_EQ(Sent({"\n\n", "b"}, {"ab\n\n"}), "a|");
  EXPECT_EQ(Sent({"aab", "ac"}, {"xaa", "c"}), "x|a|");
}

TEST(TextStream, NeverCutsACharacterOfAHeldEnd) {
  // The stop string's first two bytes are those of another character: what is held begins where it does.
  EXPECT_EQ(Sent({"\xe2\x82\xac!"}, {"a\xe2\x82\xac", "?"}), "a|\xe2\x82\xac?|");
  EXPECT_EQ(Sent({"\xe2\x82\xac"}, {"\xe2\x82\xaa"}), "\xe2\x82\xaa|");
}

TEST(TextStream, CountsCharacters) {
  EXPECT_EQ(CountCharacters("a\xe2\x82\xac"), 2u);
  EXPECT_EQ(CountCharacters("\x82\xac"), 0u);  // the rest of one that began before
  EXPECT_TRUE(IsWholeUtf8("a\xe2\x82\xac"));
  EXPECT_FALSE(IsWholeUtf8("\xe2\x82"));
}

TEST(Sse, EventsAreOneLine) {
  EXPECT_EQ(SseEvent({{"text", "a\nb\r\n\xff"}}), "data: {\"text\":\"a\\nb\\r\\n\xef\xbf\xbd\"}\n\n");
}

}  // namespace
}  // namespace coppice
