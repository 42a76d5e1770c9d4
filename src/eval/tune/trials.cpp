#include "eval/tune/trials.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "engine/calibration.h"
#include "engine/dry_run.h"
#include "eval/data.h"
#include "eval/random.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

// Logits of dense runs that are kept for comparison; the others are computed again.
constexpr size_t kMostLogits = size_t{1} << 28;  // floats: 1 GiB

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// A line of tune.jsonl. It has the fields that a search reads.
ordered_json TrialJson(const SampleRecord& record) {
  ordered_json json = ToJson(record);
  for (ordered_json& arm : json["arms"]) {
    const ordered_json whole = std::exchange(arm, ordered_json::object());
    for (const char* name :
         {"prune", "active", "reason", "score", "kl", "text", "prompt_tokens", "total_ms"}) {
      if (whole.contains(name)) arm[name] = whole[name];
    }
  }
  return json;
}

Sample FirstTokenOf(Sample sample) {
  sample.max_tokens = std::min<int64_t>(sample.max_tokens, 1);
  if (sample.choices.size() > 1) sample.choices.resize(1);
  return sample;
}

}  // namespace

Trials::Trials(const TuneOptions& options, const std::string& model, Engine& engine,
               const std::atomic<bool>* cancelled)
    : options_(options.eval),
      engine_(engine),
      clock_(options.clock ? options.clock : std::function<double()>(SteadySeconds)),
      begin_(clock_()),
      filler_(options_.haystack.empty() ? Filler() : Filler(options_.haystack)),
      metrics_(options_.jieba),
      context_{.engine = engine,
               .metrics = metrics_,
               .chat = options_.chat,
               .protection = options_.protection,
               .cancelled = cancelled,
               .progress = options.answering,
               .stop_when_right = true},
      journal_(options_.folder + "/tune.jsonl", SettingsOf(options_, model, engine), TrialJson),
      groups_(GroupsOf(options_, engine)),
      planner_(MakeBackend(std::string(engine.backend().name()), {.threads = engine.backend().threads()})) {
  MakeSamples(std::any_of(options.budgets.begin(), options.budgets.end(),
                          [](const QualityBudget& b) { return b.score_loss.has_value(); }));
  dense_.resize(samples_.size());
  paced_.resize(samples_.size());
}

void Trials::MakeSamples(bool judges_scores) {
  for (const EvalGroup& group : groups_) {
    std::vector<Sample> samples;
    try {
      samples = SamplesOf(group, options_, filler_, engine_);
    } catch (const MissingData& missing) {
      if (group.named) throw;
      skipped_.emplace_back(missing.what());
      continue;
    } catch (const Error& error) {
      // A generated task whose shortest text is longer than this length: the other tasks remain.
      if (group.task->length != TaskLength::kMade || groups_.size() == 1) throw;
      skipped_.emplace_back(error.what());
      continue;
    }
    Random random = RandomFor(options_.seed, "tune " + group.task->name, group.length, 0);
    random.Shuffle(samples);
    for (Sample& sample : samples) {
      if (judges_scores && sample.kind == SampleKind::kContinue)
        throw Error("{}: perplexity is no share of right answers: give a budget kl=BOUND", group.task->name);
      const int64_t tokens = PromptTokens(sample, context_);
      samples_.push_back({&group, std::move(sample), tokens});
    }
  }
  if (samples_.empty()) throw Error("the tasks have no samples");
}

std::vector<TaskSamples> Trials::SamplesIn(int64_t length, const std::vector<int64_t>& lengths) const {
  const auto distance = [](int64_t a, int64_t b) {
    return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
  };
  std::vector<TaskSamples> tasks;
  std::vector<const EvalGroup*> groups;
  for (size_t i = 0; i < samples_.size(); ++i) {
    const TunedSample& s = samples_[i];
    // Samples that were made to a length belong to it; others to the nearest length that covers them.
    bool belongs = s.group->length == length && s.group->task->length == TaskLength::kMade;
    if (s.group->task->length != TaskLength::kMade) {
      const int64_t nearest = *std::min_element(lengths.begin(), lengths.end(), [&](int64_t a, int64_t b) {
        return distance(a, s.tokens) < distance(b, s.tokens);
      });
      belongs = nearest == length && s.tokens >= LeastCovered(length) && s.tokens <= MostCovered(length) &&
                s.tokens < engine_.context();
    }
    if (!belongs) continue;
    if (groups.empty() || groups.back() != s.group) {
      groups.push_back(s.group);
      tasks.push_back({s.group->task->name, s.group->length, {}, {}});
    }
    TaskSamples& task = tasks.back();
    (task.searched.size() > task.held_out.size() ? task.held_out : task.searched).push_back(i);
  }
  return tasks;
}

const SampleRecord* Trials::Recorded(size_t index, const std::string& spec) const {
  const TunedSample& s = samples_[index];
  return journal_.Find(s.group->task->name, s.group->length, s.sample.id + "\n" + spec);
}

void Trials::NotePace(size_t index, const SampleResult& dense) {
  if (paced_[index] || !dense.total_ms) return;
  paced_[index] = true;
  dense_seconds_ += *dense.total_ms / 1000;
  dense_tokens_ += static_cast<double>(samples_[index].tokens);
}

