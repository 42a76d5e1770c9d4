// The folder of a document cache's files: its permissions, its contents, and the order in which the files
// were used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice {

inline constexpr std::string_view kPrefixSuffix = ".prefix";

// Creates the folder if it does not exist. Throws Error if it cannot be created or written.
void MakeDocumentFolder(const std::string& folder);
// Removes the unfinished files that WritePrefixFile() (model/prefix_file.h) left in a folder when its process
// was killed.
void RemoveUnfinishedPrefixFiles(const std::string& folder);
// Returns the paths of the cache's files, least recently used first. Removes unfinished files.
std::vector<std::string> DocumentFilesIn(const std::string& folder);
// Records the time of use in the file's modification time, so that the order of use survives the process.
void MarkDocumentUsed(const std::string& path);

}  // namespace coppice
