// Who computes next. Sequences share one engine in turns: a tile of a prompt, or a token.
//
// - Prompts and tokens each get half of the time while both have work: whichever kind had less of it since both have had
//   work goes next (fair queueing with two flows, Demers, Keshav and Shenker 1989). A prefill therefore takes at most
//   twice as long beside sequences that generate, and they never stand still for longer than a few tiles.
// - Those that generate go round, longest since its last turn first.
// - Of the prompts the one with the least (seconds left - seconds waited / 4) goes on: the shortest remaining time
//   first, which keeps the mean wait lowest (Schrage 1968), with aging. Whoever has waited four times as long as it
//   needs stands before any newcomer, so nobody starves. The one that computes ages slower than its rest shrinks, so
//   two equal prompts run one after the other and do not take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coppice {

struct Contender {
  bool generates = false;  // its prompt is done
  double tokens_left = 0;  // of the prompt; what went through a share of the layers counts for that share
  double waited = 0;       // seconds since its request came in which it did not compute
  int64_t last_turn = 0;   // of those that generate: the number of its last turn
};

class TurnOrder {
 public:
  // Someone had the turn for `seconds`, and of a prompt `tokens` went through the layers.
  void Count(bool generates, double seconds, double tokens);
  // The index of the next among at least one. Equals: the first.
  size_t Next(std::span<const Contender> contenders);
  // What is least goes first. Before anything was measured it is the order of arrival.
  double Rank(const Contender& prompt) const;

 private:
  double used_[2] = {};  // seconds of prompts and of tokens, since both have had work
  double seconds_ = 0;   // of prompts, the recent ones; for
  double tokens_ = 0;    // so many tokens
};

}  // namespace coppice
