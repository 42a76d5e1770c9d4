// coppice train: runs the separate program that is linked with libtorch. If this program were linked with
// libtorch and the 280 libraries that Debian's needs, every command would start a second later.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "apps/cli/commands.h"
#include "base/error.h"

namespace coppice::cli {
namespace {

void RunTrainer(const std::vector<std::string>& words) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string trainer = (self.parent_path() / "coppice-train").string();
  if (error || access(trainer.c_str(), X_OK) != 0) {
    throw Error(
        "train: this build has no trainer (no {}): install libtorch (Debian: apt-get install libtorch-dev "
        "libopenblas0-pthread), configure again and build coppice-train",
        trainer);
  }
  std::vector<std::string> all = {"coppice train"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(trainer.c_str(), argv.data());
  throw Error("train: cannot start {}: {}", trainer, std::strerror(errno));
}

}  // namespace

void AddTrain(CLI::App& app) {
  CLI::App* train = app.add_subcommand("train", "train predictors for a pruning method: train sdtp --help");
  // Everything that follows is the trainer's, --help too.
  train->set_help_flag();
  train->prefix_command();
  train->callback([train] { RunTrainer(train->remaining()); });
}

}  // namespace coppice::cli
