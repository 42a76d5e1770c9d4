// The operations that only layers with a state need.
#include "kernels/conformance_support.h"

namespace coppice {
namespace {

using namespace testing_kernels;

constexpr RecurrenceRule kDelta = RecurrenceRule::kGatedDelta;
constexpr RecurrenceRule kMamba = RecurrenceRule::kMamba2;

struct RecurrenceCase {
  RecurrenceShape shape;
  int64_t rows;
};
void PrintTo(const RecurrenceCase& c, std::ostream* out) {
  *out << (c.shape.rule == kDelta ? "gated delta, " : "mamba 2, ") << c.shape.key_heads << "/"
       << c.shape.value_heads << " heads" << (c.shape.tiled ? ", tiled, of " : " of ") << c.shape.key_dim
       << "/" << c.shape.value_dim << ", " << c.rows << " rows";
}

const std::vector<RecurrenceCase> kRecurrenceCases = {
    {{kDelta, 1, 1, 3, 5}, 1},
    {{kDelta, 2, 4, 3, 5, true}, 17},
    {{kDelta, 2, 6, 128, 128, true}, 40},
    {{kDelta, 2, 6, 24, 32}, 40},
    {{kDelta, 1, 2, 64, 40}, 300},
    {{kDelta, 3, 3, 17, 33}, 9},
    {{kDelta, 1, 19, 4, 8}, 6},
    {{kMamba, 2, 6, 3, 5}, 1},
    {{kMamba, 1, 1, 3, 5}, 4},
    {{kMamba, 1, 4, 16, 64}, 7},
    {{kMamba, 1, 8, 128, 64}, 50},
    {{kMamba, 2, 4, 20, 70}, 300},
    {{kMamba, 3, 9, 16, 16, true}, 13},
};

// Every matrix that can be some columns of a wider one is.
struct RecurrenceData {
  explicit RecurrenceData(const RecurrenceCase& c, uint32_t seed = 1)
      : shape(c.shape),
        mixed(Random(c.rows, 2 * shape.key_width() + shape.value_width() + 5, seed)),
        gates(Random(c.rows, 2 * shape.value_heads + 3, seed + 1, 2)),
        rates(Random(1, shape.value_heads, seed + 2, 0.5f)),
        biases(Random(1, shape.value_heads, seed + 3)),
        skips(Random(1, shape.value_heads, seed + 4)),
        state(Random(int64_t{shape.value_heads} * shape.key_dim, shape.value_dim + 3, seed + 5)),
        out(Random(c.rows, shape.value_width() + 4, seed + 6)) {
    for (float& rate : rates.mutable_view().Row<float>(0)) rate = -0.01f - std::abs(rate);
  }

  RecurrenceWeights Weights() const {
    return {rates.view(), biases.view(), shape.rule == kMamba ? skips.view() : TensorView()};
  }
  RecurrenceRows Rows(int64_t first, int64_t count) {
    const int64_t keys = shape.key_width();
    RecurrenceRows rows;
    rows.q = mixed.view().Cols(1, keys).Rows(first, count);
    rows.k = mixed.view().Cols(keys + 2, keys).Rows(first, count);
    rows.v = mixed.view().Cols(2 * keys + 3, shape.value_width()).Rows(first, count);
    rows.step = gates.view().Cols(1, shape.value_heads).Rows(first, count);
    if (shape.rule == kDelta)
      rows.beta = gates.view().Cols(shape.value_heads + 2, shape.value_heads).Rows(first, count);
    rows.state = State();
    rows.out = Out().Rows(first, count);
    return rows;
  }
  RecurrenceRows All() { return Rows(0, mixed.rows()); }
  MutableTensorView State() { return state.mutable_view().Cols(2, shape.value_dim); }
  MutableTensorView Out() { return out.mutable_view().Cols(3, shape.value_width()); }

  RecurrenceShape shape;
  Tensor mixed, gates, rates, biases, skips, state, out;
};

// One head in fp64. S is [key_dim][value_dim].
class ExactHead {
 public:
  ExactHead(RecurrenceData& data, int head)
      : shape_(data.shape),
        state_(ToMatrix(data.State().Rows(int64_t{head} * shape_.key_dim, shape_.key_dim))) {
    const RecurrenceRows rows = data.All();
    const int64_t group = shape_.value_heads / shape_.key_heads;
    const int64_t key_head = shape_.tiled ? head % shape_.key_heads : head / group;
    const auto of = [](const TensorView& t, int64_t which, int64_t dim) {
      return t.empty() ? Matrix() : ToMatrix(t.Cols(which * dim, dim));
    };
    q_ = of(rows.q, key_head, shape_.key_dim);
    k_ = of(rows.k, key_head, shape_.key_dim);
    v_ = of(rows.v, head, shape_.value_dim);
    step_ = of(rows.step, head, 1);
    beta_ = of(rows.beta, head, 1);
    const RecurrenceWeights weights = data.Weights();
    rate_ = weights.rate.Row<float>(0)[static_cast<size_t>(head)];
    bias_ = weights.bias.Row<float>(0)[static_cast<size_t>(head)];
    if (!weights.skip.empty()) skip_ = weights.skip.Row<float>(0)[static_cast<size_t>(head)];
  }

