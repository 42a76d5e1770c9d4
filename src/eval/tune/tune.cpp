#include "eval/tune/tune.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/new_file.h"
#include "engine/dry_run.h"
#include "eval/data.h"
#include "eval/journal.h"
#include "eval/random.h"
#include "eval/setup.h"
#include "eval/tune/grid.h"

namespace coppice {

namespace {

using nlohmann::ordered_json;

// Of dense's logits, kept to compare with; what is more is computed again.
constexpr size_t kMostLogits = size_t{1} << 28;  // floats: 1 GiB

struct TunedSample {
  const EvalGroup* group;
  Sample sample;
  int64_t tokens = 0;
};

class EngineRunner final : public TuneRunner {
 public:
  EngineRunner(const TuneOptions& options, const std::string& model, Engine& engine,
               const std::atomic<bool>* cancelled)
      : options_(options.eval),
        engine_(engine),
        filler_(options_.haystack.empty() ? Filler() : Filler(options_.haystack)),
        metrics_(options_.jieba),
        context_{engine, metrics_, options_.chat, options_.protection, cancelled, {}},
        journal_(options_.folder + "/tune.jsonl", SettingsOf(options_, model, engine)),
        groups_(GroupsOf(options_, engine)),
        planner_(MakeBackend(std::string(engine.backend().name()), {.threads = engine.backend().threads()})) {
    MakeSamples(options.search.budget.score_loss.has_value());
    dense_.resize(samples_.size());
  }

  size_t samples() const override { return samples_.size(); }

  int64_t shortest_prompt() const {
    int64_t shortest = samples_.front().tokens;
    for (const TunedSample& s : samples_) shortest = std::min(shortest, s.tokens);
    return shortest;
  }

  Trial Run(size_t index, const std::string& spec) override {
    const TunedSample& s = samples_[index];
    const std::string id = s.sample.id + "\n" + spec;
    if (const ordered_json* record = journal_.Find(s.group->task->name, s.group->length, id)) {
      if (record->value("prompt", "") != HashOf(s.sample))
        throw Error("[tune] {}/tune.jsonl: sample {} of {} was another text: choose another -o",
                    options_.folder, s.sample.id, s.group->task->name);
      return TrialOf((*record)["arms"].at(0));
    }
    WarmUp(s);
    if (spec != "none") NeedDense(index);
    ordered_json run = RunSample(s.sample, spec, context_, dense_[index]);
    NoteLogits(index);
    const Trial trial = TrialOf(run);
    journal_.Append({{"task", s.group->task->name},
                     {"length", s.group->length},
                     {"id", id},
                     {"prompt", HashOf(s.sample)},
                     {"arms", {std::move(run)}}});
    return trial;
  }

  // On the ids of the longest prompt: they decide nothing that a dry run looks at but text compression.
  double FlopsShare(const std::string& spec) override {
    const auto known = flops_.find(spec);
    if (known != flops_.end()) return known->second;
    int64_t tokens = 0;
    for (const TunedSample& s : samples_) tokens = std::max(tokens, s.tokens);
    const std::vector<int32_t> prompt(static_cast<size_t>(tokens), 0);
    const Ledger ledger = PlanRun(engine_.model().config(), prompt, spec, *planner_).ledger;
    return flops_[spec] = ledger.prefill_flops() / ledger.prefill_flops_dense();
  }

  std::vector<double> Retime(const std::vector<std::string>& specs) override {
    std::vector<std::vector<double>> ratios(specs.size());
    for (int round = 0; round < kRetimingRounds; ++round) {
      for (size_t i = 0; i < std::min(samples_.size(), kRetimedSamples); ++i) {
        const double dense = FirstToken(i, "none");
        for (size_t s = 0; s < specs.size(); ++s) ratios[s].push_back(FirstToken(i, specs[s]) / dense);
      }
    }
    std::vector<double> medians;
    for (std::vector<double>& of_spec : ratios) {
      std::sort(of_spec.begin(), of_spec.end());
      const size_t n = of_spec.size();
      medians.push_back(n % 2 == 1 ? of_spec[n / 2] : (of_spec[n / 2 - 1] + of_spec[n / 2]) / 2);
    }
    return medians;
  }

 private:
  // Groups take turns, and the samples of each are in a random order: the first few must stand for all.
  void MakeSamples(bool judges_scores) {
    std::vector<std::pair<double, TunedSample>> all;
    for (const EvalGroup& group : groups_) {
      std::vector<Sample> samples = SamplesOf(group, options_, filler_, engine_);
      Random random = RandomFor(options_.seed, "tune " + group.task->name, group.length, 0);
      random.Shuffle(samples);
      for (size_t i = 0; i < samples.size(); ++i) {
        if (judges_scores && samples[i].kind == SampleKind::kContinue)
          throw Error("{}: perplexity is no share of right answers: give --budget kl=BOUND",
                      group.task->name);
        const int64_t tokens = PromptTokens(samples[i], context_);
        const double turn = static_cast<double>(i) / static_cast<double>(samples.size());
        all.emplace_back(turn, TunedSample{&group, std::move(samples[i]), tokens});
      }
    }
    if (all.empty()) throw Error("the tasks have no samples");
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [turn, sample] : all) samples_.push_back(std::move(sample));
  }

