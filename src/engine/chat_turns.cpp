#include "engine/chat_turns.h"

#include <algorithm>
#include <utility>

namespace coppice {

namespace {

using Turns = std::vector<ChatTurn>;

bool IsSystem(const ChatTurn& turn) { return turn.role == "system" || turn.role == "developer"; }

void Append(ChatTurn& turn, const ChatTurn& more) {
  turn.messages.insert(turn.messages.end(), more.messages.begin(), more.messages.end());
}

Turns NeighboursJoined(const Turns& turns) {
  Turns joined;
  for (const ChatTurn& turn : turns) {
    const bool joins = turn.role == "user" || turn.role == "assistant" || IsSystem(turn);
    if (joins && !joined.empty() && joined.back().role == turn.role) {
      Append(joined.back(), turn);
    } else {
      joined.push_back(turn);
    }
  }
  return joined;
}

// One system turn, which stands first. Its role is that of the first one.
Turns OneSystem(const Turns& turns) {
  Turns others;
  Turns system;
  for (const ChatTurn& turn : turns) {
    if (!IsSystem(turn)) {
      others.push_back(turn);
    } else if (system.empty()) {
      system.push_back(turn);
    } else {
      Append(system.front(), turn);
    }
  }
  system.insert(system.end(), others.begin(), others.end());
  return system;
}

// No system turn: its text begins the first user turn.
Turns SystemInUser(const Turns& turns) {
  Turns one = OneSystem(turns);
  if (one.empty() || !IsSystem(one.front())) return one;
  ChatTurn first{"user", one.front().messages};
  one.erase(one.begin());
  const auto user = std::ranges::find(one, "user", &ChatTurn::role);
  if (user == one.end()) {
    one.insert(one.begin(), std::move(first));
  } else {
    Append(first, *user);
    *user = std::move(first);
  }
  return one;
}

}  // namespace

std::vector<std::vector<ChatTurn>> Arrangements(const std::vector<std::string>& roles) {
  Turns plain;
  for (size_t i = 0; i < roles.size(); ++i) plain.push_back({roles[i], {i}});
  std::vector<Turns> all{plain};
  for (Turns next : {NeighboursJoined(plain), OneSystem(plain), NeighboursJoined(OneSystem(plain)),
                     NeighboursJoined(SystemInUser(plain))}) {
    if (std::ranges::find(all, next) == all.end()) all.push_back(std::move(next));
  }
  return all;
}

}  // namespace coppice
