// What one request reuses from the document cache, and what it adds to the cache.
#pragma once

#include <optional>

#include "engine/documents/document_cache.h"
#include "engine/request.h"
#include "formats/model_shape.h"
#include "model/pass.h"

namespace coppice {

// Lives from before a sequence's prefill until after it. Does nothing without a cache.
class PrefixRun {
 public:
  PrefixRun(DocumentCache* cache, const Request& request, const ModelShape& shape, const Pass& pass);
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
