// What a reply tells of the tokens that its prompt reused: texts, JSON, the log's line, and the counters.
#include "server/reuse_watch.h"

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "server/metrics.h"

namespace coppice {
namespace {

// A token for each byte below 256; 256 is a word, 257 a very long one, 258 a control token.
class Bytes final : public Tokenizer {
 public:
  std::string_view kind() const override { return "bpe"; }
  int32_t vocab_size() const override { return 259; }
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  std::vector<size_t> ControlStarts(std::string_view) const override { return {}; }
  std::string Piece(int32_t id, bool special) const override {
    if (id == 256) return "word";
    if (id == 257) return std::string(1000, 'x');
    if (id == 258) return special ? "<|end|>" : "";
    return std::string(1, static_cast<char>(id));
  }
  std::string Decode(std::span<const int32_t>, bool) const override { return {}; }
  std::optional<int32_t> bos() const override { return {}; }
  std::optional<int32_t> eos() const override { return {}; }
  bool EndsGeneration(int32_t) const override { return false; }
  bool IsControl(int32_t id) const override { return id == 258; }
  std::optional<int32_t> Find(std::string_view) const override { return {}; }
  const std::string& chat_template() const override { return none_; }
  void SetChatTemplate(std::string) override {}

 private:
  std::string none_;
};

std::string Around(std::vector<int32_t> ids, int64_t at) { return TextAround(Bytes(), ids, at); }

TEST(TextAround, EightTokensBeforeAndSixteenFromThere) {
  const std::vector<int32_t> ids = Bytes().Encode("0123456789abcdefghijklmnopqrstuvwxyz", {});
  EXPECT_EQ(Around(ids, 10), "23456789abcdefghijklmnop");
  EXPECT_EQ(Around(ids, 0), "0123456789abcdef");
  EXPECT_EQ(Around(ids, 3), "0123456789abcdefghi");
  EXPECT_EQ(Around(ids, 35), "rstuvwxyz");
  EXPECT_EQ(Around(ids, 36), "stuvwxyz");
  EXPECT_EQ(Around({}, 0), "");
  EXPECT_EQ(Around({65, 258, 66}, 1), "A<|end|>B");
}

TEST(TextAround, WholeCharactersAndFewBytes) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) {
    for (const char c : std::string("€")) ids.push_back(static_cast<unsigned char>(c));
  }
  for (int64_t at = 0; at <= std::ssize(ids); ++at) {
    const std::string text = Around(ids, at);
    EXPECT_TRUE(IsUtf8(text)) << at;
    EXPECT_EQ(text.find("\xef\xbf\xbd"), text.npos) << at << ": a character was split";
  }
  EXPECT_TRUE(IsUtf8(Around({0xff, 0xfe, 65}, 1)));
  const std::string large = Around(std::vector<int32_t>(40, 257), 20);
  EXPECT_LE(large.size(), 256U);
  std::vector<int32_t> mixed(20, 257);
  mixed[8] = 256;
  EXPECT_NE(Around(mixed, 8).find("word"), std::string::npos) << "the token itself is shown";
}

ReuseReport Report(ReuseReason reason) {
  ReuseReport report{.cause = {.reason = reason, .shared = 456}, .prompt_tokens = 1000, .cached_tokens = 123};
  if (reason == ReuseReason::kOff) return report;
  report.cause.earlier = EarlierPrompt{.request = "chatcmpl-1",
                                       .tokens = std::make_shared<const std::vector<int32_t>>(900),
                                       .prompt_tokens = 880};
  report.cause.differs_at = 456;
  report.earlier = "cch=\"1\"\n";
  report.now = "cch=\"2\"\n";
  report.seconds_since = 1.23456;
  return report;
}

TEST(ReuseJson, SaysWhereThePromptsDiffer) {
  ReuseReport report = Report(ReuseReason::kDiffers);
  report.cause.entry =
      DocumentCache::Held{.shared = 456, .tokens = 880, .point = {3, true}, .in_memory = true};
  EXPECT_EQ(ReuseJson(report).dump(),
            R"({"cached_tokens":123,"shared_tokens":456,"reason":"differs","differs_at":456,)"
            R"("earlier":"cch=\"1\"\n","now":"cch=\"2\"\n","request":{"id":"chatcmpl-1","prompt_tokens":880,)"
            R"("answer_tokens":20,"seconds_ago":1.235},)"
            R"("entry":{"tokens":880,"layers":4,"complete":true,"in":"memory"}})");
  EXPECT_EQ(ReuseNote(report), " cache=123/456 reason=differs");
}

TEST(ReuseJson, SaysWhyAnEntryIsNotThere) {
  const auto entry = [](const ReuseReport& report) { return ReuseJson(report)["entry"].dump(); };
  ReuseReport gone = Report(ReuseReason::kEvicted);
  EXPECT_EQ(entry(gone), R"({"tokens":0,"gone":"unknown"})");
  const std::pair<Gone, const char*> whys[] = {{Gone::kMemory, "memory"},
                                               {Gone::kDisk, "disk"},
                                               {Gone::kErased, "erased"},
                                               {Gone::kDamaged, "damaged"}};
  for (const auto& [why, name] : whys) {
    gone.cause.gone = GoneEntries::Match{why, 400};
    EXPECT_EQ(ReuseJson(gone)["entry"], nlohmann::ordered_json({{"tokens", 400}, {"gone", name}}));
  }
  ReuseReport missing = Report(ReuseReason::kNotKept);
  const std::pair<NotKept, const char*> causes[] = {
      {NotKept::kReading, "being_read"},    {NotKept::kCancelled, "cancelled"},
      {NotKept::kFewNew, "few_new_tokens"}, {NotKept::kTooLarge, "too_large"},
      {NotKept::kMethod, "method"},         {NotKept::kAnswer, "answer"}};
  for (const auto& [why, name] : causes) {
    missing.cause.why = why;
    EXPECT_EQ(ReuseJson(missing)["entry"], nlohmann::ordered_json({{"not_kept", name}}));
  }
  EXPECT_EQ(ReuseJson(Report(ReuseReason::kOff)).dump(),
            R"({"cached_tokens":123,"shared_tokens":456,"reason":"off"})");
}

TEST(ReuseMetrics, AreCountedByReason) {
  Metrics metrics({7, 8});
  metrics.CountReuse(7, ReuseReason::kDiffers, 700);
  metrics.CountReuse(8, ReuseReason::kDiffers, 30);
  metrics.CountReuse(7, ReuseReason::kOff, 5);
  const std::string text = metrics.Text({});
  EXPECT_NE(text.find("coppice_prompts_total{reason=\"differs\"} 2\n"), text.npos) << text;
  EXPECT_NE(text.find("coppice_prompts_total{reason=\"first\"} 0\n"), text.npos);
  EXPECT_NE(text.find("coppice_prompt_tokens_computed_total{reason=\"differs\"} 730\n"), text.npos);
  EXPECT_NE(text.find("coppice_prompt_tokens_computed_total{reason=\"off\"} 5\n"), text.npos);
  const std::string of_one = metrics.TextOf(8, {});
  EXPECT_NE(of_one.find("coppice_prompt_tokens_computed_total{reason=\"differs\"} 30\n"), text.npos);
  EXPECT_NE(of_one.find("coppice_prompt_tokens_computed_total{reason=\"off\"} 0\n"), text.npos);
  EXPECT_EQ(of_one.find("connections"), text.npos) << "what the server holds";
}

}  // namespace
}  // namespace coppice