  Trial TrialOf(const ordered_json& run) const {
    try {
      return {.score = run.value("score", 0.0),
              .kl = run.value("kl", 0.0),
              .ttft_ms = run.value("ttft_ms", 0.0),
              .active = run.value("active", false)};
    } catch (const nlohmann::json::exception& error) {
      throw Error("[tune] {}/tune.jsonl: {}", options_.folder, error.what());
    }
  }

  void WarmUp(const TunedSample& s) {
    if (!warm_.insert(s.group).second) return;
    DenseLogits ignored;
    RunSample(FirstTokenOf(s.sample), "none", context_, ignored);
  }

  static Sample FirstTokenOf(Sample sample) {
    sample.max_tokens = std::min<int64_t>(sample.max_tokens, 1);
    if (sample.choices.size() > 1) sample.choices.resize(1);
    return sample;
  }

  double FirstToken(size_t index, const std::string& spec) {
    DenseLogits ignored;
    return RunSample(FirstTokenOf(samples_[index].sample), spec, context_, ignored)["ttft_ms"].get<double>();
  }

  // Dense's logits of the sample: from this run of the program, or by one more dense run.
  void NeedDense(size_t index) {
    if (!dense_[index].positions.empty()) return;
    RunSample(samples_[index].sample, "none", context_, dense_[index]);
  }

  void NoteLogits(size_t index) {
    size_t floats = 0;
    for (const DenseLogits& dense : dense_) {
      for (const std::vector<float>& logits : dense.positions) floats += logits.size();
    }
    if (floats <= kMostLogits) return;
    for (size_t i = 0; i < dense_.size(); ++i) {
      if (i != index) dense_[i].positions.clear();
    }
  }

  const EvalOptions& options_;
  Engine& engine_;
  Filler filler_;
  TaskMetrics metrics_;
  ArmContext context_;
  Journal journal_;
  std::vector<EvalGroup> groups_;
  std::vector<TunedSample> samples_;
  std::vector<DenseLogits> dense_;  // [samples]; empty where not known
  std::set<const EvalGroup*> warm_;
  std::map<std::string, double> flops_;
  std::unique_ptr<Backend> planner_;  // the dry run's own: the engine's keeps its times
};

// Every wish must have a setting that this model can have.
std::vector<std::string> SpecsToTry(const TuneOptions& options, EngineRunner& runner, const Engine& engine) {
  const std::vector<std::string> wishes = options.methods.empty() ? TunedMethods() : options.methods;
  std::vector<std::string> specs;
  bool saves = false;
  for (const std::string& wish : wishes) {
    std::string why;
    bool any = false;
    for (const std::string& spec : GridOf(wish, engine.model().config().shape, runner.shortest_prompt())) {
      try {
        saves = runner.FlopsShare(spec) < 1 || saves;
        any = true;
        specs.push_back(spec);
      } catch (const Error& error) {
        why = error.what();
      }
    }
    if (!any && !options.methods.empty()) throw Error("--methods {}: {}", wish, why);
  }
  if (!saves) throw Error("no candidate computes less than dense on prompts of these lengths");
  return specs;
}

void WriteTried(const SearchResult& result, const std::string& path) {
  ordered_json rows = ordered_json::array();
  for (const Candidate& c : result.tried) {
    if (c.quality.samples == 0) continue;
    const auto n = static_cast<double>(c.quality.samples);
    rows.push_back({{"prune", c.spec},
                    {"verdict", VerdictText(c.verdict)},
                    {"samples", c.quality.samples},
                    {"score", 100 * c.quality.score / n},
                    {"dense_score", 100 * c.quality.dense_score / n},
                    {"kl", c.mean_kl()},
                    {"ttft_ratio", c.ttft_ratio()},
                    {"retimed", c.retimed.has_value()},
                    {"flops_ratio", c.flops}});
  }
  NewFile file(path, "tune");
  file.Append(rows.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  file.Commit();
}

}  // namespace

SearchResult Tune(const TuneOptions& options, const std::string& model, Engine& engine,
                  const std::atomic<bool>* cancelled, const SearchNote& note) {
  Check(options.eval, engine);
  std::error_code failed;
  std::filesystem::create_directories(options.eval.folder, failed);
  if (failed) throw Error("[tune] {}: cannot make the folder: {}", options.eval.folder, failed.message());
  EngineRunner runner(options, model, engine, cancelled);
  if (note) note({"planning", 0});
  SearchResult result = Search(SpecsToTry(options, runner, engine), options.search, runner, note);
  WriteTried(result, options.eval.folder + "/tune.json");
  return result;
}

const char* VerdictText(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMeets:
      return "meets the budget";
    case Verdict::kOver:
      return "over the budget";
    case Verdict::kWaits:
      return "overtaken";
    case Verdict::kAside:
      return "stands aside";
    case Verdict::kSlower:
      return "slower than the best";
  }
  return "";
}

}  // namespace coppice
