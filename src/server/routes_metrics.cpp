// GET /metrics.
#include "server/merged_metrics.h"
#include "server/server.h"

namespace coppice {

// Of several keys, each sees its own counts; those of all, and what the server holds, a key with the right to
// them.
void Server::MetricsText(const HttpRequest& request, const ExchangePtr& exchange) {
  if (!options_.metrics)
    throw HttpError({501, "not_supported_error", "metrics are switched off on this server"});
  const uint64_t client = access_.ClientOf(request);
  const bool all = client == 0 || limits_->SeesAllMetrics(client);
  const HttpServer* http = listening_;
  Gauges gauges{.connections = http != nullptr ? http->connections() : 0, .model = options_.alias};
  if (ready_) {
    gauges.waiting = scheduler_->waiting();
    gauges.incomplete = scheduler_->incomplete();
    gauges.sequence_room = options_.scheduler.slots * engine_->context();
    for (const SlotState& slot : scheduler_->Slots()) {
      if (!all && slot.client != client) continue;
      gauges.processing += slot.task >= 0 && !slot.completes ? 1 : 0;
      gauges.sequence_tokens += slot.processed_tokens + slot.decoded_tokens;
    }
    gauges.packed_weights = engine_->packed_bytes();
    if (DocumentCache* documents = engine_->documents()) {
      const DocumentCacheStats stats = documents->stats();
      gauges.documents = stats.entries;
      gauges.documents_memory = stats.memory_bytes;
      gauges.documents_disk = stats.disk_bytes;
      gauges.documents_errors = stats.errors;
      gauges.cache_blocks = cache_blocks_;
    }
  }
  metrics_.CountRequest(200);
  exchange->Reply({.status = 200,
                   .body = all ? metrics_.Text(gauges) : metrics_.TextOf(client, gauges),
                   .type = kMetricsType});
}

}  // namespace coppice
