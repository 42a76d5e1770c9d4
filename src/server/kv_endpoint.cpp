// The addresses that KV events may be sent from.
#include <sys/un.h>

#include <charconv>

#include "base/field_error.h"
#include "server/http/http.h"
#include "server/kv_events.h"

namespace coppice {

namespace {

constexpr std::string_view kIpc = "ipc://";

}  // namespace

std::string IpcPath(const std::string& endpoint) {
  return endpoint.starts_with(kIpc) ? endpoint.substr(kIpc.size()) : "";
}

void CheckEndpoint(const char* field, const std::string& endpoint, bool open) {
  constexpr std::string_view kTcp = "tcp://";
  if (const std::string path = IpcPath(endpoint); !path.empty()) {
    if (path.front() != '/')
      throw FieldError(field, " {}: the path of an ipc socket begins with /", endpoint);
    if (path.size() >= sizeof(sockaddr_un::sun_path))
      throw FieldError(field, " {}: the path is longer than 107 bytes", endpoint);
    return;
  }
  const size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon < kTcp.size() + 1) {
    throw FieldError(field, " {}: is neither tcp://HOST:PORT nor ipc://PATH", endpoint);
  }
  int port = -1;
  const char* end = endpoint.data() + endpoint.size();
  const auto [stop, error] = std::from_chars(endpoint.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end || port < 0 || port > 65535) {
    throw FieldError(field, " {}: the port is no number from 0 to 65535", endpoint);
  }
  std::string host = endpoint.substr(kTcp.size(), colon - kTcp.size());
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.find_first_of(";,/") != std::string::npos)  // ZeroMQ's ways to name further things
    throw FieldError(field, " {}: the host is no name or address", endpoint);
  bool is_local = false;
  try {
    is_local = host != "*" && IsLocal(host);
  } catch (const Error& unknown) {
    throw FieldError(field, " {}: the host is no name or address", endpoint);
  }
  if (is_local || open) return;
  throw FieldError(
      field,
      " {}: others can reach this address, and would read the tokens of every prompt; kv_events_open "
      "allows it",
      endpoint);
}

}  // namespace coppice
