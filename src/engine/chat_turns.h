// The turns that a chat template gets: one for each message, or fewer, with several messages joined, for a
// template that demands one system message, none, or that roles alternate.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

struct ChatTurn {
  std::string role;
  std::vector<size_t> messages;  // indices, in the order of the turn's text; at least one

  bool operator==(const ChatTurn&) const = default;
};

// Whether the text is nothing but blocks between tags, "<total_tokens>5 left</total_tokens>": what a client
// notes about a turn, and not what the conversation is to obey.
bool IsNote(std::string_view text);

// For messages with these roles, in the order in which a template should be offered them: as they are;
// neighbours of one role joined; later system messages in the first one; both; and system messages in the
// first user message, with neighbours joined. Each is in the list once. "system" and "developer" both count
// as system messages. Results of tools are never joined, since each answers a call of its own. `notes` says
// which messages are notes. Behind the first message of another role, a system message that is a note keeps
// its place, as a user's, if the template takes that: in the first system message it would change the
// prompt's head with every turn.
std::vector<std::vector<ChatTurn>> Arrangements(const std::vector<std::string>& roles,
                                                const std::vector<bool>& notes);

}  // namespace coppice
