// Why a prompt reused as much of the document cache as it did: each reason, and what is said with it.
#include "engine/documents/reuse_reason.h"

#include <gtest/gtest.h>

#include "engine/documents/document_test_support.h"

namespace coppice::document_test::reuse_reason_test {
namespace {

// A client that sends prompts to a cache: what ReuseWatch (server/reuse_watch.h) does, without a model.
struct Client {
  std::unique_ptr<DocumentCache> cache = Make();
  PromptHistory history{{}};
  PrefixOwner owner = {};
  LayerPoint point = kDense;
  int64_t cached = 0;
  bool keeps = true;             // the prompt leaves an entry
  NotKept why = NotKept::kKept;  // said of a prompt that leaves none
  bool ends = true;

  ReuseCause Ask(const Ids& prompt, const Ids& answer = {}) {
    const PromptSketch sketch(prompt);
    cached = cache->Find(prompt, {.point = point, .tail = 1}, owner).rows;
    ReuseCause cause = CauseOf(prompt, cached, history.Compare(prompt, sketch, owner), *cache, owner);
    const uint64_t number = history.Add(owner, {.request = "r",
                                                .tokens = std::make_shared<const Ids>(prompt),
                                                .prompt_tokens = std::ssize(prompt),
                                                .read = {},
                                                .sketch = sketch});
    if (keeps) cache->Put(StateOf(prompt, point, true, owner));
    if (ends) history.End(number, owner, answer, cache->MostHeld(prompt, owner).shared, why);
    return cause;
  }
};

TEST(ReuseReason, NamesAreInOrder) {
  EXPECT_EQ(NameOf(ReuseReason::kOff), "off");
  EXPECT_EQ(NameOf(ReuseReason::kFirst), "first");
  EXPECT_EQ(NameOf(ReuseReason::kContinued), "continued");
  EXPECT_EQ(NameOf(ReuseReason::kDiffers), "differs");
  EXPECT_EQ(NameOf(ReuseReason::kEvicted), "evicted");
  EXPECT_EQ(NameOf(ReuseReason::kNotKept), "not_kept");
  EXPECT_EQ(NameOf(ReuseReason::kPruned), "pruned");
}

TEST(ReuseReason, TurnsOfAConversation) {
  Client client;
  const Ids prompt = Random(1, 400);
  const Ids answer = Random(2, 20);
  ReuseCause cause = client.Ask(prompt, answer);
  EXPECT_EQ(cause.reason, ReuseReason::kFirst);
  EXPECT_EQ(cause.shared, 0);
  EXPECT_FALSE(cause.earlier);
  const Ids next = Joined(Joined(prompt, answer), Random(3, 30));
  cause = client.Ask(next);
  EXPECT_EQ(cause.reason, ReuseReason::kContinued);
  EXPECT_EQ(client.cached, 400);
  EXPECT_EQ(cause.shared, 420);
  EXPECT_FALSE(cause.differs_at);
  EXPECT_EQ(cause.entry->tokens, 400);
  EXPECT_EQ(cause.earlier->size(), 420);
  cause = client.Ask(next);  // once more
  EXPECT_EQ(cause.reason, ReuseReason::kContinued);
  EXPECT_EQ(client.cached, 449);
  EXPECT_EQ(cause.shared, 450);
  cause = client.Ask(Random(1, 200));  // its beginning
  EXPECT_EQ(cause.reason, ReuseReason::kContinued);
  EXPECT_FALSE(cause.differs_at);
  EXPECT_EQ(client.Ask(Random(5, 100)).reason, ReuseReason::kFirst);
}

// The header at the prompt's head: too few tokens in common to be reused.
TEST(ReuseReason, AHeaderThatChanges) {
  for (const int64_t shared : {2, 3, 5, 40}) {
    Client client;
    client.Ask(Joined(Joined(Random(1, shared), {998}), Random(2, 500)), Random(3, 8));
    const ReuseCause cause = client.Ask(Joined(Joined(Random(1, shared), {999}), Random(2, 600)));
    EXPECT_EQ(cause.reason, ReuseReason::kDiffers) << shared;
    EXPECT_EQ(*cause.differs_at, shared);
    EXPECT_EQ(cause.shared, shared);
    EXPECT_EQ(cause.earlier->prompt_tokens, shared + 501);
  }
}

// The very first token: only the text behind it says that the prompts belong together.
TEST(ReuseReason, TheFirstTokenChanges) {
  Client client;
  client.Ask(Joined({998}, Random(2, 500)));
  const ReuseCause cause = client.Ask(Joined({999}, Random(2, 600)));
  EXPECT_EQ(cause.reason, ReuseReason::kDiffers);
  EXPECT_EQ(*cause.differs_at, 0);
}

TEST(ReuseReason, TheMiddleChangesAndTheAnswerChanges) {
  Client client;
  const Ids prompt = Joined(Random(1, 300), Random(2, 300));
  client.Ask(prompt, Random(3, 50));
  ReuseCause cause = client.Ask(Joined(Random(1, 300), Random(4, 400)));
  EXPECT_EQ(cause.reason, ReuseReason::kDiffers);
  EXPECT_EQ(client.cached, 300);
  EXPECT_EQ(*cause.differs_at, 300);
  cause = client.Ask(Joined(Joined(prompt, Random(3, 10)), Random(5, 60)));  // thinking was removed
  EXPECT_EQ(cause.reason, ReuseReason::kDiffers);
  EXPECT_EQ(*cause.differs_at, 610);
  EXPECT_EQ(client.cached, 600);
}

TEST(ReuseReason, AnAnswerWithoutItsLastTokensGoesOn) {
  Client client;
  const Ids prompt = Random(1, 300);
  client.Ask(prompt, Random(3, 20));
  const ReuseCause cause = client.Ask(Joined(Joined(prompt, Random(3, 17)), Random(5, 60)));
  EXPECT_EQ(cause.reason, ReuseReason::kContinued);
  EXPECT_EQ(*cause.differs_at, 317) << "is said all the same";
}

// The answer comes back as the template writes it, which the server has read in the meantime.
TEST(ReuseReason, AnAnswerInOtherTokensThatTheCacheHas) {
  Client client;
  const Ids prompt = Random(1, 300);
  const Ids written = Joined(prompt, Random(4, 30));
  client.Ask(prompt, Random(3, 20));
  client.cache->Put(StateOf(written, kDense));
  const ReuseCause cause = client.Ask(Joined(written, Random(5, 60)));
  EXPECT_EQ(client.cached, 330);
  EXPECT_EQ(cause.reason, ReuseReason::kContinued);
  EXPECT_EQ(cause.shared, 330);
  EXPECT_EQ(*cause.differs_at, 300) << "is said all the same";
}

TEST(ReuseReason, Evicted) {
  Client client;
  client.cache = Make({.memory_bytes = 700 * StateOf(Random(1, 1), kDense)->bytes()});
  const Ids prompt = Random(1, 400);
  client.Ask(prompt, Random(2, 10));
  client.Ask(Random(3, 500));
  ReuseCause cause = client.Ask(Joined(Joined(prompt, Random(2, 10)), Random(4, 50)));
  EXPECT_EQ(cause.reason, ReuseReason::kEvicted);
  EXPECT_EQ(client.cached, 0);
  EXPECT_EQ(cause.shared, 410);
  EXPECT_EQ(cause.gone->why, Gone::kMemory);
  EXPECT_EQ(cause.gone->tokens, 400);
  EXPECT_FALSE(cause.differs_at);
  client.cache->Erase(Joined(Joined(prompt, Random(2, 10)), Random(4, 50)));
  cause = client.Ask(Joined(Joined(prompt, Random(2, 10)), Random(4, 90)));
  EXPECT_EQ(cause.reason, ReuseReason::kEvicted);
  EXPECT_EQ(cause.gone->why, Gone::kErased);
}

// An entry that was evicted, of a prompt that this one shares a part with.
TEST(ReuseReason, EvictedAndDiffers) {
  Client client;
  client.Ask(Joined(Random(1, 400), Random(2, 50)));
  client.cache->Erase(Joined(Random(1, 400), Random(2, 50)));
  ReuseCause cause = client.Ask(Joined(Random(1, 400), Random(3, 50)));
  EXPECT_EQ(cause.reason, ReuseReason::kEvicted) << "400 tokens are more than 50";
  EXPECT_EQ(*cause.differs_at, 400);
  client.cache->Erase(Joined(Random(1, 400), Random(3, 50)));
  cause = client.Ask(Joined(Random(1, 20), Random(4, 430)));
  EXPECT_EQ(cause.reason, ReuseReason::kDiffers) << "20 tokens are gone, 430 differ";
}

TEST(ReuseReason, EvictedLongAgo) {
  Client client;
  client.cache = Make({.memory_bytes = 900 * StateOf(Random(1, 1), kDense)->bytes()});
  client.Ask(Random(1, 400));
  for (uint32_t i = 0; i < 100; ++i)
    client.cache->Put(StateOf(Joined({static_cast<int32_t>(i)}, Random(i, 500)), kDense));
  const ReuseCause cause = client.Ask(Random(1, 450));
  EXPECT_EQ(cause.reason, ReuseReason::kEvicted) << "the record says that it was kept";
  EXPECT_FALSE(cause.gone);
}

TEST(ReuseReason, NotKept) {
  Client client;
  client.keeps = false;
  for (const NotKept why : {NotKept::kTooLarge, NotKept::kCancelled, NotKept::kMethod, NotKept::kFewNew}) {
    client.why = why;
    const Ids prompt = Random(static_cast<uint32_t>(why), 400);
    client.Ask(prompt, Random(20, 8));
    const ReuseCause cause = client.Ask(Joined(prompt, Random(20, 50)));
    EXPECT_EQ(cause.reason, ReuseReason::kNotKept);
    EXPECT_EQ(cause.why, why);
  }
  client.ends = false;
  client.Ask(Random(30, 400));
  EXPECT_EQ(client.Ask(Random(30, 450)).why, NotKept::kReading);
}

TEST(ReuseReason, ALongAnswerIsNotKept) {
  Client client;
  client.Ask(Random(1, 300), Random(2, 300));
  const ReuseCause cause = client.Ask(Joined(Joined(Random(1, 300), Random(2, 300)), Random(3, 20)));
  EXPECT_EQ(client.cached, 300);
  EXPECT_EQ(cause.reason, ReuseReason::kNotKept);
  EXPECT_EQ(cause.why, NotKept::kAnswer);
}

TEST(ReuseReason, AnotherPoint) {
  Client client;
  client.Ask(Random(1, 400));
  client.point = kAfterOne;
  const ReuseCause cause = client.Ask(Random(1, 450));
  EXPECT_EQ(client.cached, 0);
  EXPECT_EQ(cause.reason, ReuseReason::kPruned);
  EXPECT_EQ(cause.entry->point, kDense);
}

// After a restart the cache has what the record has not.
TEST(ReuseReason, EntriesWithoutARecord) {
  Client client;
  client.cache->Put(StateOf(Random(1, 400), kDense));
  ReuseCause cause = client.Ask(Random(1, 450));
  EXPECT_EQ(cause.reason, ReuseReason::kContinued);
  EXPECT_EQ(cause.shared, 400);
  Client pruned;
  pruned.point = kAfterOne;
  pruned.cache->Put(StateOf(Random(1, 400), kDense));
  cause = pruned.Ask(Random(1, 450));
  EXPECT_EQ(cause.reason, ReuseReason::kPruned);
}

// What another owner sends, has and loses changes nothing of what this one is told.
TEST(ReuseReason, OwnersAreApart) {
  Client client;
  const Ids prompt = Random(1, 400);
  for (const PrefixOwner& owner : {PrefixOwner{1, 0}, PrefixOwner{1, 3}, PrefixOwner{2, 0}, PrefixOwner{}}) {
    client.owner = owner;
    const ReuseCause cause = client.Ask(prompt);
    EXPECT_EQ(cause.reason, ReuseReason::kFirst);
    EXPECT_EQ(cause.shared, 0);
    EXPECT_FALSE(cause.earlier || cause.entry || cause.gone || cause.differs_at);
    EXPECT_EQ(client.Ask(Random(1, 450)).reason, ReuseReason::kContinued);
    client.cache->Erase(Random(1, 450), owner);
    EXPECT_EQ(client.Ask(Random(1, 470)).reason, ReuseReason::kEvicted);
    client.cache->Erase(Random(1, 470), owner);
  }
}

}  // namespace
}  // namespace coppice::document_test::reuse_reason_test
