#include "server/text_stream.h"

#include <gtest/gtest.h>

#include <random>

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

// What TextStream must do, written plainly: every stop string is searched in all that was not sent.
class PlainStream {
 public:
  explicit PlainStream(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  std::string Push(const std::string& text) {
    held_ += text;
    size_t end = held_.size();
    for (const std::string& stop : stop_) {
      if (const size_t at = held_.find(stop); at < end) {
        end = at;
        by_ = stop;
      }
    }
    if (by_.empty()) {
      for (const std::string& stop : stop_) {
        for (size_t n = 1; n < stop.size() && n <= held_.size(); ++n) {
          if (held_.ends_with(stop.substr(0, n))) end = std::min(end, held_.size() - n);
        }
      }
    }
    std::string sent = held_.substr(0, end);
    held_.erase(0, end);
    return sent;
  }
  const std::string& by() const { return by_; }

 private:
  std::vector<std::string> stop_;
  std::string held_;
  std::string by_;
};

TEST(TextStream, AgreesWithAPlainSearch) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return random() % n; };
  const auto text = [&](size_t most) {
    std::string some;
    for (size_t i = below(most) + 1; i > 0; --i) some += "aab"[below(3)];
    return some;
  };
  size_t stopped = 0;
  for (int run = 0; run < 3000; ++run) {
    std::vector<std::string> stop(below(6));
    for (std::string& one : stop) one = text(7);
    TextStream stream(stop);
    PlainStream plain(stop);
    for (int i = 0; i < 8 && plain.by().empty(); ++i) {
      const std::string piece = text(5);
      ASSERT_EQ(stream.Push(piece), plain.Push(piece)) << testing::PrintToString(stop);
      ASSERT_EQ(stream.stopped_by(), plain.by()) << testing::PrintToString(stop);
      ASSERT_EQ(stream.stopped(), !plain.by().empty());
    }
    stopped += stream.stopped() ? 1 : 0;
  }
  EXPECT_GT(stopped, 500u);
  EXPECT_LT(stopped, 2900u);
}

TEST(TextStream, ThousandStopStrings) {
  std::vector<std::string> names;
  for (int i = 0; i < 1024; ++i) names.push_back("\nname" + std::to_string(i) + ":");
  bool stopped = false;
  EXPECT_EQ(Sent(names, {"a", "\nname10", "23", ": b"}, &stopped), "a||||");
  EXPECT_TRUE(stopped);
  EXPECT_EQ(Sent(names, {"a\nname", "1024:"}, &stopped), "a|\nname1024:|");
  EXPECT_FALSE(stopped);
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
