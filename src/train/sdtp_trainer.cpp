#include "train/sdtp_trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numbers>
#include <numeric>
#include <optional>
#include <utility>

#include "base/agreement.h"
#include "base/field_error.h"
#include "base/random.h"
#include "base/threads.h"
#include "engine/open_model.h"
#include "formats/safetensors_writer.h"
#include "policies/presets.h"
#include "policies/stages.h"
#include "train/content_hash.h"
#include "train/work_folder.h"

namespace coppice {

namespace {

using Phase = TrainingProgress::Phase;

// Keys of random streams. sdtp_net.cpp uses 1.
enum : uint64_t { kSplit = 2, kRows = 3, kOrder = 4, kPairs = 5, kRandomScores = 6 };

std::vector<int> StagesOf(const SdtpTraining& t, const ModelShape& shape) {
  std::vector<int> layers = t.layers.empty() ? SdtpLayers(shape, t.stages) : t.layers;
  if (layers.empty())
    throw Error("[train] {}: {} layers leave no stage to prune at", t.model, shape.layer_count());
  for (size_t s = 0; s < layers.size(); ++s) {
    if (layers[s] < 1 || layers[s] >= shape.layer_count()) {
      throw FieldError("layers", ": {} is not from 1 to {}", layers[s], shape.layer_count() - 1);
    }
    if (s > 0 && layers[s] <= layers[s - 1])
      throw FieldError("layers", ": {} must ascend", fmt::join(layers, "/"));
  }
  return layers;
}

// The numbers 0 to count - 1 in random order.
std::vector<int64_t> Permutation(int64_t count, Random random) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  random.Shuffle(order);
  return order;
}

void CheckOptions(const SdtpTraining& t) {
  if (!t.end_to_end && t.losses.mse == 0 && t.losses.rank == 0) {
    throw FieldError("end_to_end",
                     " is off, and so are the losses mse and rank: there is nothing to learn from");
  }
  if (!t.end_to_end && (t.losses.distill != 0 || t.losses.ratio != 0)) {
    throw FieldError("end_to_end", " is off, but the losses distill and ratio need it");
  }
}

class Run {
 public:
  Run(const SdtpTraining& training, const std::function<void(const TrainingProgress&)>& progress,
      const std::atomic<bool>* cancelled)
      : t_(training), progress_(progress), cancelled_(cancelled) {}

  SdtpReport Go() {
    SetTorchThreads(t_.threads > 0 ? t_.threads : UsableCores());
    Read();
    Mark();
    Split();
    SdtpNet net(config_.shape.hidden, width_, static_cast<int>(rule_.layers.size()), t_.seed);
    std::vector<Agreement> untrained =
        Compare([&](int s, const StageTargets& seen, uint64_t) { return net.Scores(s, seen.hidden); });
    Learn(net);
    Report(net, untrained);
    Write(net);
    return std::move(report_);
  }

 private:
  void Tell(Phase phase, int64_t done, int64_t total, const SdtpLosses& losses = {}, double rate = 0) const {
    if (progress_) progress_({phase, done, total, losses, rate});
  }
  void StopIfCancelled() const {
    if (cancelled_ != nullptr && *cancelled_) throw Cancelled();
  }

  void Read() {
    Tell(Phase::kReading, 0, 1);
    OpenedModel opened = OpenModel(t_.model);
    if (!opened.tokenizer) throw Error("{}: has no tokenizer, so it cannot read texts", t_.model);
    weights_ = Weights::Load(opened.store, opened.config);
    config_ = opened.config;
    rule_ = {.layers = StagesOf(t_, config_.shape), .r = t_.r, .first = t_.first, .local = t_.local};
    width_ = t_.width > 0 ? t_.width : std::max<int64_t>(1, config_.shape.hidden / 4);
    if (t_.texts.longest > config_.context) {
      throw FieldError("length", " {} is beyond the {} tokens that {} was trained for", t_.texts.longest,
                       config_.context, t_.model);
    }
    Texts read = ReadTexts(t_.data, *opened.tokenizer, config_.shape.vocab, t_.texts);
    texts_ = std::move(read.texts);
    report_.texts = read.counts;
    if (texts_.size() < 2)
      throw Error("[train] {}: one text is too few: one more is needed to hold out", t_.data.front());
    model_hash_ = HashOfModel(*opened.store);
    const std::string name = config_.shape.name.empty()
                                 ? std::filesystem::weakly_canonical(t_.model).filename().string()
                                 : config_.shape.name;
    report_.base_model = fmt::format("{} ({}, hash {})", name, config_.shape.architecture, model_hash_);
    for (const TrainingText& text : texts_) keys_.push_back(KeyOf(text));
    work_.emplace(t_.work.empty() ? t_.output + ".work" : t_.work);
  }

  // The key of a marked text: a hash of all inputs of its marks.
  std::string KeyOf(const TrainingText& text) const {
    ContentHash hash;
    hash.Add(model_hash_);
    for (const int layer : rule_.layers) hash.Add(static_cast<uint64_t>(layer));
    hash.Add(static_cast<uint64_t>(t_.rows));
    hash.Add(t_.seed);
    hash.Add(static_cast<uint64_t>(text.prompt));
    hash.Add(std::as_bytes(std::span(text.tokens)));
    return hash.Text();
  }

