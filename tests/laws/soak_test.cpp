// What a server must survive. Long answers: a thousand steps in which tokens come back, and blocks of keys
// leave for the cold tier and return. At every fiftieth the books balance; nothing grows but the answer; what
// was opened is closed at the end. The steps are fed random tokens, because greedy ones of a random model
// soon repeat themselves, and nothing would move any more. And requests that a disk or a user ends: they end
// alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <limits>
#include <thread>

#include "engine/engine.h"
#include "laws_support.h"

namespace coppice::soak_test {
namespace {

constexpr int64_t kTokens = 96;
constexpr int64_t kSteps = 1000;
constexpr int64_t kCheckEvery = 50;

int64_t OpenFiles() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

// Bytes that the process has allocated and not freed. 0 where the C library or a sanitizer does not tell.
int64_t HeapBytes() {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
#else
  return 0;
#endif
}

// A sequence that is fed its tokens one by one.
class Steps {
 public:
  Steps(const TinyModel& tiny, const std::vector<int32_t>& prompt, Backend& be, const std::string& spec,
        ColdIo io = ColdIo::kAuto)
      : model_(tiny.Make()),
        be_(be),
        choice_(MakePolicy(spec, {.shape = model_.config().shape, .tokens = kTokens, .prompt = prompt}, {})),
        policy_(*choice_.policy),
        state_(model_.NewSequence(kTokens, kTokens + kSteps, be)),
        ws_(model_.NewWorkspace(64)) {
    EXPECT_TRUE(choice_.active) << choice_.reason;
    state_.cold_options.io = io;
    model_.Prefill(prompt, {policy_, state_, ws_, be_}, logits_);
  }

  void Step(int32_t token) {
    policy_.attended.clear();
    policy_.revived.clear();
    model_.Decode(token, {policy_, state_, ws_, be_}, logits_);
  }
  const SequenceState& state() const { return state_; }
  const Tensor& logits() const { return logits_; }
  // Who came back in the step.
  const std::vector<std::pair<int, int32_t>>& revived() const { return policy_.revived; }
  // The blocks of the prompt that the step attends from `layer` on, where something was chosen for it.
  Positions Blocks(int layer, int block) const {
    Positions blocks;
    for (const auto& [from, positions] : policy_.attended) {
      for (const int32_t p : positions) {
        if (from == layer && p < kTokens && (blocks.empty() || blocks.back() != p / block))
          blocks.push_back(p / block);
      }
    }
    return blocks;
  }