  const Matrix& state() const { return state_; }

  std::vector<double> Step(size_t i) {
    const double t = std::log1p(std::exp(step_[i][0] + bias_));
    return shape_.rule == kDelta ? DeltaStep(i, std::exp(rate_ * t)) : MambaStep(i, t);
  }

 private:
  static void Normalise(std::vector<double>& x) {
    double squares = 1e-6;
    for (const double v : x) squares += v * v;
    for (double& v : x) v /= std::sqrt(squares);
  }

  // S_t = a (I - b k k^T) S_(t-1) + b k v^T, the transpose of equation 10; o = S^T q / sqrt(key_dim)
  std::vector<double> DeltaStep(size_t i, double a) {
    Normalise(q_[i]);
    Normalise(k_[i]);
    const double b = 1 / (1 + std::exp(-beta_[i][0]));
    const std::vector<double> known = Read(k_[i]);
    for (size_t j = 0; j < state_.size(); ++j) {
      for (size_t c = 0; c < known.size(); ++c)
        state_[j][c] = a * (state_[j][c] - b * k_[i][j] * known[c]) + b * k_[i][j] * v_[i][c];
    }
    std::vector<double> o = Read(q_[i]);
    for (double& value : o) value /= std::sqrt(static_cast<double>(shape_.key_dim));
    return o;
  }

  // h_t = e^(t A) h_(t-1) + t B x^T, y = h^T C + D x
  std::vector<double> MambaStep(size_t i, double t) {
    for (size_t j = 0; j < state_.size(); ++j) {
      for (size_t c = 0; c < v_[i].size(); ++c)
        state_[j][c] = std::exp(t * rate_) * state_[j][c] + t * k_[i][j] * v_[i][c];
    }
    std::vector<double> y = Read(q_[i]);
    for (size_t c = 0; c < y.size(); ++c) y[c] += skip_ * v_[i][c];
    return y;
  }

  std::vector<double> Read(const std::vector<double>& key) const {
    std::vector<double> sum(static_cast<size_t>(shape_.value_dim));
    for (size_t j = 0; j < key.size(); ++j) {
      for (size_t c = 0; c < sum.size(); ++c) sum[c] += state_[j][c] * key[j];
    }
    return sum;
  }