  // The key of a run: a hash of all inputs of the learned weights.
  std::string KeyOfRun() const {
    ContentHash hash;
    for (const std::string& key : keys_) hash.Add(key);
    for (const int64_t n : {width_, int64_t{t_.end_to_end}, static_cast<int64_t>(t_.mask), int64_t{Epochs()},
                            int64_t{t_.batch}, t_.first}) {
      hash.Add(static_cast<uint64_t>(n));
    }
    for (const double x : {t_.r, t_.local, t_.losses.mse, t_.losses.rank, t_.losses.distill, t_.losses.ratio,
                           t_.learning_rate, t_.holdout}) {
      hash.Add(x);
    }
    return hash.Text();
  }

  int Epochs() const { return t_.epochs > 0 ? t_.epochs : t_.end_to_end ? 2 : 15; }

  const FrozenModel& Model() {
    if (!model_) model_ = std::make_unique<FrozenModel>(config_, weights_);
    return *model_;
  }

  // The tokens of a text to learn from: all, or a random choice of t_.rows.
  std::vector<int32_t> RowsOf(size_t index) const {
    const int64_t prompt = texts_[index].prompt;
    ContentHash place;
    place.Add(keys_[index]);
    std::vector<int64_t> order = Permutation(prompt, RandomAt({t_.seed, kRows, place.value()}));
    order.resize(static_cast<size_t>(std::min(prompt, t_.rows)));
    std::ranges::sort(order);
    return {order.begin(), order.end()};
  }

  void Mark() {
    const auto count = static_cast<int64_t>(texts_.size());
    for (int64_t i = 0; i < count; ++i) {
      StopIfCancelled();
      Tell(Phase::kMarking, i, count);
      const auto index = static_cast<size_t>(i);
      if (work_->HasText(keys_[index])) continue;
      const Marked marked = Model().Mark(texts_[index], rule_.layers);
      work_->PutText(keys_[index], marked, RowsOf(index), config_.shape.hidden);
    }
    Tell(Phase::kMarking, count, count);
  }

  void Split() {
    const auto count = static_cast<int64_t>(texts_.size());
    const auto wanted = static_cast<int64_t>(std::llround(t_.holdout * static_cast<double>(count)));
    const int64_t out = std::clamp<int64_t>(wanted, 1, count - 1);
    const std::vector<int64_t> order = Permutation(count, RandomAt({t_.seed, kSplit}));
    held_out_.assign(order.begin(), order.begin() + out);
    learned_.assign(order.begin() + out, order.end());
    report_.held_out = out;
    report_.learned_from = count - out;
  }

  StoredText Stored(size_t index) const {
    return work_->GetText(keys_[index], static_cast<int64_t>(rule_.layers.size()), texts_[index].prompt,
                          config_.shape.hidden);
  }

  // score(stage, targets, text) returns a score for each row.
  template <typename Score>
  std::vector<Agreement> Compare(const Score& score) const {
    std::vector<Agreement> mean(rule_.layers.size());
    const double share = 1.0 / static_cast<double>(held_out_.size());
    for (const int64_t index : held_out_) {
      const std::vector<StageTargets> targets = Stored(static_cast<size_t>(index)).Targets();
      for (size_t s = 0; s < targets.size(); ++s) {
        const std::vector<float> scores =
            score(static_cast<int>(s), targets[s], static_cast<uint64_t>(index));
        mean[s].tau += share * KendallTau(scores, targets[s].saliency);
        mean[s].rho += share * SpearmanRho(scores, targets[s].saliency);
        const double keep = std::pow(rule_.r, static_cast<double>(s + 1));
        mean[s].kept += share * ShareHeld(scores, targets[s].saliency, keep);
      }
    }
    return mean;
  }

