// llama.cpp's own form of replies (/completion), whose members a reply in OpenAI's form does not have.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "server/job.h"
#include "server/parameters.h"

namespace coppice {

// The settings of a request, or the server's own, under llama.cpp's names.
nlohmann::ordered_json SettingsJson(const Parameters& parameters);

// What the last part of an answer says about it: settings, and why it ended.
nlohmann::ordered_json NativeEnding(const JobResult& result, const Parameters& parameters);

}  // namespace coppice
