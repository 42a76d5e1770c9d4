#include "server/model_shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/error.h"
#include "server/local_exchange.h"

namespace coppice {
namespace model_shelf_test {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr milliseconds kReplyWait{60'000};

// What happened to models, in its order.
class Diary {
 public:
  void Write(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> Lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  void Expect(const std::vector<std::string>& lines) const {
    for (int i = 0; i < 60'000 && Lines().size() < lines.size(); ++i)
      std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(Lines(), lines);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

// Answers at once, or, to "hold", when Release() is called.
class Pretender final : public ModelService {
 public:
  Pretender(std::string name, Diary& diary) : name_(std::move(name)), diary_(diary) {
    diary_.Write("load " + name_);
  }
  ~Pretender() override { diary_.Write("free " + name_); }
  std::optional<HttpReply> Refuse(const HttpRequest&) override { return {}; }
  bool IsQuick(const HttpRequest&) override { return false; }
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override {
    if (request.body == "hold") {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
      return;
    }
    exchange->Reply({.status = 200, .body = name_ + " " + request.body});
  }
  bool Stop() override {
    Release();
    return true;
  }
  bool WriteDocuments(milliseconds) override { return true; }
  void Release() {
    std::vector<std::shared_ptr<Exchange>> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (const auto& exchange : held) exchange->Reply({.status = 200, .body = name_ + " held"});
  }
  size_t held() {
    const std::lock_guard lock(mutex_);
    return held_.size();
  }

 private:
  const std::string name_;
  Diary& diary_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> held_;
};

class ModelShelfTest : public testing::Test {
 protected:
  // Models a, b, ... of `bytes`. A model of -1 bytes cannot be loaded.
  void Make(const std::vector<int64_t>& bytes, const ShelfLimits& limits) {
    std::vector<ShelvedModel> models;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      models.push_back({.name = name,
                        .bytes = [size = bytes[i]] { return size; },
                        .load = [this, name, size = bytes[i]]() -> std::unique_ptr<ModelService> {
                          if (size < 0) throw Error("{}: is no model", name);
                          auto service = std::make_unique<Pretender>(name, diary_);
                          services_[name] = service.get();
                          return service;
                        }});
    }
    shelf_.emplace(std::move(models), limits);
  }
  std::shared_ptr<LocalExchange> Ask(size_t model, const std::string& body = "?") {
    auto exchange = std::make_shared<LocalExchange>();
    HttpRequest request;
    request.path = "/v1/completions";
    request.body = body;
    request.arrived = std::chrono::steady_clock::now();
    request.cancelled = exchange->cancelled();
    shelf_->Ask(model, std::move(request), exchange);
    return exchange;
  }
  static std::string Reply(const std::shared_ptr<LocalExchange>& exchange) {
    const LocalExchange::Piece piece = exchange->Take(kReplyWait);
    return piece.ended ? piece.bytes : "no reply";
  }
  std::string Answer(size_t model) { return Reply(Ask(model)); }
  void Hold(size_t model, std::shared_ptr<LocalExchange>& exchange) {
    exchange = Ask(model, "hold");
    const std::string name = shelf_->name(model);
    for (int i = 0;
         i < 60'000 && (shelf_->Look(model).state != ShelfState::kLoaded || services_[name]->held() == 0);
         ++i)
      std::this_thread::sleep_for(milliseconds(1));
    ASSERT_EQ(services_[name]->held(), 1u);
  }

  Diary diary_;
  std::map<std::string, Pretender*> services_;
  std::optional<ModelShelf> shelf_;
};

TEST_F(ModelShelfTest, LoadsWhatIsAskedForAndPutsTheOldestAway) {
  Make({1, 1, 1}, {.models = 2});
  EXPECT_EQ(Answer(0), "a ?");
  EXPECT_EQ(Answer(1), "b ?");
  EXPECT_EQ(Answer(0), "a ?");  // so b is the one that nobody used for longest
  EXPECT_EQ(shelf_->last_used(), 0u);
  EXPECT_EQ(Answer(2), "c ?");
  EXPECT_EQ(Answer(0), "a ?");
  diary_.Expect({"load a", "load b", "free b", "load c"});
}

TEST_F(ModelShelfTest, KeepsToItsMemory) {
  Make({40 << 20, 50 << 20, 30 << 20, 200 << 20}, {.models = 3, .bytes = 100 << 20});
  EXPECT_EQ(Answer(0), "a ?");
  EXPECT_EQ(Answer(1), "b ?");
  EXPECT_EQ(Answer(2), "c ?");
  diary_.Expect({"load a", "load b", "free a", "load c"});
  EXPECT_THAT(Answer(3),
              HasSubstr("it takes 200 MiB, and all models may take 100 MiB"));  // larger than all memory
  EXPECT_EQ(shelf_->Look(3).state, ShelfState::kUnloaded);
  EXPECT_EQ(Answer(2), "c ?");
}

TEST_F(ModelShelfTest, AModelThatAnswersIsNotPutAwayAndTheTwoTakeTurns) {
  Make({1, 1}, {.models = 1});
  std::shared_ptr<LocalExchange> held;
  ASSERT_NO_FATAL_FAILURE(Hold(0, held));
  const auto other = Ask(1);
  // The other waits for the held request alone: what comes to the first model from now on comes behind it.
  for (int i = 0; i < 60'000 && shelf_->Look(1).state != ShelfState::kLoading; ++i)
    std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(other->Take(milliseconds(0)).ended);
  services_["a"]->Release();
  EXPECT_EQ(Reply(held), "a held");
  EXPECT_EQ(Reply(other), "b ?");
  EXPECT_EQ(Answer(0), "a ?");
  diary_.Expect({"load a", "free a", "load b", "free b", "load a"});
}

TEST_F(ModelShelfTest, WhoLeavesWhileItWaitsLeavesTheOtherModelAlone) {
  Make({1, 1}, {.models = 1});
  std::shared_ptr<LocalExchange> held;
  ASSERT_NO_FATAL_FAILURE(Hold(0, held));
  Ask(1)->Cancel();
  for (int i = 0; i < 60'000 && shelf_->Look(1).state == ShelfState::kLoading; ++i)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(Answer(0), "a ?");
  services_["a"]->Release();
  EXPECT_EQ(Reply(held), "a held");
  diary_.Expect({"load a"});
}

TEST_F(ModelShelfTest, AModelThatCannotBeLoadedSaysWhy) {
  Make({1, -1}, {.models = 2});
  const auto exchange = Ask(1);
  EXPECT_THAT(Reply(exchange), HasSubstr("the model b cannot be loaded: b: is no model"));
  EXPECT_EQ(exchange->status(), 503);
  EXPECT_EQ(shelf_->Look(1).error, "b: is no model");
  EXPECT_THROW(shelf_->LoadNow(1), Error);
  EXPECT_EQ(Answer(0), "a ?");
}

TEST_F(ModelShelfTest, LooksWithoutLoadingAndPutsAwayWhenTold) {
  Make({1}, {.models = 1});
  EXPECT_FALSE(shelf_->AskIfLoaded(0, {}, std::make_shared<LocalExchange>()));
  shelf_->LoadNow(0);
  const auto exchange = std::make_shared<LocalExchange>();
  EXPECT_TRUE(shelf_->AskIfLoaded(0, {}, exchange));
  EXPECT_EQ(Reply(exchange), "a ");
  shelf_->Unload(0);
  diary_.Expect({"load a", "free a"});
  EXPECT_EQ(Answer(0), "a ?");
}

TEST_F(ModelShelfTest, PutsAwayWhatNobodyUses) {
  Make({1}, {.models = 1, .idle = milliseconds(30)});
  std::shared_ptr<LocalExchange> held;
  ASSERT_NO_FATAL_FAILURE(Hold(0, held));
  std::this_thread::sleep_for(milliseconds(300));
  diary_.Expect({"load a"});  // it answers
  services_["a"]->Release();
  diary_.Expect({"load a", "free a"});
}

TEST_F(ModelShelfTest, RefusesWhatWouldWaitForLong) {
  Make({1, 1}, {.models = 1, .max_waiting = 1});
  std::shared_ptr<LocalExchange> held;
  ASSERT_NO_FATAL_FAILURE(Hold(0, held));
  const auto waits = Ask(1);
  EXPECT_THAT(Answer(1), HasSubstr("too many requests wait for models"));
  EXPECT_FALSE(shelf_->Stop() && Reply(waits).empty());
  EXPECT_THAT(Answer(0), HasSubstr("the server is stopping"));
}

// Under any schedule each request gets one reply, from its own model, and no two models are loaded at once.
TEST_F(ModelShelfTest, ManyAtOnce) {
  Make({1, 1, 1}, {.models = 1});
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (size_t c = 0; c < 6; ++c) {
    clients.emplace_back([&, c] {
      for (size_t i = 0; i < 20; ++i) {
        const size_t model = (c + i) % 3;
        if (Answer(model) == shelf_->name(model) + " ?") ++right;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 120);
  shelf_.reset();
  int loaded = 0;
  for (const std::string& line : diary_.Lines()) {
    loaded += line.starts_with("load") ? 1 : -1;
    EXPECT_TRUE(loaded == 0 || loaded == 1);
  }
  EXPECT_EQ(loaded, 0);
}

}  // namespace
}  // namespace model_shelf_test
}  // namespace coppice
