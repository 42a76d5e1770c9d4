// Tells routers what the document cache holds: vLLM's KV events over ZeroMQ (docs/scale-out.md).
//
// A message has three frames: the topic, its number (int64, big-endian, from 0), and a msgpack array of the
// time, the events (kv_blocks.h) and the rank 0. Messages are never awaited: a subscriber that does not read
// loses messages, and sees a gap in the numbers. Each new subscription gets everything that is held, behind
// AllBlocksCleared, so routers that start late, or whose server was restarted, know all of it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/documents/document_listener.h"

namespace coppice {

struct KvEventsOptions {
  // "tcp://HOST:PORT" (port 0: any) or "ipc://PATH", to listen on. The socket at PATH gets mode 0660,
  // replaces one on which nobody listens and no other file, and is removed at the end.
  std::string endpoint;
  std::string replay = {};    // the same, for subscribers that ask for what they have missed; empty: none
  std::string topic = {};     // the first frame of each message
  bool open = false;          // other machines may connect; else HOST is an address of this machine
  int most_unread = 1000;     // messages that wait for one subscriber; it loses further ones
  int64_t most_kept = 10000;  // messages kept for `replay`, at most 64 MiB of them
  // Gets each error of the sending thread, at most one a second. The thread then sends everything anew.
  std::function<void(const std::string&)> on_error = {};
};

// Thread-safe. The calls of the cache only note what changed; a thread sends it.
class KvEvents final : public DocumentListener {
 public:
  // Listens at once. Throws Error that names the endpoint.
  explicit KvEvents(KvEventsOptions options);
  ~KvEvents() override;  // Stop()
  KvEvents(const KvEvents&) = delete;
  KvEvents& operator=(const KvEvents&) = delete;

  // Whether a later prompt that begins with the document would be served from it.
  using Serves = std::function<bool(const HeldDocument&)>;
  // Begins to send, first what was noted before. `serves` is called by one thread, until Stop().
  void Start(Serves serves);
  // Sends nothing more. May be called again.
  void Stop();
  // What it listens on, with the port.
  std::string endpoint() const;

  void Hold(uint64_t id, HeldDocument document) noexcept override;
  void Move(uint64_t id, bool in_memory) noexcept override;
  void Release(uint64_t id) noexcept override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The path of an endpoint that begins with "ipc://", otherwise empty.
std::string IpcPath(const std::string& endpoint);

// Throws FieldError for `field` if `endpoint` is no address that KvEventsOptions describes or, unless `open`,
// one that other machines can reach.
void CheckEndpoint(const char* field, const std::string& endpoint, bool open);

}  // namespace coppice
