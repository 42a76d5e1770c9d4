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

// One system turn, which stands first. Its role is that of the first one. `turns` have one message each.
Turns OneSystem(const Turns& turns, const std::vector<bool>& notes) {
  Turns others;
  Turns system;
  for (const ChatTurn& turn : turns) {
    if (!IsSystem(turn)) {
      others.push_back(turn);
    } else if (!others.empty() && notes[turn.messages.front()]) {
      others.push_back({"user", turn.messages});
    } else if (system.empty()) {
      system.push_back(turn);
    } else {
      Append(system.front(), turn);
    }
  }
  system.insert(system.end(), others.begin(), others.end());
  return system;
}

// No system turn: its text begins the first turn if that is a user's, or is a user's turn before it.
Turns SystemInUser(Turns one) {
  if (one.empty() || !IsSystem(one.front())) return one;
  one.front().role = "user";
  if (one.size() > 1 && one[1].role == "user") {
    Append(one[0], one[1]);
    one.erase(one.begin() + 1);
  }
  return one;
}

}  // namespace

bool IsNote(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  bool any = false;
  for (size_t at = text.find_first_not_of(kSpace); at != text.npos; at = text.find_first_not_of(kSpace, at)) {
    const size_t name_end = text.find_first_of("> \t\r\n<", at + 1);
    if (text[at] != '<' || name_end == text.npos || text[name_end] != '>' || name_end == at + 1) return false;
    const std::string end = "</" + std::string(text.substr(at + 1, name_end - at));
    const size_t close = text.find(end, name_end);
    if (close == text.npos) return false;
    at = close + end.size();
    any = true;
  }
  return any;
}

std::vector<std::vector<ChatTurn>> Arrangements(const std::vector<std::string>& roles,
                                                const std::vector<bool>& notes) {
  Turns plain;
  for (size_t i = 0; i < roles.size(); ++i) plain.push_back({roles[i], {i}});
  std::vector<Turns> all{plain};
  const auto add = [&](Turns next) {
    if (std::ranges::find(all, next) == all.end()) all.push_back(std::move(next));
  };
  add(NeighboursJoined(plain));
  for (const std::vector<bool>& kept : {notes, std::vector<bool>(roles.size())}) {
    const Turns one = OneSystem(plain, kept);
    add(one);
    add(NeighboursJoined(one));
    add(NeighboursJoined(SystemInUser(one)));
  }
  return all;
}

}  // namespace coppice
