// Lines at a prompt's head that clients change with every request and that mean nothing to the model:
// counters of tokens, and Claude Code's billing header. Left in, they would make every turn read its whole
// prompt again, because the document cache takes over only what two prompts have in common at their
// beginning.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace coppice {

// Leaves such lines out of a system text, and cuts the time of day from lines that tell the time: the date
// stays, since it means something and changes once a day. Appends what it left out to `names`, each once.
// Other text stays as it is, byte for byte.
std::string WithoutMovingLines(const std::string& text, std::vector<std::string>& names);

// The same for the messages of a chat that have the roles system and developer and a text as their content
// (SimplifyMessages()). What users and tools say stays. A system message of which nothing remains is removed,
// unless it is the only message.
void RemoveMovingLines(nlohmann::ordered_json& messages, std::vector<std::string>& names);

}  // namespace coppice
