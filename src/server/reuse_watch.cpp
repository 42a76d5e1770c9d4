#include "server/reuse_watch.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/error.h"
#include "engine/documents/common_prefix.h"
#include "engine/reused_point.h"
#include "server/plan_context.h"

namespace coppice {

namespace {

constexpr int64_t kBefore = 8;
constexpr int64_t kFrom = 16;
constexpr size_t kMostBytes = 256;

bool Continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

std::string TextAround(const Tokenizer& tokenizer, std::span<const int32_t> tokens, int64_t at) {
  const int64_t begin = std::max<int64_t>(at - kBefore, 0);
  const int64_t end = std::min<int64_t>(at + kFrom, std::ssize(tokens));
  std::string before;
  std::string bytes;
  for (int64_t i = begin; i < end; ++i)
    (i < at ? before : bytes) += tokenizer.Piece(tokens[static_cast<size_t>(i)], true);
  // Of a long text before the place, its end counts.
  if (before.size() > kMostBytes / 2) before.erase(0, before.size() - kMostBytes / 2);
  bytes.insert(0, before);
  bytes.resize(std::min(bytes.size(), kMostBytes));
  // A character that the first token or the last one splits is left out.
  size_t first = 0;
  while (first < bytes.size() && Continues(bytes[first])) ++first;
  Utf8Stream characters;
  return characters.Push(std::string_view(bytes).substr(first));
}

ReuseWatch::ReuseWatch(Engine& engine, PromptHistory* history, const Job& job)
    : engine_(engine), history_(job.id.empty() || !job.texts.empty() ? nullptr : history), job_(job) {}

ReuseWatch::~ReuseWatch() {
  if (number_ == 0) return;
  try {
    const Request& request = job_.request;
    const int64_t kept = engine_.documents()->MostHeld(request.tokens, request.documents_owner).shared;
    history_->End(number_, request.documents_owner, {}, kept, NotKept::kCancelled);
  } catch (const std::exception&) {  // without memory, the record goes on saying that the prompt is read
  }
}

// A reply without this report is worth more than none.
void ReuseWatch::Read(int64_t cached) noexcept {
  if (history_ == nullptr) return;
  if (report_) {
    report_->cached_tokens = cached;
    return;
  }
  try {
    Compare(cached);
  } catch (const std::exception&) {
  }
}

void ReuseWatch::Compare(int64_t cached) {
  const Request& request = job_.request;
  const PrefixOwner& owner = request.documents_owner;
  const DocumentCache* documents = engine_.documents();
  ReuseReport report{.cause = {}, .prompt_tokens = std::ssize(request.tokens), .cached_tokens = cached};
  const bool scored = request.prompt_log_probs && job_.log_probs;  // all rows are computed
  if (documents == nullptr || !request.use_documents || scored) {
    report_ = std::move(report);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  EarlierPrompt own{.request = job_.id,
                    .tokens = std::make_shared<const std::vector<int32_t>>(request.tokens),
                    .prompt_tokens = std::ssize(request.tokens),
                    .read = now,
                    .sketch = PromptSketch(request.tokens)};
  report.cause = CauseOf(request.tokens, cached, history_->Compare(request.tokens, own.sketch, owner),
                         *documents, owner);
  if (const auto& earlier = report.cause.earlier)
    report.seconds_since = std::chrono::duration<double>(now - earlier->read).count();
  if (const auto& at = report.cause.differs_at; at && engine_.tokenizer() != nullptr) {
    report.earlier = TextAround(*engine_.tokenizer(), *report.cause.earlier->tokens, *at);
    report.now = TextAround(*engine_.tokenizer(), request.tokens, *at);
  }
  report_ = std::move(report);
  number_ = history_->Add(owner, std::move(own));
}

void ReuseWatch::Ended(const Answer& answer) noexcept {
  if (number_ == 0) return;
  try {
    const Request& request = job_.request;
    const int64_t kept = engine_.documents()->MostHeld(request.tokens, request.documents_owner).shared;
    history_->End(number_, request.documents_owner, answer.tokens, kept, WhyNotKept(kept, answer));
    number_ = 0;
  } catch (const std::exception&) {
  }
}

NotKept ReuseWatch::WhyNotKept(int64_t kept, const Answer& answer) const {
  const int64_t tokens = std::ssize(job_.request.tokens);
  if (IsMost(kept, tokens)) return NotKept::kKept;
  try {
    const LayerPoint point = ReusedPoint(answer.prune_spec, PlanContext(engine_, tokens));
    if (point == LayerPoint()) return NotKept::kMethod;
    const ModelShape& shape = engine_.model().config().shape;
    const int64_t bytes = PrefixBytes(shape, engine_.backend().cache_dtype(), point, tokens);
    return engine_.documents()->Fits(bytes) ? NotKept::kFewNew : NotKept::kTooLarge;
  } catch (const Error&) {  // a method that cannot be planned without the prompt
    return NotKept::kFewNew;
  }
}

}  // namespace coppice
