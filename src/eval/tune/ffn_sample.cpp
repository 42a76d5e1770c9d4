#include "eval/tune/ffn_sample.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "eval/watch_prefill.h"

namespace coppice {

namespace {

constexpr int64_t kLeastTokens = 256;
constexpr int64_t kPiece = 4096;  // tokens; about what a text of the paper's calibration set has

// The first of `from` rows, `count` of them, evenly spread.
void Spread(int64_t begin, int64_t from, int64_t count, std::vector<int64_t>& rows) {
  for (int64_t i = 0; i < count; ++i) rows.push_back(begin + i * from / count);
}

// Which tokens run, and which of their rows are taken.
struct Plan {
  Plan(int64_t tokens, int64_t context, int64_t most) {
    piece = std::min({tokens, context, kPiece});
    // Twice as many tokens run as are taken, so that one token's neighbours are not all in the sample.
    const int64_t wanted = 2 * (most + most / 4);
    pieces = std::clamp<int64_t>((wanted + piece - 1) / piece, 1, tokens / piece);
    const int64_t first_part = piece * 4 / 5;
    Spread(0, first_part, std::clamp<int64_t>(most / pieces, 1, first_part), calibration);
    const int64_t rest = piece - first_part;
    Spread(first_part, rest, std::clamp<int64_t>(std::ssize(calibration) / 4, 1, rest), held_out);
  }
  int64_t Begin(int64_t i, int64_t tokens) const {
    return pieces == 1 ? 0 : i * (tokens - piece) / (pieces - 1);
  }
  int64_t piece = 0;
  int64_t pieces = 0;
  std::vector<int64_t> calibration;  // rows of every piece
  std::vector<int64_t> held_out;
};

// The dense policy, which copies rows of every FFN's input.
class FfnSampler final : public TokenPolicy {
 public:
  FfnSampler(const Plan& plan, const ModelShape& shape, FfnSample& sample,
             const std::function<void(double)>& progress)
      : plan_(plan), sample_(sample), progress_(progress) {
    sample.calibrated = plan.pieces * std::ssize(plan.calibration);
    const int64_t rows = sample.calibrated + plan.pieces * std::ssize(plan.held_out);
    for (int l = 0; l < shape.layer_count(); ++l) sample.layers.emplace_back(DType::kF32, rows, shape.hidden);
  }
  void NextPiece() { ++at_; }

  TokenSet RunFfn(const Observation& seen, Backend& be) override {
    Take(seen, plan_.calibration, at_ * std::ssize(plan_.calibration));
    Take(seen, plan_.held_out, sample_.calibrated + at_ * std::ssize(plan_.held_out));
    if (progress_) {
      const double layers = seen.layers;
      progress_((static_cast<double>(at_) + (seen.layer + 1) / layers) / static_cast<double>(plan_.pieces));
    }
    return TokenPolicy::RunFfn(seen, be);
  }

 private:
  void Take(const Observation& seen, const std::vector<int64_t>& rows, int64_t to) {
    Tensor& layer = sample_.layers[static_cast<size_t>(seen.layer)];
    for (const int64_t row : rows) {
      CopyRows(seen.hidden.Rows(row, 1), layer.mutable_view().Rows(to, 1));
      ++to;
    }
  }

  const Plan& plan_;
  FfnSample& sample_;
  const std::function<void(double)>& progress_;
  int64_t at_ = 0;
};

}  // namespace

FfnSample SampleFfnInputs(const Engine& engine, std::span<const int32_t> tokens, int64_t most,
                          const std::function<void(double)>& progress, const std::atomic<bool>* cancelled) {
  const int64_t count = std::ssize(tokens);
  if (count < kLeastTokens) {
    throw Error("the reference text has {} tokens; proxies of FFNs need at least {}", count, kLeastTokens);
  }
  const Plan plan(count, engine.context(), most);
  FfnSample sample;
  FfnSampler sampler(plan, engine.model().config().shape, sample, progress);
  for (int64_t i = 0; i < plan.pieces; ++i) {
    const std::span<const int32_t> of =
        tokens.subspan(static_cast<size_t>(plan.Begin(i, count)), static_cast<size_t>(plan.piece));
    std::vector<int32_t> piece(of.begin(), of.end());
    piece.front() = tokens.front();  // where many heads spend most of their attention
    WatchPrefill(engine, piece, sampler, cancelled, LastLayer::kAllRows);
    sampler.NextPiece();
  }
  return sample;
}

}  // namespace coppice
