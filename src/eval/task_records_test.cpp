// The samples of every task, as hashes in tests/golden/tasks.txt: a change that should change no prompt
// changes no line. COPPICE_WRITE_GOLDEN=1 writes the file anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "base/checksum.h"
#include "base/error.h"
#include "engine/open_model.h"
#include "eval/task.h"

namespace coppice::task_records_test {
namespace {

const std::string kGoldenTasks = COPPICE_SOURCE_DIR "/tests/golden/tasks.txt";
const std::string kSharedData = COPPICE_SOURCE_DIR "/../shared/data";

uint64_t HashOfSamples(const std::vector<Sample>& samples) {
  std::string all;
  for (const Sample& s : samples) {
    all += fmt::format("{}\n{}\n{}\n{}\n{}\n", s.id, s.prompt, s.answer_prefix, s.question, s.max_tokens);
    for (const std::string& reference : s.references) all += reference + '\n';
    for (const Choice& choice : s.choices) all += choice.context + '\n' + choice.continuation + '\n';
  }
  return ChecksumOf(std::as_bytes(std::span(all)));
}

// By task, seed and length; without the tasks whose data are not here.
std::map<std::string, std::string> Recorded() {
  static const OpenedModel model = OpenModel(COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf");
  const Filler filler;
  std::map<std::string, std::string> records;
  for (const TaskInfo& task : Tasks()) {
    for (const uint64_t seed : {1, 2, 3}) {
      for (const int64_t length : {2048, 4096, 8192}) {
        const TaskRequest request{.length = length,
                                  .samples = 3,
                                  .seed = seed,
                                  .data = {kSharedData + "/longctx", kSharedData},
                                  .filler = &filler,
                                  .tokenizer = model.tokenizer.get()};
        const std::string name = fmt::format("{} seed {} length {}", task.name, seed, length);
        try {
          const std::vector<Sample> samples = task.samples(request);
          records[name] = fmt::format("{} samples {:016x}", samples.size(), HashOfSamples(samples));
        } catch (const Error&) {
          EXPECT_TRUE(task.needs_data) << name;
        }
      }
    }
  }
  return records;
}

TEST(TaskRecords, NoPromptHasChanged) {
  const std::map<std::string, std::string> records = Recorded();
  if (std::getenv("COPPICE_WRITE_GOLDEN") != nullptr) {
    std::ofstream out(kGoldenTasks);
    for (const auto& [name, record] : records) out << name << ": " << record << '\n';
  }
  std::ifstream in(kGoldenTasks);
  int compared = 0;
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    ASSERT_NE(colon, line.npos) << line;
    const auto now = records.find(line.substr(0, colon));
    if (now == records.end()) {
      EXPECT_TRUE(FindTasks(line.substr(0, line.find(' '))).at(0)->needs_data) << line;
      continue;
    }
    EXPECT_EQ(line.substr(colon + 2), now->second) << now->first;
    ++compared;
  }
  EXPECT_GE(compared, 99) << "eleven tasks need no data";
}

}  // namespace
}  // namespace coppice::task_records_test
