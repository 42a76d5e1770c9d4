// The API keys of a server and their limits, as the command line and a file give them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "server/client_limits.h"

namespace coppice::cli {

// The keys of `list`, which commas separate, and those of `file`, one a line, which fill `limits`. Either may
// be empty. Throws Error if one is given and there is no key, or if a line is wrong.
std::vector<std::string> ReadKeys(const std::string& list, const std::string& file,
                                  std::map<std::string, ClientLimit>& limits);

}  // namespace coppice::cli
