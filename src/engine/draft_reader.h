// Reads a prompt with a second model, for speculative prefill (policies/methods/specprefill.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/transformer.h"
#include "text/tokenizer/tokenizer.h"

namespace coppice {

// The work of a second model that reads a prompt and ends `look_ahead` queries: a dense prefill of all tokens
// but the last, and a decode step for the last one and for each token that it generates.
double LookAheadFlops(const ModelShape& draft, int64_t tokens, int look_ahead);

struct DraftReading {
  std::vector<float> importance;  // [tokens]
  double flops = 0;
};

class DraftReader {
 public:
  // `path`: as for Engine::Load. `target`: of the large model. Throws Error, naming `path`, if the second
  // model has other tokens.
  // `backend` (may be null): the one that will run the model; its weights are placed for it.
  DraftReader(const std::string& path, const Tokenizer& target, int64_t tile_rows,
              Backend* backend = nullptr);

  const std::string& path() const { return path_; }
  const ModelShape& shape() const { return transformer_.config().shape; }
  // Why the second model cannot read a prompt, or "".
  std::string Refusal(std::span<const int32_t> tokens) const;
  // `tokens`: two at least. `control.progress` gets the share done. Throws Cancelled. Each call allocates its
  // own workspace, so several calls may take turns (RunControl::pause).
  DraftReading Read(std::span<const int32_t> tokens, int look_ahead, int pool, const RunControl& control,
                    Backend& be) const;

 private:
  std::string path_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Transformer transformer_;
  int64_t tile_rows_;
};

}  // namespace coppice
