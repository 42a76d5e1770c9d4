// Chooses which sequence computes next. Sequences share one engine in turns: a tile of a prompt, or a token.
//
// - Prompts and tokens share the time while both have work: the kind that has had less since both have had
//   work goes next (weighted fair queueing with two flows, Demers, Keshav and Shenker 1989). A step reads all
//   weights for a token of every sequence that generates, so steps of few sequences waste the time of all who
//   wait. Tokens therefore get a third of the time, or less where more prompts wait than sequences generate:
//   1 / (2 + prompts / sequences), but at least a fifth. A prefill takes at most one and a half times as long
//   beside sequences that generate, and those never pause for more than a few tiles.
// - Sequences that generate take turns: the one whose last turn is the longest ago goes first.
// - The prompt with the least (seconds left - seconds waited / 4) goes first: shortest remaining time first,
//   which keeps the mean wait lowest (Schrage 1968), with aging. A prompt that has waited four times as long
//   as it needs goes before any new one, so none starves. While a prompt computes, its remaining time falls
//   faster than others age, so two equal prompts run one after the other instead of alternating.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coppice {

struct Contender {
  bool generates = false;  // its prefill is done
  double tokens_left = 0;  // of the prompt; a token that went through a share of the layers counts in part
  double waited = 0;       // seconds since the request arrived in which the sequence did not compute
  int64_t last_turn = 0;   // the number of its last turn, if it generates
};

class TurnOrder {
 public:
  // A sequence had the turn for `seconds`; if it is a prompt, `tokens` of it went through the layers.
  void Count(bool generates, double seconds, double tokens);
  // The index of the next sequence, of at least one; the first of equal ones.
  size_t Next(std::span<const Contender> contenders);
  // The prompt with the least value goes first. Before anything was measured that is the order of arrival.
  double Rank(const Contender& prompt) const;

 private:
  double used_[2] = {};  // seconds of prompts, and weighted ones of tokens, since both have had work
  double weight_ = 2;    // of a second of tokens
  double seconds_ = 0;   // of recent prefill work
  double tokens_ = 0;    // computed in that time
};

}  // namespace coppice
