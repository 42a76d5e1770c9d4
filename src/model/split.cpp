#include "model/split.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/checksum.h"

namespace coppice {

namespace {

uint64_t HashOf(std::span<const TokenSet> sets) {
  Fingerprinter hash;
  for (const TokenSet& set : sets) {
    hash.Add(set.universe());
    hash.Add(set.size());
    if (!set.IsAll()) hash.Add(std::as_bytes(set.rows()));
  }
  return hash.Result().low;
}

uint64_t HashOf(const SparsePattern& pattern) {
  Fingerprinter hash;
  const auto add = [&hash](const std::vector<int32_t>& list) {
    hash.Add(static_cast<int64_t>(list.size()));
    hash.Add(std::as_bytes(std::span(list)));
  };
  hash.Add(int64_t{pattern.query_block});
  hash.Add(int64_t{pattern.key_block});
  for (const SparsePattern::Head& head : pattern.heads) {
    add(head.columns);
    hash.Add(static_cast<int64_t>(head.key_blocks.size()));
    for (const std::vector<int32_t>& keys : head.key_blocks) add(keys);
  }
  return hash.Result().low;
}

}  // namespace

RunControl Split::control() const {
  RunControl control;
  control.progress = outer_.progress;
  return control;
}

void Split::Agree(const TokenSet& answer, std::string_view question, int layer) {
  Agree({&answer, 1}, question, layer);
}

void Split::Agree(std::span<const TokenSet> answers, std::string_view question, int layer) {
  AgreeOn(HashOf(answers), question, layer);
}

void Split::Agree(const SparsePattern& pattern, int layer) { AgreeOn(HashOf(pattern), "pattern", layer); }

void Split::AgreeOn(uint64_t hash, std::string_view question, int layer) {
  const bool stop = outer_.cancelled != nullptr && outer_.cancelled->load(std::memory_order_relaxed);
  // All hashes are equal if the smallest of them and the smallest of their complements belong together.
  uint64_t values[] = {hash, ~hash, stop ? 0u : 1u};
  comm_.Smallest(values);
  if (values[0] != ~values[1]) {
    throw Error(
        "the processes chose different tokens ({}, layer {}): they do not run the same program on the same "
        "weights, or their CPUs compute other bits",
        question, layer);
  }
  if (values[2] == 0) throw Cancelled();
}

void Split::Share(const Deal& deal, MutableTensorView rows) {
  for (int round = 0; round < deal.rounds(); ++round) comm_.BeginShare(rows, deal.Round(round));
  comm_.FinishShares();
}

std::string SplitRefusal(const TokenPolicy& policy, int layers) {
  const std::string_view own = policy.Facts().one_process;
  if (!own.empty()) return std::string(own);
  for (int l = 0; l < layers; ++l) {
    const Needs needs = policy.NeedsAt(Phase::kPrefill, l);
    if (std::ranges::any_of(needs.masses,
                            [](const Needs::Mass& m) { return m.queries == Needs::kAllQueries; }))
      return fmt::format("layer {} sums the scores of all queries, and each process has only its own", l);
  }
  return "";
}

}  // namespace coppice