  RecurrenceShape shape_;
  Matrix state_, q_, k_, v_, step_, beta_;
  double rate_, bias_, skip_ = 0;
};

struct Recurred {
  Matrix out, state;
};

Recurred Expected(RecurrenceData& data) {
  Recurred all;
  all.out.resize(static_cast<size_t>(data.mixed.rows()));
  for (int head = 0; head < data.shape.value_heads; ++head) {
    ExactHead exact(data, head);
    for (size_t i = 0; i < all.out.size(); ++i) {
      const std::vector<double> o = exact.Step(i);
      all.out[i].insert(all.out[i].end(), o.begin(), o.end());
    }
    all.state.insert(all.state.end(), exact.state().begin(), exact.state().end());
  }
  return all;
}

class RecurrenceConformance : public StateConformanceTest {
 protected:
  static void Recur(Backend& backend, RecurrenceData& data, const RecurrenceRows& rows) {
    backend.Recur(data.shape, data.Weights(), {&rows, 1});
  }
  void ExpectExact(RecurrenceData& data) {
    const Recurred expected = Expected(data);
    Recur(be(), data, data.All());
    ExpectClose(TensorView(data.Out()), expected.out, kTolerance);
    ExpectClose(TensorView(data.State()), expected.state, kTolerance);
  }
  static constexpr double kTolerance = 5e-6;
};

TEST_P(RecurrenceConformance, RecurFollowsTheEquations) {
  for (const RecurrenceCase& c : kRecurrenceCases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    RecurrenceData data(c);
    const Tensor out = data.out.Clone();
    const Tensor state = data.state.Clone();
    ExpectExact(data);
    EXPECT_TRUE(SameBits(data.out.view().Cols(0, 3), out.view().Cols(0, 3)));
    EXPECT_TRUE(SameBits(data.state.view().Cols(0, 2), state.view().Cols(0, 2)));
    const int64_t end = data.shape.value_width() + 3;
    EXPECT_TRUE(SameBits(data.out.view().Cols(end, 1), out.view().Cols(end, 1)));
    EXPECT_TRUE(SameBits(data.state.view().Cols(c.shape.value_dim + 2, 1),
                         state.view().Cols(c.shape.value_dim + 2, 1)));
  }
}

TEST_P(RecurrenceConformance, KeepsState) {
  for (const RecurrenceCase& c : kRecurrenceCases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    RecurrenceData data(c);
    RecurrenceData other(c);
    Recur(be(), data, data.All());
    RecurrenceRows rows = other.All();
    rows.keeps_state = true;
    Recur(be(), other, rows);
    EXPECT_TRUE(SameBits(other.out, data.out));
    EXPECT_TRUE(SameBits(other.state, RecurrenceData(c).state));
    EXPECT_FALSE(SameBits(other.state, data.state));
  }
}

// One value of a state in one step: o = q S shows each gate by itself.
TEST_P(RecurrenceConformance, GatesAreAccurate) {
  std::vector<float> steps;
  for (float step = -60; step <= 60; step += step < -25 || step > 25 ? 5 : 0.125f) steps.push_back(step);
  const int heads = static_cast<int>(steps.size());
  for (const RecurrenceRule rule : {kDelta, kMamba}) {
    RecurrenceData data(RecurrenceCase{{rule, heads, heads, 1, 1}, 1});
    const auto set = [](MutableTensorView t, float value) { std::ranges::fill(t.Row<float>(0), value); };
    for (size_t h = 0; h < steps.size(); ++h) {
      data.gates.mutable_view().Row<float>(0)[1 + h] = steps[h];
      data.gates.mutable_view().Row<float>(0)[2 + steps.size() + h] = steps[h];
    }
    for (Tensor* t : {&data.biases, &data.skips}) set(t->mutable_view(), 0);
    set(data.rates.mutable_view(), -0.75f);
    set(data.mixed.mutable_view(), 1);
    for (const bool decay : {true, false}) {
      set(data.mixed.mutable_view().Cols(heads + 2, heads), decay ? 0.0f : 1.0f);  // k
      for (int64_t i = 0; i < data.state.rows(); ++i) data.State().Row<float>(i)[0] = decay ? 1.0f : 0.0f;
      Recur(be(), data, data.All());
      for (size_t h = 0; h < steps.size(); ++h) {
        const double t = std::log1p(std::exp(static_cast<double>(steps[h])));
        const double gate =
            rule == kDelta ? 1 / (1 + std::exp(-static_cast<double>(steps[h]))) / (1 + 5e-7) : t;
        const double expected = (decay ? std::exp(-0.75 * t) : gate) / (rule == kDelta ? 1 + 5e-7 : 1);
        EXPECT_NEAR(data.Out().Row<float>(0)[h] / expected, 1, 1e-6) << steps[h] << " decay " << decay;
      }
    }
  }
}

TEST_P(RecurrenceConformance, ExtremeGates) {
  for (const RecurrenceRule rule : {kDelta, kMamba}) {
    RecurrenceData data(RecurrenceCase{{rule, 2, 4, 16, 40}, 64});
    for (int64_t i = 0; i < data.gates.rows(); ++i) {
      for (float& gate : data.gates.mutable_view().Row<float>(i)) gate = gate < 0 ? -60.0f : 60.0f;
    }
    data.rates.mutable_view().Row<float>(0)[1] = -20;
    data.rates.mutable_view().Row<float>(0)[2] = 0;
    ExpectExact(data);
  }
}

// The 1e-6 under the root keeps keys of length 0 finite, and decides the length of tiny ones.
TEST_P(RecurrenceConformance, ZeroAndTinyKeys) {
  RecurrenceData data(RecurrenceCase{{kDelta, 2, 4, 9, 12}, 30});
  for (int64_t i = 0; i < data.mixed.rows(); ++i) {
    const std::span<float> row = data.mixed.mutable_view().Row<float>(i);
    for (int64_t c = 0; c < 2 * data.shape.key_width() + 2; ++c)
      row[static_cast<size_t>(c)] *= i % 3 == 0 ? 0 : 1e-3f;
  }
  ExpectExact(data);
}

TEST_P(RecurrenceConformance, BitsDoNotDependOnSplitsOrThreads) {
  for (const RecurrenceCase& c : kRecurrenceCases) {
    SCOPED_TRACE(::testing::PrintToString(c));
    RecurrenceData whole(c);
    Recur(be(), whole, whole.All());
    for (const int threads : {1, 3}) {
      RecurrenceData parts(c);
      const std::unique_ptr<Backend> backend = Make(threads);
      int64_t first = 0;
      for (const int64_t count : {1, 0, 1, 5, 100, 1000}) {
        const int64_t now = std::min<int64_t>(count, c.rows - first);
        Recur(*backend, parts, parts.Rows(first, now));
        first += now;
      }
      EXPECT_TRUE(SameBits(parts.out, whole.out)) << threads;
      EXPECT_TRUE(SameBits(parts.state, whole.state)) << threads;
    }
  }
}

TEST_P(RecurrenceConformance, SequencesAreIndependent) {
  for (const RecurrenceRule rule : {kDelta, kMamba}) {
    const RecurrenceShape shape{rule, 2, 4, 24, 36};
    std::vector<RecurrenceData> together;
    std::vector<RecurrenceData> alone;
    std::vector<RecurrenceRows> rows;
    for (const int64_t count : {3, 1, 0, 40, 2}) {
      together.emplace_back(RecurrenceCase{shape, count}, 7 + count);
      alone.emplace_back(RecurrenceCase{shape, count}, 7 + count);
    }
    for (size_t i = 0; i < together.size(); ++i) {
      // A call has one set of weights.
      for (std::vector<RecurrenceData>* all : {&together, &alone}) {
        (*all)[i].rates = together[0].rates.Clone();
        (*all)[i].biases = together[0].biases.Clone();
        (*all)[i].skips = together[0].skips.Clone();
      }
      rows.push_back(together[i].All());
    }
    rows[3].keeps_state = true;
    be().Recur(shape, together[0].Weights(), rows);
    for (size_t i = 0; i < together.size(); ++i) {
      const Tensor before = alone[i].state.Clone();
      Recur(be(), alone[i], alone[i].All());
      EXPECT_TRUE(SameBits(together[i].out, alone[i].out)) << i;
      EXPECT_TRUE(SameBits(together[i].state, i == 3 ? before : alone[i].state)) << i;
    }
  }
}

TEST_P(RecurrenceConformance, RecurChecksShapes) {
  RecurrenceData data(RecurrenceCase{{kDelta, 2, 4, 6, 8}, 5});
  const auto with = [&](auto change) {
    RecurrenceRows rows = data.All();
    RecurrenceWeights weights = data.Weights();
    RecurrenceShape shape = data.shape;
    change(rows, weights, shape);
    be().Recur(shape, weights, {&rows, 1});
  };
  using R = RecurrenceRows;
  using W = RecurrenceWeights;
  using S = RecurrenceShape;
  EXPECT_NO_THROW(with([](R&, W&, S&) {}));
  EXPECT_THROW(with([](R& r, W&, S&) { r.q = r.q.Rows(0, 4); }), CheckFailure);
  EXPECT_THROW(with([](R& r, W&, S&) { r.k = r.k.Cols(0, 6); }), CheckFailure);
  EXPECT_THROW(with([](R& r, W&, S&) { r.v = r.v.Cols(0, 8); }), CheckFailure);
  EXPECT_THROW(with([](R& r, W&, S&) { r.step = r.step.Cols(0, 2); }), CheckFailure);
  EXPECT_THROW(with([](R& r, W&, S&) { r.beta = {}; }), CheckFailure);
  EXPECT_THROW(with([](R& r, W&, S&) { r.state = r.state.Rows(0, 6); }), CheckFailure);
  EXPECT_THROW(with([](R& r, W&, S&) { r.out = r.out.Rows(0, 4); }), CheckFailure);
  EXPECT_THROW(with([](R&, W& w, S&) { w.rate = w.rate.Cols(0, 2); }), CheckFailure);
  EXPECT_THROW(with([](R&, W& w, S&) { w.bias = {}; }), CheckFailure);
  EXPECT_THROW(with([](R&, W& w, S&) { w.skip = w.bias.Cols(0, 3); }), CheckFailure);
  EXPECT_THROW(with([](R&, W&, S& s) { s.value_heads = 3; }), CheckFailure);
  EXPECT_THROW(with([](R&, W&, S& s) { s.key_dim = 0; }), CheckFailure);
}

INSTANTIATE_TEST_SUITE_P(Backends, RecurrenceConformance, ::testing::ValuesIn(kConfigs), ConfigName);

}  // namespace
}  // namespace coppice
