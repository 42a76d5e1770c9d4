// Key-value retrieval (https://github.com/nelson-liu/lost-in-the-middle): one of many pairs of UUIDs in a
// JSON object.
#include <fmt/core.h>

#include "eval/data.h"
#include "eval/task.h"

namespace coppice {

namespace {

constexpr int64_t kAnswerTokens = 100;

Sample MakeSample(const DataRow& row) {
  const std::string key = row.Text("key");
  const nlohmann::json& pairs = row.List("ordered_kv_records");
  std::string records;
  int64_t place = -1;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const nlohmann::json& pair = pairs[i];
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      throw Error("[eval] {}: 'ordered_kv_records' holds something that is no pair of texts", row.source());
    if (pair[0] == key) place = static_cast<int64_t>(i);
    records += fmt::format("{}\"{}\": \"{}\"{}", i == 0 ? "{" : " ", pair[0].get<std::string>(),
                           pair[1].get<std::string>(), i + 1 < pairs.size() ? ",\n" : "}");
  }
  if (place < 0) throw Error("[eval] {}: 'key' is none of the records'", row.source());
  Sample sample;
  sample.prompt = fmt::format(
      "Extract the value corresponding to the specified key in the JSON object below.\n\nJSON "
      "data:\n{}\n\nKey: "
      "\"{}\"\nCorresponding value:",
      records, key);
  sample.metric = "string_match_all";
  sample.references = {row.Text("value")};
  sample.max_tokens = kAnswerTokens;
  sample.depth = static_cast<double>(place) / static_cast<double>(pairs.size());
  return sample;
}

std::vector<Sample> SamplesOf(int keys, const TaskRequest& request) {
  const std::string path = FindDataFile(
      request, fmt::format("kv_retrieval/{}", keys), "kv_retrieval_data",
      {fmt::format("kv-retrieval-{}_keys.jsonl", keys), fmt::format("kv_retrieval_{}.jsonl", keys)});
  std::vector<Sample> samples;
  for (const DataRow& row : ReadRows(path)) {
    if (static_cast<int64_t>(samples.size()) == request.samples) break;
    samples.push_back(MakeSample(row));
    samples.back().id = std::to_string(samples.size() - 1);
  }
  return samples;
}

}  // namespace

void AddKeyValue(std::vector<TaskInfo>& tasks) {
  for (const int keys : {75, 140, 300}) {
    tasks.push_back({.name = fmt::format("kv_retrieval/{}", keys),
                     .about = fmt::format("one of {} pairs of UUIDs", keys),
                     .needs_data = true,
                     .samples = [keys](const TaskRequest& request) { return SamplesOf(keys, request); }});
  }
}

}  // namespace coppice
