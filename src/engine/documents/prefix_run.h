// What one request reuses from the document cache, and what it adds to the cache.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/documents/document_cache.h"
#include "engine/request.h"
#include "formats/model_shape.h"
#include "model/pass.h"

namespace coppice {

// Lives from before a sequence's prefill until after it. Does nothing without a cache.
class PrefixRun {
 public:
  // `turns`: where parts of a conversation begin (CheckpointsOf).
  PrefixRun(DocumentCache* cache, const Request& request, const ModelShape& shape, const Pass& pass,
            std::span<const int64_t> turns = {});
  ~PrefixRun() { sequence_.capture = nullptr; }
  PrefixRun(const PrefixRun&) = delete;
  PrefixRun& operator=(const PrefixRun&) = delete;

  // Puts what the prefill computed into the cache. Call it after the prefill ended or was cancelled, but not
  // after an error.
  void Keep();

 private:
  DocumentCache* cache_;
  const Request& request_;
  SequenceState& sequence_;
  std::optional<PrefixCapture> capture_;
};

}  // namespace coppice