 private:
  Transformer model_;
  Backend& be_;
  PruneChoice choice_;
  RecordingPolicy policy_;
  SequenceState state_;
  Workspace ws_;
  Tensor logits_;
};

// What depth says is what the ledger counted and what the caches hold: hot or cold, never both; and who has
// not reached the last layer is parked (T-LZ1, T-LZ3, T-LZ8).
void ExpectBooksBalance(const SequenceState& s) {
  const auto layers = static_cast<int32_t>(s.layers.size());
  int64_t computed = 0;
  int64_t parked = 0;
  for (size_t p = 0; p < s.depth.size(); ++p) {
    computed += s.depth[p];
    parked += s.depth[p] < layers ? 1 : 0;
    ASSERT_EQ(s.aux.Has(static_cast<int32_t>(p)), s.depth[p] < layers) << "position " << p;
  }
  EXPECT_EQ(s.ledger.token_layers(), computed);
  EXPECT_LE(computed, layers * static_cast<int64_t>(s.depth.size()));
  EXPECT_EQ(s.aux.tokens(), parked);
  const DType dtype = s.layers.front().cache.dtype();
  EXPECT_EQ(s.aux.bytes(), parked * BytesOf(dtype, 64));
  for (int32_t l = 0; l < layers; ++l) {
    const Positions hot = PositionsOf(s.layers[static_cast<size_t>(l)].cache);
    const Positions cold = s.cold ? s.cold->ColdPositions(l) : Positions{};
    const Positions stored = StoredPositions(s, l);
    ASSERT_EQ(stored.size(), hot.size() + cold.size()) << "hot and cold at once, layer " << l;
    Positions told;
    for (size_t p = 0; p < s.depth.size(); ++p) {
      if (s.depth[p] > l) told.push_back(static_cast<int32_t>(p));
    }
    ASSERT_EQ(stored, told) << "layer " << l;
  }
  const int64_t row = 2 * BytesOf(dtype, s.layers.front().cache.width());
  EXPECT_EQ(s.kv_bytes() + s.cold_bytes(), row * computed);
}

struct SoakCase {
  const char* name;
  const char* backend;
  ColdIo io;
  bool swaps;
  std::string spec;
};

const std::string kSlim =
    "sliminfer:layers=2/4,keep=64/48,decode_keep=48/"
    "32,block=8,last=1,unit=4,window=1,gamma=1,revive_cap=1,min=0";
const std::string kLazy = "lazyllm:layers=2/4,keep=0.3,min=0";

std::vector<SoakCase> SoakCases() {
  const std::string others = "+ftp:eta=0.5,dense=1,first=4,last=4,min=0+quest:budget=48,page=8,dense=1,min=0";
  return {{"reference_lazyllm", "reference", ColdIo::kAuto, false, kLazy},
          {"cpu_lazyllm_causal", "cpu", ColdIo::kAuto, false, kLazy + ",revive_mask=causal"},
          {"reference_lazyllm_ftp_quest", "reference", ColdIo::kAuto, false, kLazy + others},
          {"reference_sliminfer_sync", "reference", ColdIo::kSync, true, kSlim},
          {"reference_sliminfer_threads", "reference", ColdIo::kThreads, true, kSlim},
          {"cpu_sliminfer", "cpu", ColdIo::kAuto, true, kSlim},
          {"reference_sliminfer_ftp_quest", "reference", ColdIo::kAuto, true, kSlim + others}};
}

class Soak : public testing::TestWithParam<SoakCase> {};

TEST_P(Soak, AThousandStepsKeepTheBooks) {
  const SoakCase& of = GetParam();
  const std::unique_ptr<Backend> be = MakeBackendOrSkip(of.backend, {.threads = 2, .exact = true});
  if (!be) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  const int64_t files = OpenFiles();
  {
    Steps run(MakeTiny({}), RandomPrompt(kTokens, 50), *be, of.spec, of.io);
    const SequenceState& s = run.state();
    const std::vector<int32_t> fed = RandomPrompt(kSteps, 50, 11);
    std::vector<int32_t> depth = s.depth;
    int64_t files_while_running = 0;
    int64_t heap = 0;
    int64_t held = 0;
    int64_t swaps = 0;
    for (int64_t step = 1; step <= kSteps; ++step) {
      run.Step(fed[static_cast<size_t>(step - 1)]);
      for (size_t p = 0; p < depth.size(); ++p) ASSERT_GE(s.depth[p], depth[p]) << "T-LZ2, position " << p;
      depth = s.depth;
      if (step % kCheckEvery != 0) continue;
      SCOPED_TRACE(step);
      ASSERT_NO_FATAL_FAILURE(ExpectBooksBalance(s));
      const std::span<const float> logits = run.logits().view().Row<float>(0);
      ASSERT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
      if (step == kCheckEvery) files_while_running = OpenFiles();
      ASSERT_EQ(OpenFiles(), files_while_running);
      if (step == kSteps / 2) {
        heap = HeapBytes();
        held = s.kv_bytes() + s.aux.bytes();
        swaps = s.ledger.swaps;
      }
    }
    // Room grows by half where it grows; nothing but keys and values may.
    const int64_t grown = s.kv_bytes() + s.aux.bytes() - held;
    EXPECT_LT(HeapBytes() - heap, 2 * grown + (64 << 10));
    EXPECT_GT(s.ledger.revived, 20);
    EXPECT_EQ(s.cold != nullptr, of.swaps);
    EXPECT_EQ(s.ledger.swaps > 0, of.swaps);
    if (of.swaps) {
      EXPECT_GT(s.ledger.swaps - swaps, 100) << "the second half exchanged nothing";
      EXPECT_GT(s.cold->blocks_loaded(), 1000);
      // T-SL9: 12 blocks in each of the layers from 2 on are written once.
      EXPECT_LE(s.cold->blocks_written(), 4 * 12);
      EXPECT_EQ(files_while_running > files, true);
    } else {
      EXPECT_EQ(files_while_running, files);
    }
  }
  EXPECT_EQ(OpenFiles(), files);
}

INSTANTIATE_TEST_SUITE_P(Methods, Soak, testing::ValuesIn(SoakCases()),
                         [](const auto& test) { return std::string(test.param.name); });

// T-SL1: blocks are exchanged if and only if the overlap is below gamma. What the first stage would choose
// does not depend on what was chosen before: the layers below it attend everything. So gamma = 2, which takes
// every choice, tells what the other runs were offered.
TEST(SoakGamma, SwapsFollowTheOverlap) {
  constexpr int kBlock = 8;
  constexpr size_t kShort = 120;
  const std::unique_ptr<Backend> be = MakeBackendOrSkip("cpu", {.threads = 2, .exact = true});
  if (!be) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  const TinyModel tiny = MakeTiny({});
  const std::vector<int32_t> prompt = RandomPrompt(kTokens, 50);
  const std::vector<int32_t> fed = RandomPrompt(static_cast<int64_t>(kShort), 50, 11);
  const auto attended = [&](const std::string& gamma, int64_t* swaps) {
    Steps run(
        tiny, prompt, *be,
        "sliminfer:layers=2,keep=64,decode_keep=48,block=8,last=1,unit=4,window=1,revive=none,min=0,gamma=" +
            gamma);
    std::vector<Positions> blocks;
    for (const int32_t token : fed) {
      run.Step(token);
      blocks.push_back(run.Blocks(2, kBlock));
    }
    *swaps = run.state().ledger.swaps;
    return blocks;
  };
  int64_t swaps = 0;
  const std::vector<Positions> offered = attended("2", &swaps);
  for (const Positions& blocks : offered) {
    EXPECT_EQ(blocks.size(), 6u);  // T-SL4: 48 tokens
    EXPECT_TRUE(Has(blocks, 0) && Has(blocks, 11));
  }
  EXPECT_GT(swaps, 50);
  int64_t before = std::numeric_limits<int64_t>::max();
  for (const int thousandths : {1000, 900, 830, 600, 400, 0}) {
    SCOPED_TRACE(thousandths);
    const std::vector<Positions> taken = attended(std::to_string(thousandths / 1000.0), &swaps);
    Positions active = offered[0];  // the first step shrinks what prefill left
    int64_t exchanged = 1;
    for (size_t step = 0; step < kShort; ++step) {
      Positions common;
      std::set_intersection(active.begin(), active.end(), offered[step].begin(), offered[step].end(),
                            std::back_inserter(common));
      if (common.size() * 1000 < static_cast<size_t>(thousandths) * offered[step].size()) {
        active = offered[step];
        ++exchanged;
      }
      ASSERT_EQ(taken[step], active) << "step " << step;
    }
    EXPECT_EQ(swaps, exchanged);
    EXPECT_LE(swaps, before);
    before = swaps;
  }
  EXPECT_EQ(before, 1);  // gamma = 0: never after the first
}

// ---- Requests that a disk or a user ends, through the engine.

using testing::AllOf;
using testing::HasSubstr;

Request LongRequest(const std::string& prune) {
  Request request;
  request.tokens = RandomPrompt(200, 320);
  request.max_tokens = 12;
  request.sampling.temperature = 0;
  request.prune = prune;
  return request;
}

// Offloads in the first step, and exchanges blocks in every one.
const std::string kSwapping =
    "sliminfer:layers=1/2,keep=128/96,decode_keep=96/"
    "64,block=16,last=1,unit=8,window=1,gamma=2,revive_cap=1,min=0";

class SoakEngine : public testing::TestWithParam<ColdIo> {
 protected:
  void SetUp() override {
    wanted_ = NewEngine("")->Generate(LongRequest("none")).tokens;
    const std::string error = ErrorOf([&] {
      const Answer answer = NewEngine("")->Generate(LongRequest(kSwapping));
      wanted_pruned_ = answer.tokens;
      EXPECT_GT(answer.ledger.blocks_loaded, 10);
    });
    if (error.find("does not allow io_uring") != std::string::npos) GTEST_SKIP() << error;
    ASSERT_EQ(error, "no error");
    ASSERT_NE(wanted_pruned_, wanted_);
  }
  static std::unique_ptr<Engine> NewEngine(const std::string& folder) {
    EngineOptions options;
    options.backend = "reference";
    options.threads = 2;
    options.cold.folder = folder;
    options.cold.io = GetParam();
    return Engine::FromShape("tiny:f32", options);
  }
  // The request fails with these words, and leaves nothing behind. A write that has not ended when the answer
  // has is not waited for: what it would have said is then not known, and the answer is right.
  void ExpectError(Engine& engine, const std::string& folder, const char* words) {
    const int64_t files = OpenFiles();
    std::string error;
    for (int attempt = 0; attempt < 100; ++attempt) {
      std::vector<int32_t> tokens;
      error = ErrorOf([&] { tokens = engine.Generate(LongRequest(kSwapping)).tokens; });
      if (error != "no error" || GetParam() == ColdIo::kSync) break;
      ASSERT_EQ(tokens, wanted_pruned_);
    }
    EXPECT_THAT(error, AllOf(HasSubstr("[cold tier] " + folder), HasSubstr(words)));
    EXPECT_EQ(OpenFiles(), files);
    ExpectAnswers(engine, "none");
  }
  void ExpectAnswers(Engine& engine, const std::string& prune) {
    const int64_t files = OpenFiles();
    EXPECT_EQ(engine.Generate(LongRequest(prune)).tokens, prune == "none" ? wanted_ : wanted_pruned_);
    EXPECT_EQ(OpenFiles(), files);
  }

