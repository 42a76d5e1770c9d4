#include "train/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/mmap.h"
#include "formats/quants.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace coppice {

namespace {

namespace fs = std::filesystem;

constexpr float kLargestHalf =
    65504;  // some channels of some models exceed it; only their order matters here

std::vector<F16> Halves(std::span<const float> values) {
  std::vector<F16> halves(values.size());
  std::ranges::transform(values, halves.begin(),
                         [](float v) { return ToF16(std::clamp(v, -kLargestHalf, kLargestHalf)); });
  return halves;
}

// A file written by WorkFolder; returns its tensors by name and shape.
class StoredFile {
 public:
  explicit StoredFile(const std::string& path)
      : path_(path), file_(path), parsed_(ParseSafetensors(file_.bytes(), path)) {
    for (const StoredTensor& tensor : parsed_.tensors) tensors_.emplace(tensor.name, &tensor);
  }

  [[noreturn]] void Fail(const std::string& why) const {
    throw Error("[train] {}: {}; remove the file and start again", path_, why);
  }

  // A negative dimension in `shape` matches any size.
  std::vector<float> Read(const std::string& name, const std::vector<int64_t>& shape) const {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) Fail(fmt::format("has no tensor '{}'", name));
    const StoredTensor& tensor = *it->second;
    const bool fits =
        std::ranges::equal(tensor.shape, shape, [](int64_t a, int64_t b) { return b < 0 || a == b; });
    if (!fits) Fail(fmt::format("tensor '{}' has another shape than this run's", name));
    return ReadAll(tensor);
  }

  static std::vector<float> ReadAll(const StoredTensor& tensor) {
    std::vector<float> values(static_cast<size_t>(tensor.view.rows * tensor.view.cols));
    for (int64_t r = 0; r < tensor.view.rows; ++r) {
      DequantizeRow(tensor.view.dtype, tensor.view.RowBytes(r),
                    std::span(values).subspan(static_cast<size_t>(r * tensor.view.cols),
                                              static_cast<size_t>(tensor.view.cols)));
    }
    return values;
  }

  const ParsedSafetensors& parsed() const { return parsed_; }

 private:
  std::string path_;
  MappedFile file_;
  ParsedSafetensors parsed_;
  std::map<std::string, const StoredTensor*> tensors_;
};

}  // namespace

std::vector<StageTargets> StoredText::Targets() const {
  std::vector<StageTargets> targets;
  for (size_t s = 0; s < hidden.size(); ++s) {
    targets.push_back({hidden[s], {}});
    for (const int32_t row : rows) targets[s].saliency.push_back(saliency[s][static_cast<size_t>(row)]);
  }
  return targets;
}

WorkFolder::WorkFolder(const std::string& path) : path_(path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!fs::is_directory(path)) throw Error("[train] {}: cannot make the folder: {}", path, error.message());
  lock_ = open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) throw Error("[train] {}/lock: cannot create: {}", path, std::strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_);
    throw Error("[train] {}: another training run is using this folder", path);
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("text-") || name.starts_with("run-");
    std::error_code ignored;
    if (ours && name.ends_with(".part")) fs::remove(entry.path(), ignored);
  }
}

WorkFolder::~WorkFolder() { close(lock_); }

bool WorkFolder::HasText(const std::string& key) const {
  std::error_code ignored;
  return fs::is_regular_file(TextPath(key), ignored);
}

void WorkFolder::PutText(const std::string& key, const Marked& marked, std::span<const int32_t> rows,
                         int64_t d) const {
  const auto count = static_cast<int64_t>(rows.size());
  const std::vector<float> positions(rows.begin(), rows.end());  // exact: limits::kMaxContext is 2^24
  std::vector<std::vector<F16>> halves;
  std::vector<SafetensorsEntry> entries = {
      {"rows", DType::kF32, {count}, std::as_bytes(std::span(positions))}};
  for (size_t s = 0; s < marked.hidden.size(); ++s) {
    std::vector<float> chosen;
    for (const int32_t row : rows) {
      const auto begin = marked.hidden[s].begin() + row * d;
      chosen.insert(chosen.end(), begin, begin + d);
    }
    halves.push_back(Halves(chosen));
    entries.push_back(
        {fmt::format("hidden.{}", s), DType::kF16, {count, d}, std::as_bytes(std::span(halves.back()))});
    const std::span<const float> saliency = marked.saliency[s];
    entries.push_back({fmt::format("saliency.{}", s),
                       DType::kF32,
                       {static_cast<int64_t>(saliency.size())},
                       std::as_bytes(saliency)});
  }
  WriteSafetensors(TextPath(key), "train", entries, {});
}

StoredText WorkFolder::GetText(const std::string& key, int64_t stages, int64_t prompt, int64_t d) const {
  const StoredFile file(TextPath(key));
  StoredText text;
  for (const float row : file.Read("rows", {-1})) {
    if (!(row >= 0 && row < static_cast<float>(prompt)))
      file.Fail("names a token that the prompt does not have");
    text.rows.push_back(static_cast<int32_t>(row));
  }
  const auto rows = static_cast<int64_t>(text.rows.size());
  for (int64_t s = 0; s < stages; ++s) {
    text.hidden.push_back(file.Read(fmt::format("hidden.{}", s), {rows, d}));
    text.saliency.push_back(file.Read(fmt::format("saliency.{}", s), {prompt}));
  }
  return text;
}

void WorkFolder::PutRun(const std::string& key, const SdtpNet& net) const {
  const std::vector<NamedArray> state = net.State();
  std::vector<SafetensorsEntry> entries;
  for (const NamedArray& array : state) {
    entries.push_back({array.name, DType::kF32, array.shape, std::as_bytes(std::span(array.values))});
  }
  WriteSafetensors(RunPath(key), "train", entries, {{"steps", fmt::format("{}", net.steps())}});
}

bool WorkFolder::GetRun(const std::string& key, SdtpNet& net) const {
  std::error_code ignored;
  if (!fs::exists(RunPath(key), ignored)) return false;
  const StoredFile file(RunPath(key));
  const auto field = file.parsed().metadata.find("steps");
  int64_t steps = -1;
  if (field != file.parsed().metadata.end()) {
    std::from_chars(field->second.data(), field->second.data() + field->second.size(), steps);
  }
  if (steps < 0) file.Fail("does not say how many steps were done");
  std::vector<NamedArray> state;
  for (const StoredTensor& tensor : file.parsed().tensors) {
    state.push_back({tensor.name, tensor.shape, StoredFile::ReadAll(tensor)});
  }
  if (!net.Restore(state, steps)) file.Fail("does not fit this run");
  return true;
}

}  // namespace coppice
