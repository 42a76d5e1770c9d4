// What one request takes from the document cache, and what it leaves there.
#pragma once

#include <optional>

#include "engine/documents/document_cache.h"
#include "engine/request.h"
#include "formats/model_shape.h"
#include "model/pass.h"

namespace coppice {

// Stands beside a sequence from before its prefill until after it. Without a cache it does nothing.
class PrefixRun {
 public:
  PrefixRun(DocumentCache* cache, const Request& request, const ModelShape& shape, const Pass& pass);
  ~PrefixRun() { sequence_.capture = nullptr; }
  PrefixRun(const PrefixRun&) = delete;
  PrefixRun& operator=(const PrefixRun&) = delete;

  // The prefill is done or was cancelled: what it computed goes to the cache. Not after an error.
  void Keep();

 private:
  DocumentCache* cache_;
  const Request& request_;
  SequenceState& sequence_;
  std::optional<PrefixCapture> capture_;
};

}  // namespace coppice
