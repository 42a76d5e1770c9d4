// Instead of zmq/kv_events.cpp in a build without libzmq.
#include "server/kv_events.h"
#include "base/field_error.h"

namespace coppice {

struct KvEvents::Impl {};

KvEvents::KvEvents(KvEventsOptions) {
  throw FieldError("kv_events", ": this program was built without libzmq");
}
KvEvents::~KvEvents() = default;
void KvEvents::Start(Serves) {}
void KvEvents::Stop() {}
std::string KvEvents::endpoint() const { return {}; }
void KvEvents::Hold(uint64_t, HeldDocument) noexcept {}
void KvEvents::Move(uint64_t, bool) noexcept {}
void KvEvents::Release(uint64_t) noexcept {}

}  // namespace coppice
