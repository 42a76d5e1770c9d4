// The web page's files (web/), as the build compiles them in.
#pragma once

#include <span>
#include <string_view>

namespace coppice {

struct WebFile {
  std::string_view name;  // "index.html"
  std::string_view content;
};

std::span<const WebFile> WebFiles();

}  // namespace coppice