  // The share of the sum of `saliency` that the best `keep` of the rows by score hold.
  static double ShareHeld(std::span<const float> scores, std::span<const float> saliency, double keep) {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return scores[i]; });
    order.resize(static_cast<size_t>(RoundShare(keep, static_cast<int64_t>(order.size()))));
    double held = 0;
    for (const size_t i : order) held += saliency[i];
    const double all = std::accumulate(saliency.begin(), saliency.end(), 0.0);
    return all > 0 ? held / all : 0;
  }

  SdtpLosses LearnText(size_t index, double weight, const Random& random, SdtpNet& net) {
    const StoredText stored = Stored(index);
    if (!t_.end_to_end) return net.Learn(stored.Targets(), t_.losses, weight, random);
    const PrunedPass pass{Model(), rule_, t_.mask};
    return LearnEndToEnd(pass, texts_[index], stored.saliency, t_.losses, weight, random, net);
  }

  void Learn(SdtpNet& net) {
    const auto count = static_cast<int64_t>(learned_.size());
    const int64_t per_epoch = (count + t_.batch - 1) / t_.batch;
    const int64_t steps = per_epoch * Epochs();
    const std::string key = KeyOfRun();
    if (work_->GetRun(key, net)) report_.resumed_at = net.steps();
    SdtpLosses sum;
    int64_t summed = 0;
    while (net.steps() < steps) {
      const int64_t step = net.steps();
      const int64_t epoch = step / per_epoch;
      const std::vector<int64_t> order =
          Permutation(count, RandomAt({t_.seed, kOrder, static_cast<uint64_t>(epoch)}));
      const int64_t begin = step % per_epoch * t_.batch;
      const int64_t end = std::min(begin + t_.batch, count);
      const double weight = 1.0 / static_cast<double>(end - begin);
      SdtpLosses losses;
      for (int64_t i = begin; i < end; ++i) {
        if (cancelled_ != nullptr && *cancelled_) {
          SaveAndStop(key, net, step);
        }
        const int64_t text = learned_[static_cast<size_t>(order[static_cast<size_t>(i)])];
        const Random random =
            RandomAt({t_.seed, kPairs, static_cast<uint64_t>(epoch), static_cast<uint64_t>(text)});
        losses.Add(LearnText(static_cast<size_t>(text), weight, random, net), weight);
      }
      const double rate = LearningRate(t_.learning_rate, step, steps);
      net.Step(rate);
      Tell(Phase::kLearning, net.steps(), steps, losses, rate);
      if (net.steps() % t_.save_every == 0) work_->PutRun(key, net);
      if (net.steps() > steps - per_epoch) {
        sum.Add(losses, 1);
        ++summed;
      }
    }
    work_->PutRun(key, net);
    if (summed > 0) report_.losses.Add(sum, 1 / static_cast<double>(summed));
    report_.steps = steps;
  }

  // Discards the gradients of an unfinished step and saves the state after `step` steps.
  [[noreturn]] void SaveAndStop(const std::string& key, const SdtpNet& net, int64_t step) const {
    if (step > 0) work_->PutRun(key, net);
    throw Cancelled();
  }

  void Report(const SdtpNet& net, const std::vector<Agreement>& untrained) {
    Tell(Phase::kComparing, 0, 1);
    const std::vector<Agreement> trained =
        Compare([&](int s, const StageTargets& seen, uint64_t) { return net.Scores(s, seen.hidden); });
    const std::vector<Agreement> random = Compare([&](int s, const StageTargets& seen, uint64_t text) {
      Random draw = RandomAt({t_.seed, kRandomScores, text, static_cast<uint64_t>(s)});
      std::vector<float> scores(seen.saliency.size());
      for (float& x : scores) x = static_cast<float>(draw.Uniform());
      return scores;
    });
    const std::vector<Agreement> best =
        Compare([](int, const StageTargets& seen, uint64_t) { return seen.saliency; });
    for (size_t s = 0; s < trained.size(); ++s) {
      report_.stages.push_back({rule_.layers[s], untrained[s], random[s], trained[s], best[s].kept});
    }
  }

  void Write(const SdtpNet& net) const {
    const std::vector<NamedArray> arrays = net.Weights();
    std::vector<SafetensorsEntry> entries;
    for (const NamedArray& array : arrays) {
      entries.push_back({array.name, DType::kF32, array.shape, std::as_bytes(std::span(array.values))});
    }
    WriteSafetensors(t_.output, "train", entries,
                     {{"layers", fmt::format("{}", fmt::join(rule_.layers, ","))},
                      {"stages", fmt::format("{}", rule_.layers.size())},
                      {"r", fmt::format("{}", rule_.r)},
                      {"first", fmt::format("{}", rule_.first)},
                      {"local", fmt::format("{}", rule_.local)},
                      {"base_model", report_.base_model},
                      {"base_model_hash", model_hash_}});
  }

  const SdtpTraining& t_;
  const std::function<void(const TrainingProgress&)>& progress_;
  const std::atomic<bool>* cancelled_;
  std::optional<WorkFolder> work_;  // created once all input has been checked
  ModelConfig config_;
  std::shared_ptr<const Weights> weights_;
  std::unique_ptr<const FrozenModel> model_;  // created on first use
  SdtpConfig rule_;
  int64_t width_ = 0;
  std::vector<TrainingText> texts_;
  std::vector<std::string> keys_;  // of texts
  std::string model_hash_;
  std::vector<int64_t> held_out_, learned_;  // indices in texts_
  SdtpReport report_;
};

}  // namespace

double LearningRate(double peak, int64_t step, int64_t steps) {
  const double warm = std::max(1.0, 0.03 * static_cast<double>(steps));
  const double done = static_cast<double>(step) + 1;
  if (done <= warm) return peak * done / warm;
  const double rest = (static_cast<double>(step) - warm) / std::max(1.0, static_cast<double>(steps) - warm);
  return peak * 0.5 * (1 + std::cos(std::numbers::pi * rest));
}

SdtpReport TrainSdtp(const SdtpTraining& training,
                     const std::function<void(const TrainingProgress&)>& progress,
                     const std::atomic<bool>* cancelled) {
  CheckOptions(training);
  return Run(training, progress, cancelled).Go();
}

}  // namespace coppice
