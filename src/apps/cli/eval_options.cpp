#include "apps/cli/eval_options.h"

#include "apps/checks.h"

namespace coppice::cli {

void AddSampleOptions(CLI::App& app, EvalOptions& o) {
  app.add_option("--lengths", o.lengths, "tokens of prompt and answer, separated by commas")
      ->take_all()
      ->delimiter(',')
      ->check(AboveZero());
  app.add_option("--samples", o.samples, "samples of each task and length, at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--data", o.data, "a folder with the data of tasks; may be repeated")->take_all();
  app.add_option("--haystack", o.haystack,
                 "a text file in which tasks hide facts; default: generated sentences");
  app.add_option("--depths", o.depths, "niah: depths of the needle, from the start to the end")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->capture_default_str();
  app.add_option("--needles", o.distractors, "niah: further facts of the same form")
      ->check(CLI::Range(int64_t{0}, int64_t{300}))
      ->capture_default_str();
  app.add_option("--jieba", o.jieba,
                 "the folder of jieba's dict.txt, for Chinese metrics; default: python3-jieba's");
  app.add_flag("--chat", o.chat, "prompts are messages of a user: apply the model's chat template");
  app.add_option("-s,--seed", o.seed, "seed of the samples")->capture_default_str();
  app.add_option("--protect-first", o.protection.first, "prompt tokens at the start that no method may prune")
      ->check(ZeroOrMore());
  app.add_option("--protect-last", o.protection.last, "prompt tokens at the end that no method may prune")
      ->check(ZeroOrMore());
}

}  // namespace coppice::cli
