// The field "prune" of a request: a spec, or an object.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/parameters.h"

namespace coppice {

// A spec ("lazyllm:keep=0.5"), or {"spec", "protect_first", "protect_last", "protect": [[begin, end], ...]},
// or {"method": "lazyllm", "keep": 0.5, "layers": [4, 6], ...} with a method's keys. false and "none" ask for
// a dense run, true and "default" for the server's own setting. Keys that name files are refused, so that a
// request cannot choose which files the server opens. Throws HttpError.
void ReadPrune(const nlohmann::json& value, const std::string& name, Parameters& out);

// The field "prune_scope" of a chat, and the server's option: "auto", "all" or "new". None for other texts.
std::optional<PruneScope> PruneScopeOf(std::string_view text);
void ReadPruneScope(const nlohmann::json& value, const std::string& name, Parameters& out);

// The field "prune_when": "pays" (Request::only_if_it_pays) or "always".
void ReadPruneWhen(const nlohmann::json& value, const std::string& name, Parameters& out);

}  // namespace coppice
