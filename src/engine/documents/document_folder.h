// The folder that a document cache keeps its files in: who may read it, what is there, and in which order it
// was used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coppice {

inline constexpr std::string_view kPrefixSuffix = ".prefix";

// Makes the folder where there is none. Throws Error where it cannot be made or written.
void MakeDocumentFolder(const std::string& folder);
// Removes what WritePrefixFile() (model/prefix_file.h) left half written in a folder where its process was
// killed.
void RemoveUnfinishedPrefixFiles(const std::string& folder);
// Paths of the cache's files, those used longest ago first. Unfinished ones are removed.
std::vector<std::string> DocumentFilesIn(const std::string& folder);
// The order of use outlives the process.
void MarkDocumentUsed(const std::string& path);

}  // namespace coppice