  TempFolder folder_;
  std::vector<int32_t> wanted_, wanted_pruned_;
};

TEST_P(SoakEngine, MissingFolder) {
  const std::string missing = folder_.Path("gone");
  const std::unique_ptr<Engine> engine = NewEngine(missing);
  ExpectAnswers(*engine, "none");
  ExpectError(*engine, missing, "cannot make a file: No such file or directory");
  std::filesystem::create_directory(missing);
  ExpectAnswers(*engine, kSwapping);
  EXPECT_TRUE(std::filesystem::is_empty(missing));
}

TEST_P(SoakEngine, FileThatMayNotGrow) {
  const std::unique_ptr<Engine> engine = NewEngine(folder_.path());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // NOLINT: a test's own process
  rlimit limit = before;
  limit.rlim_cur = 1000;  // less than a record: a short write, then none
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ExpectError(*engine, folder_.path(), "cannot write: the file would grow past the limit");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ExpectAnswers(*engine, kSwapping);
}

// A disk of one page, which a thread mounts where nobody else sees it.
TEST_P(SoakEngine, FullDisk) {
  bool mounted = false;
  std::thread([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
    if (mount("none", folder_.path().c_str(), "tmpfs", 0, "size=4096") != 0) return;
    mounted = true;
    const std::unique_ptr<Engine> engine = NewEngine(folder_.path());
    ExpectError(*engine, folder_.path(), "cannot write: no space left");
    ASSERT_EQ(mount("none", folder_.path().c_str(), "tmpfs", MS_REMOUNT, "size=16m"), 0);
    ExpectAnswers(*engine, kSwapping);
  }).join();
  if (!mounted) GTEST_SKIP() << "a test may not mount a file system here";
}

// C12: a run that is cancelled while transfers are in progress leaves nothing behind.
TEST_P(SoakEngine, Cancelling) {
  const std::unique_ptr<Engine> engine = NewEngine(folder_.path());
  const int64_t files = OpenFiles();
  std::atomic<bool> cancelled{false};
  for (const int stop : {1, 2, 3, 7}) {
    cancelled = false;
    Request request = LongRequest(kSwapping);
    request.cancelled = &cancelled;
    int tokens = 0;
    request.on_token = [&](int32_t) {
      cancelled = ++tokens == stop;
      return true;
    };
    EXPECT_THROW(engine->Generate(request), Cancelled);
    EXPECT_EQ(tokens, stop);
    EXPECT_EQ(OpenFiles(), files);
    request.cancelled = nullptr;
    tokens = 0;
    request.on_token = [&](int32_t) { return ++tokens < stop; };
    EXPECT_EQ(engine->Generate(request).finish_reason, "cancelled");
    EXPECT_EQ(OpenFiles(), files);
  }
  Request request = LongRequest(kSwapping);
  request.cancelled = &cancelled;
  request.progress = [&](double done) { cancelled = done > 2.2; };  // behind the first stage
  EXPECT_THROW(engine->Generate(request), Cancelled);
  EXPECT_EQ(OpenFiles(), files);
  ExpectAnswers(*engine, "none");
  ExpectAnswers(*engine, kSwapping);
}

std::string NameOf(const testing::TestParamInfo<ColdIo>& test) {
  return test.param == ColdIo::kSync ? "sync" : test.param == ColdIo::kThreads ? "threads" : "uring";
}

INSTANTIATE_TEST_SUITE_P(reference, SoakEngine,
                         testing::Values(ColdIo::kSync, ColdIo::kThreads, ColdIo::kUring), NameOf);

}  // namespace
}  // namespace coppice::soak_test