double Trials::DenseSeconds(int64_t tokens) const {
  return dense_tokens_ > 0 ? dense_seconds_ / dense_tokens_ * static_cast<double>(tokens) : 0;
}

double Trials::Expect(size_t index, const std::string& spec, double share) {
  if (Recorded(index, spec) != nullptr) return 0;
  const double again = spec != "none" && dense_[index].positions.empty() ? 1 : 0;  // NeedDense
  return DenseSeconds(samples_[index].tokens) * (std::min(share, 1.0) + again);
}

std::string Trials::Full(const std::string& spec, int64_t tokens) const {
  return SettingsOf(spec, engine_.model().config().shape, tokens);
}

const SampleResult& Trials::ResultOf(size_t index, const std::string& spec) {
  const TunedSample& s = samples_[index];
  const std::string id = s.sample.id + "\n" + spec;
  const std::string hash = HashOf(s.sample);
  if (const SampleRecord* record = Recorded(index, spec)) {
    if (record->prompt != hash)
      throw Error("[tune] {}/tune.jsonl: sample {} of {} was another text: choose another folder",
                  options_.folder, s.sample.id, s.group->task->name);
    if (record->arms.empty())
      throw Error("[tune] {}/tune.jsonl: sample {} of {} has no result", options_.folder, s.sample.id,
                  s.group->task->name);
    if (spec == "none") NotePace(index, record->arms.front());
    return record->arms.front();
  }
  if (spec != "none") NeedDense(index);
  // A dense run's prefixes in the document cache would only serve other dense runs.
  context_.use_documents = spec != "none";
  const double before = seconds();
  SampleResult result = RunSample(s.sample, spec, context_, dense_[index]);
  result.total_ms = 1000 * (seconds() - before);
  NoteLogits(index);
  if (spec == "none") NotePace(index, result);
  if (spec != "none") result.total_ms.reset();  // a time with a reused prefix says nothing
  SampleRecord record{.task = s.group->task->name, .length = s.group->length, .id = id, .prompt = hash};
  record.arms.push_back(std::move(result));
  journal_.Append(std::move(record));
  return journal_.Find(s.group->task->name, s.group->length, id)->arms.front();
}

Trial Trials::Run(size_t index, const std::string& spec) {
  const SampleResult& result = ResultOf(index, spec);
  return {.score = result.score.value_or(0), .kl = result.kl.value_or(0), .active = result.active};
}

// The prompt is of one token id repeated: of what a dry run counts, only text compression depends on the ids.
double Trials::FlopsShare(const std::string& spec, int64_t tokens) {
  const auto known = flops_.find({spec, tokens});
  if (known != flops_.end()) return known->second;
  const std::vector<int32_t> prompt(static_cast<size_t>(tokens), 0);
  const Ledger ledger = PlanRun(engine_.model().config(), prompt, spec, *planner_).ledger;
  return flops_[{spec, tokens}] = ledger.prefill_flops() / ledger.prefill_flops_dense();
}

SampleResult Trials::FirstToken(size_t index, const std::string& spec) {
  DenseLogits ignored;
  context_.use_documents = false;
  return RunSample(FirstTokenOf(samples_[index].sample), spec, context_, ignored);
}

std::vector<Cost> Trials::Time(const std::vector<size_t>& samples, const std::vector<std::string>& specs,
                               const TuneReserve& reserve) {
  std::vector<std::vector<double>> ttft(specs.size()), flops(specs.size());
  FirstToken(samples.front(), "none");  // warms pages and workspaces
  for (size_t round = 0; round < reserve.rounds; ++round) {
    for (size_t i = 0; i < std::min(samples.size(), reserve.timed_samples); ++i) {
      const double dense = *FirstToken(samples[i], "none").ttft_ms;
      for (size_t s = 0; s < specs.size(); ++s) {
        const SampleResult run = FirstToken(samples[i], specs[s]);
        ttft[s].push_back(*run.ttft_ms / dense);
        flops[s].push_back(*run.flops / *run.flops_dense);
      }
    }
  }
  std::vector<Cost> costs;
  for (size_t s = 0; s < specs.size(); ++s) costs.push_back({MedianOf(ttft[s]), MedianOf(flops[s])});
  return costs;
}

// Ensures that dense's logits of the sample are in memory; runs dense again if needed.
void Trials::NeedDense(size_t index) {
  if (!dense_[index].positions.empty()) return;
  context_.use_documents = false;
  Sample first = samples_[index].sample;
  if (first.kind != SampleKind::kContinue) first = FirstTokenOf(std::move(first));
  RunSample(first, "none", context_, dense_[index]);
}

void Trials::NoteLogits(size_t index) {
  size_t floats = 0;
  for (const DenseLogits& dense : dense_) {
    for (const std::vector<float>& logits : dense.positions) floats += logits.size();
  }
  if (floats <= kMostLogits) return;
  for (size_t i = 0; i < dense_.size(); ++i) {
    if (i != index) dense_[i].positions.clear();
  }
}

double SomeTrials::Expect(size_t sample, const std::string& spec) {
  return all_.Expect(samples_[sample], spec, spec == "none" ? 1 : FlopsShare(spec));
}

double SomeTrials::TimingTakes(size_t specs) {
  return TimingSeconds(specs, std::min(reserve_.timed_samples, samples_.size()), reserve_.rounds,
                       RunSeconds());
}

}  // namespace coppice
