// A file that the build embeds in the executable (cmake/EmbedFiles.cmake).
#pragma once

#include <string_view>

namespace coppice {

struct EmbeddedFile {
  std::string_view name;  // its path below the folder: "server/index.html"
  std::string_view content;
};

}  // namespace coppice
