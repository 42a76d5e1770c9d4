#include "engine/documents/document_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/new_file.h"

namespace coppice {

void MakeDocumentFolder(const std::string& folder) {
  // Private: anyone with the tokenizer can turn these files back into prompts.
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw Error("[documents] {}: cannot create: {}", folder, std::strerror(errno));
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) throw Error("[documents] {}: not a folder", folder);
  if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
    throw Error("[documents] {}: cannot be written: {}", folder, std::strerror(errno));
}

void RemoveUnfinishedPrefixFiles(const std::string& folder) { RemoveAbandoned(folder, "prefix"); }

std::vector<std::string> DocumentFilesIn(const std::string& folder) {
  namespace fs = std::filesystem;
  RemoveUnfinishedPrefixFiles(folder);
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    const fs::file_time_type time = it->last_write_time(ignored);
    if (ignored || !it->is_regular_file(ignored)) continue;
    if (name.ends_with(kPrefixSuffix)) found.emplace_back(time, it->path().string());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [time, path] : found) paths.push_back(std::move(path));
  return paths;
}

// Sets the time explicitly: the file system's own clock may not advance for some milliseconds.
void MarkDocumentUsed(const std::string& path) {
  struct timespec now {};
  clock_gettime(CLOCK_REALTIME, &now);
  const struct timespec times[2] = {now, now};
  utimensat(AT_FDCWD, path.c_str(), times, 0);
}

}  // namespace coppice
